#include "server/parameter_server/core/table_spec.h"

#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "server/parameter_server/core/table_directory.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

using testing::HasSubstr;

TableSpec Dense() {
  TableSpec spec;
  spec.name = "model/layer-1";
  spec.shape =
      DenseShape{.tensors = {{.name = "w", .shape = {10, 10}}, {.name = "b", .shape = {3}}}};
  return spec;
}
TableSpec Sparse() {
  TableSpec spec;
  spec.name = "embedding";
  spec.shape = SparseShape{.rows = 1000, .width = 8};
  return spec;
}
DenseShape& Shape(TableSpec& spec) { return std::get<DenseShape>(spec.shape); }
SparseShape& Rows(TableSpec& spec) { return std::get<SparseShape>(spec.shape); }

TEST(TableSpecTest, WritesTheRangeOut) {
  TableSpec dense = Resolve(Dense()).value();
  EXPECT_EQ(Shape(dense).range, (Range{0, 192}));
  TableSpec sparse = Resolve(Sparse()).value();
  EXPECT_EQ(Rows(sparse).range, (Range{0, 1000}));
}

TEST(TableSpecTest, NamesTheFieldThatIsWrong) {
  struct Case {
    std::function<void(TableSpec&)> change;
    const char* message;
  };
  const Case dense[] = {
      {[](TableSpec& s) { s.name = ""; }, "name: expected 1 to 256 letters"},
      {[](TableSpec& s) { s.name = "a b\n"; }, "got \"a b\\n\""},
      {[](TableSpec& s) { s.contributors = 0; }, "contributors: expected 1 to 4096, got 0"},
      {[](TableSpec& s) { s.micro_batches = 0; }, "micro_batches: expected 1 to"},
      {[](TableSpec& s) { s.staleness = 2; },
       "staleness: expected 0, as consistency is synchronous"},
      {[](TableSpec& s) { s.clip_norm = std::nan(""); }, "clip_norm: expected a finite number"},
      {[](TableSpec& s) { s.learning_rate.peak = -1; }, "learning_rate.peak"},
      {[](TableSpec& s) { s.rule = SgdOptions{.nesterov = true}; }, "momentum"},
      {[](TableSpec& s) { Shape(s).tensors.clear(); }, ""},
      {[](TableSpec& s) {
         Shape(s).tensors[0].shape = {0, 10};
       },
       "positive extents"},
      {[](TableSpec& s) {
         Shape(s).tensors[0].shape = {1 << 30, 1 << 30};
       },
       "at most 2^40"},
      {[](TableSpec& s) { Shape(s).bucket_elements = 63; }, "bucket_elements: expected 64 to"},
      {[](TableSpec& s) {
         Shape(s).tensors[0].shape = {int64_t{1} << 39};
         Shape(s).bucket_elements = 64;
       },
       "bucket_elements: expected at least"},
      {[](TableSpec& s) {
         Shape(s).range = Range{0, 193};
       },
       "range: expected at least one of"},
      {[](TableSpec& s) {
         Shape(s).range = Range{0, 0};
       },
       "owns nothing of a table needs none"},
      {[](TableSpec& s) {
         Shape(s).range = Range{0, 64};
         s.clip_norm = 1;
       },
       "choose external commit, or one server"},
      {[](TableSpec& s) {
         Shape(s).range = Range{0, 64};
         s.rule = LambOptions{};
       },
       "LAMB needs norms over whole tensors"},
      {[](TableSpec& s) {
         s.visibility = Visibility::kSegments;
         s.clip_norm = 1;
       },
       "visibility: by segments goes with"},
      {[](TableSpec& s) {
         s.commit = CommitMode::kExternal;
         s.consistency = Consistency::kAsynchronous;
       },
       "commit: external goes with a dense table of synchronous"}};
  for (const Case& c : dense) {
    TableSpec spec = Dense();
    c.change(spec);
    const absl::Status status = Resolve(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
  const Case sparse[] = {
      {[](TableSpec& s) { Rows(s).rows = 0; }, "rows: expected 1 to"},
      {[](TableSpec& s) { Rows(s).width = int64_t{1} << 40; }, "width: expected 1 to"},
      {[](TableSpec& s) {
         Rows(s).range = Range{990, 11};
       },
       "range: expected at least one"},
      {[](TableSpec& s) { s.rule = LambOptions{}; }, "LAMB needs norms over all rows"},
      {[](TableSpec& s) { s.visibility = Visibility::kSegments; }, "visibility"},
      {[](TableSpec& s) { s.commit = CommitMode::kExternal; }, "commit"}};
  for (const Case& c : sparse) {
    TableSpec spec = Sparse();
    c.change(spec);
    EXPECT_THAT(std::string(Resolve(spec).status().message()), HasSubstr(c.message));
  }
}

TEST(TableSpecTest, FindsEveryDifference) {
  using Change = std::function<void(TableSpec&)>;
  const std::pair<Change, const char*> changes[] = {
      {[](TableSpec& s) { s.seed = 5; }, "seed is 0, and not 5"},
      {[](TableSpec& s) { s.contributors = 2; }, "contributors is 1, and not 2"},
      {[](TableSpec& s) { s.micro_batches = 2; }, "micro_batches is 1, and not 2"},
      {[](TableSpec& s) { s.clip_norm = 0.5; }, "clip_norm is 0, and not 0.5"},
      {[](TableSpec& s) { s.nonfinite = NonfinitePolicy::kSkip; }, "nonfinite is refuse"},
      {[](TableSpec& s) { s.consistency = Consistency::kAsynchronous; }, "consistency is sync"},
      {[](TableSpec& s) { s.visibility = Visibility::kSegments; }, "visibility is whole steps"},
      {[](TableSpec& s) { s.commit = CommitMode::kExternal; }, "commit is automatic"},
      {[](TableSpec& s) { s.learning_rate.peak = 0.25; }, "learning_rate.peak is 0.1"},
      {[](TableSpec& s) { s.rule = AdamWOptions{}; }, "rule is sgd, and not adamw"},
      {[](TableSpec& s) { s.rule = SgdOptions{.momentum = 0.5}; }, "momentum is 0, and not 0.5"},
      {[](TableSpec& s) {
         Shape(s).range = Range{0, 64};
       },
       "range.count is 192, and not 64"},
      {[](TableSpec& s) { Shape(s).bucket_elements = 64; }, "bucket_elements is 262144"},
      {[](TableSpec& s) { Shape(s).tensors.pop_back(); }, "tensors is 2, and not 1"},
      {[](TableSpec& s) { Shape(s).tensors[1].name = "c"; }, "it has tensor \"b\" shape, and not"},
      {[](TableSpec& s) { Shape(s).tensors[0].shape = {100}; }, "shape is 10x10, and not 100"},
      {[](TableSpec& s) { Shape(s).tensors[0].frozen = true; }, "\"w\" frozen is 0, and not 1"},
      {[](TableSpec& s) { Shape(s).tensors[0].weight_decay = 0; }, "weight_decay is the rule's"},
      {[](TableSpec& s) { s.shape = SparseShape{.rows = 5, .width = 2}; }, "shape is dense, and"}};
  const TableSpec existing = Resolve(Dense()).value();
  EXPECT_EQ(FirstDifference(existing, existing), std::nullopt);
  for (const auto& [change, message] : changes) {
    TableSpec spec = Dense();
    change(spec);
    const auto difference = FirstDifference(existing, Resolve(spec).value());
    ASSERT_TRUE(difference.has_value()) << message;
    EXPECT_THAT(*difference, HasSubstr(message));
  }
}

TEST(TableDirectoryTest, CreatesOnceAndAttachesAfterwards) {
  SimpleMemoryAccount account(kPlenty);
  TableDirectory directory({.max_tables = 2}, account);
  EXPECT_EQ(directory.Find("model").status().message(),
            "there is no table \"model\"; there is none at all; create it first");
  const auto created = directory.Open(Dense()).value();
  EXPECT_TRUE(created.created);
  ASSERT_NE(created.table.dense, nullptr);
  const auto attached = directory.Open(Dense()).value();
  EXPECT_FALSE(attached.created);
  EXPECT_EQ(attached.table.dense, created.table.dense);
  TableSpec other = Dense();
  other.seed = 3;
  EXPECT_EQ(directory.Open(other).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(directory.Open(other).status().message()),
              HasSubstr("is here with another spec: seed is 0, and not 3; attach with"));
  ASSERT_TRUE(directory.Open(Sparse()).ok());
  other.name = "third";
  EXPECT_EQ(directory.Open(other).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(directory.Find("third").status().message(),
            "there is no table \"third\"; there are embedding, model/layer-1");
  EXPECT_EQ(directory.All().size(), 2u);
  ASSERT_NE(directory.Find("embedding")->sparse, nullptr);
  ASSERT_TRUE(directory.Drop("embedding").ok());
  EXPECT_EQ(directory.Drop("embedding").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(directory.Open(other).ok());
  EXPECT_EQ(created.table.get().spec().name, "model/layer-1");
}

}  // namespace
}  // namespace muster
