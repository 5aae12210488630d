// Snapshot and Restore on a real server: restores that break off, and tables that fill its memory.
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/parameter_server/rpc/test_server.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kElements = 3 << 19;  // three messages of an array

using Parts = std::vector<v1::TableSnapshotPart>;

absl::StatusOr<Parts> SnapshotOf(ParameterTable& table) {
  Parts parts;
  const absl::Status status = table.Snapshot(0, [&](const v1::TableSnapshotPart& part) {
    parts.push_back(part);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return parts;
}

absl::Status RestoreFrom(ParameterTable& table, const Parts& parts) {
  size_t next = 0;
  return table.Restore(0, [&]() -> std::optional<v1::TableSnapshotPart> {
    return next < parts.size() ? std::optional(parts[next++]) : std::nullopt;
  });
}

class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() {
    TestServer source;
    const auto table = OpenTable({source.address()}, DenseSpec(kElements), 0);
    EXPECT_TRUE(table->Push({.step = 1}, std::vector<float>(kElements, 2.0f)).ok());
    parts_ = SnapshotOf(*table).value();
    table_ = OpenTable({server_.address()}, DenseSpec(kElements), 0);
  }
  // The table is what it was before, and takes the snapshot.
  void ExpectThatItCanBeRestored() {
    const absl::Status restored = RestoreFrom(*table_, parts_);
    ASSERT_TRUE(restored.ok()) << restored;
    std::vector<float> values(kElements);
    ASSERT_TRUE(table_->Pull(1, absl::MakeSpan(values)).ok());
    EXPECT_THAT(values, Each(-2.0f));
    EXPECT_TRUE(table_->Push({.step = 2}, values).ok());
    EXPECT_EQ(RestoreFrom(*table_, parts_).code(), absl::StatusCode::kFailedPrecondition);
  }

  TestServer server_;
  Parts parts_;
  std::unique_ptr<ParameterTable> table_;
};

TEST_F(RestoreTest, BeginsAnewAfterASnapshotThatIsWrong) {
  ASSERT_EQ(parts_.size(), 4u);
  const auto refused = [&](const std::function<void(Parts&)>& change, const std::string& error) {
    Parts bad = parts_;
    change(bad);
    const absl::Status status = RestoreFrom(*table_, bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(error));
  };
  refused([](Parts& parts) { parts[2].set_crc32c(parts[2].crc32c() ^ 1); }, "crc32c");
  refused([](Parts& parts) { parts.push_back(parts.back()); }, "still lacks");
  refused([](Parts& parts) { parts.push_back(parts.front()); }, "came twice");
  refused([](Parts& parts) { parts.pop_back(); }, "ended after");
  refused([](Parts& parts) { parts[3].set_array(7); }, "array");
  // Nothing of it is left.
  std::vector<float> values(kElements, 1.0f);
  {
    TestServer other;
    const auto table = OpenTable({other.address()}, DenseSpec(kElements), 0);
    Parts bad = parts_;
    bad.pop_back();
    EXPECT_FALSE(RestoreFrom(*table, bad).ok());
    const auto pulled = table->Pull(0, absl::MakeSpan(values));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->newest, 0);
    EXPECT_THAT(values, Each(0.0f));
  }
  ExpectThatItCanBeRestored();
}

