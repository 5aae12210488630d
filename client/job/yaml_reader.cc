#include <sstream>
#include <string>

#include "client/job/config_builder.h"
#include "client/job/readers.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/parser.h"

namespace muster {
namespace {

Position At(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

class YamlEvents final : public YAML::EventHandler {
 public:
  ConfigBuilder& builder() { return builder_; }
  Position document() const { return document_; }

 private:
  void OnDocumentStart(const YAML::Mark& mark) override { document_ = At(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    CheckPlain(mark, "?", anchor);
    builder_.Null(At(mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    builder_.Fail(At(mark), "aliases (*name) are not supported; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    CheckPlain(mark, tag, anchor);
    const bool quoted = tag == "!";
    if (!quoted && (value == "~" || value == "null")) {
      builder_.Null(At(mark));
    } else {
      builder_.Scalar(At(mark), value, quoted);
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    CheckPlain(mark, tag, anchor);
    builder_.BeginList(At(mark));
  }
  void OnSequenceEnd() override { builder_.End(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    CheckPlain(mark, tag, anchor);
    builder_.BeginMap(At(mark));
  }
  void OnMapEnd() override { builder_.End(); }

  // yaml-cpp gives "?" to what has no tag and "!" to scalars in quotes.
  void CheckPlain(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) builder_.Fail(At(mark), "anchors (&name) are not supported");
    if (!tag.empty() && tag != "?" && tag != "!") {
      builder_.Fail(At(mark), absl::StrCat("the tag ", tag, " is not supported"));
    }
  }

  ConfigBuilder builder_;
  Position document_;
};

}  // namespace

absl::StatusOr<ConfigNode> ReadYaml(absl::string_view text) {
  std::istringstream stream{std::string(text)};
  YamlEvents events;
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(events)) return PositionedError({1, 1}, "", "the file is empty");
    YamlEvents second;
    if (!events.builder().failed() && parser.HandleNextDocument(second)) {
      return PositionedError(second.document(), "", "a second document; a job file holds one");
    }
  } catch (const YAML::Exception& error) {
    // The earlier of the two is the cause.
    if (!events.builder().failed()) {
      return PositionedError(At(error.mark), "", absl::StrCat("not valid YAML: ", error.msg));
    }
  }
  return std::move(events.builder()).Finish();
}

}  // namespace muster
