#include <cstddef>
#include <iterator>
#include <string>

#include "client/job/config_builder.h"
#include "client/job/readers.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

// Where the parser is: the last character taken that is not white space. The lexer takes one
// character beyond a number, which may be the end of its line but never anything farther.
struct Cursor {
  Position next = {1, 1};
  Position last = {1, 1};

  void Take(char c) {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') last = next;
    if (c == '\n') {
      next = {next.line + 1, 1};
    } else {
      ++next.column;
    }
  }
};

// Feeds the lexer and moves the cursor.
class TrackingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* at, Cursor* cursor) : at_(at), cursor_(cursor) {}
  reference operator*() const { return *at_; }
  TrackingIterator& operator++() {
    cursor_->Take(*at_);
    ++at_;
    return *this;
  }
  TrackingIterator operator++(int) {
    TrackingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TrackingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const TrackingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Cursor* cursor_;
};

// nlohmann's SAX interface; returning false stops the parser.
class JsonEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonEvents(const Cursor* cursor) : cursor_(cursor) {}
  ConfigBuilder& builder() { return builder_; }

  bool null() override {
    builder_.Null(cursor_->last);
    return !builder_.failed();
  }
  bool boolean(bool value) override { return Plain(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Plain(absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Plain(absl::StrCat(value)); }
  bool number_float(number_float_t, const string_t& text) override { return Plain(text); }
  bool string(string_t& value) override {
    builder_.Scalar(cursor_->last, value, /*quoted=*/true);
    return !builder_.failed();
  }
  bool binary(binary_t&) override { return false; }  // does not occur in text
  bool start_object(size_t) override {
    builder_.BeginMap(cursor_->last);
    return !builder_.failed();
  }
  bool key(string_t& name) override {
    builder_.Scalar(cursor_->last, name, /*quoted=*/true);
    return !builder_.failed();
  }
  bool end_object() override {
    builder_.End();
    return !builder_.failed();
  }
  bool start_array(size_t) override {
    builder_.BeginList(cursor_->last);
    return !builder_.failed();
  }
  bool end_array() override {
    builder_.End();
    return !builder_.failed();
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: what"
    absl::string_view text = error.what();
    const size_t colon = text.find(": ");
    if (colon != absl::string_view::npos) text.remove_prefix(colon + 2);
    // It quotes what it could not read, however long that is.
    builder_.Fail(cursor_->last, absl::StrCat("not valid JSON: ", text.substr(0, 200)));
    return false;
  }

 private:
  bool Plain(std::string text) {
    builder_.Scalar(cursor_->last, std::move(text), /*quoted=*/false);
    return !builder_.failed();
  }

  const Cursor* cursor_;
  ConfigBuilder builder_;
};

}  // namespace

absl::StatusOr<ConfigNode> ReadJson(absl::string_view text) {
  Cursor cursor;
  JsonEvents events(&cursor);
  nlohmann::json::sax_parse(TrackingIterator(text.data(), &cursor),
                            TrackingIterator(text.data() + text.size(), &cursor), &events);
  return std::move(events.builder()).Finish();
}

}  // namespace muster