TEST_F(RestoreTest, BeginsAnewAfterAClientThatVanished) {
  for (const size_t sent : {size_t{1}, size_t{2}, size_t{3}}) {
    grpc::ClientContext context;
    v1::RestoreResponse response;
    const auto writer = server_.stub().Restore(&context, &response);
    for (size_t i = 0; i < sent; ++i) ASSERT_TRUE(writer->Write(parts_[i]));
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // Once the server has seen it.
  std::vector<float> values(kElements);
  ASSERT_TRUE(WaitUntil([&] {
    const absl::Status restored = RestoreFrom(*table_, parts_);
    return restored.ok() || !absl::IsFailedPrecondition(restored);
  }));
  ASSERT_TRUE(table_->Pull(1, absl::MakeSpan(values)).ok());
  EXPECT_THAT(values, Each(-2.0f));
}

// A server whose memory rows fill, until it takes no more.
class FullServerTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWidth = 4;
  static constexpr int64_t kRowsOfPush = 2000;

  FullServerTest() : server_(Options()) {
    v1::TableSpec spec = SparseSpec(int64_t{1} << 36, kWidth);
    spec.set_consistency(v1::TableSpec::ASYNCHRONOUS);
    table_ = OpenTable({server_.address()}, spec, 0);
    while (true) {
      std::vector<int64_t> rows(kRowsOfPush);
      std::iota(rows.begin(), rows.end(), 3 * row_count_);
      const auto pushed = table_->PushRows({.step = step_}, rows, Ones(rows.size()));
      if (!pushed.ok()) {
        EXPECT_EQ(pushed.status().code(), absl::StatusCode::kResourceExhausted) << pushed.status();
        break;
      }
      for (const int64_t row : rows) rows_.push_back(row);
      row_count_ += kRowsOfPush;
      ++step_;
    }
    EXPECT_GT(step_, 2);
  }
  static ParameterServerOptions Options() {
    ParameterServerOptions options;
    options.memory_bytes = 2 << 20;
    return options;
  }
  static std::vector<float> Ones(size_t rows) {
    return std::vector<float>(rows * static_cast<size_t>(kWidth), 1.0f);
  }

  TestServer server_;
  std::unique_ptr<ParameterTable> table_;
  int64_t row_count_ = 0;
  std::vector<int64_t> rows_;
  int64_t step_ = 1;
};

TEST_F(FullServerTest, CanBePulledFrom) {
  std::vector<float> values(rows_.size() * kWidth);
  const auto pulled = table_->PullRows(0, rows_, absl::MakeSpan(values));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_THAT(values, Each(-1.0f));
}

TEST_F(FullServerTest, CanBeSaved) {
  const auto parts = SnapshotOf(*table_);
  ASSERT_TRUE(parts.ok()) << parts.status();
  TestServer larger;
  v1::TableSpec spec = SparseSpec(int64_t{1} << 36, kWidth);
  spec.set_consistency(v1::TableSpec::ASYNCHRONOUS);
  const auto copy = OpenTable({larger.address()}, spec, 0);
  const absl::Status restored = RestoreFrom(*copy, *parts);
  ASSERT_TRUE(restored.ok()) << restored;
  std::vector<float> values(rows_.size() * kWidth);
  ASSERT_TRUE(copy->PullRows(0, rows_, absl::MakeSpan(values)).ok());
  EXPECT_THAT(values, Each(-1.0f));
  EXPECT_TRUE(copy->PushRows({.step = step_}, std::vector<int64_t>{1}, Ones(1)).ok())
      << "its steps are known";
}

TEST(SnapshotTest, WithoutRoomForACopyEndsIfTheTableChanges) {
  constexpr int64_t kLarge = 12 << 20;  // far more than connections buffer
  ParameterServerOptions options;
  options.memory_bytes = 7 * kLarge;
  TestServer server(options);
  v1::TableSpec spec = DenseSpec(kLarge);
  spec.set_consistency(v1::TableSpec::ASYNCHRONOUS);
  const auto table = OpenTable({server.address()}, spec, 0);
  EXPECT_TRUE(SnapshotOf(*table).ok()) << "nobody pushes";
  grpc::ClientContext context;
  v1::SnapshotRequest request;
  request.set_table("t");
  const auto reader = server.stub().Snapshot(&context, request);
  v1::TableSnapshotPart part;
  ASSERT_TRUE(reader->Read(&part));
  ASSERT_TRUE(table->Push({.step = 1}, std::vector<float>(kLarge, 1.0f)).ok());
  while (reader->Read(&part)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("changed while its snapshot was sent"));
}

}  // namespace
}  // namespace muster
