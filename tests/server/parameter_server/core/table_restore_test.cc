// Restores that do not come to their end: the table is as it was created, and another one works.
#include "gmock/gmock.h"
#include "server/parameter_server/core/sparse_table.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

using testing::HasSubstr;

TableSpec Spec(bool dense) {
  TableSpec spec;
  spec.name = "t";
  if (dense) {
    spec.shape = DenseShape{
        .tensors = {
            {.name = "w", .shape = {100}, .initializer = Initializer::kNormal, .scale = 1}}};
  } else {
    spec.shape = SparseShape{.rows = 40, .width = 5};
  }
  spec.rule = SgdOptions{.momentum = 0.5};
  spec.learning_rate = {.peak = 1, .total_steps = 100};
  spec.seed = 3;
  return spec;
}

class Fixture {
 public:
  explicit Fixture(bool dense, int64_t budget = kPlenty) : account_(budget) {
    if (dense) {
      dense_ = DenseTable::Create(Spec(true), {}, account_).value();
    } else {
      sparse_ = SparseTable::Create(Spec(false), {}, account_).value();
    }
    EXPECT_TRUE(table().Attach(Contributor(0), kNow, kLease).ok());
  }
  Table& table() { return dense_ != nullptr ? static_cast<Table&>(*dense_) : *sparse_; }
  int64_t taken_bytes() const { return account_.taken_bytes(); }

  absl::Status Push(Step step) {
    if (dense_ != nullptr) {
      const std::vector<float> values(static_cast<size_t>(dense_->range().count), 1.0f);
      return dense_
          ->Push({.from = Contributor(0),
                  .id = {.step = step},
                  .range = dense_->range(),
                  .samples = 1,
                  .values = GradientBytes::OfFloats(values)},
                 kNow)
          .status();
    }
    const std::vector<int64_t> rows = {3, 7, 30};
    const std::vector<float> values(15, 1.0f);
    return sparse_
        ->Push({.from = Contributor(0),
                .id = {.step = step},
                .samples = 1,
                .rows = rows,
                .values = GradientBytes::OfFloats(values)},
               kNow)
        .status();
  }
  absl::Status Assign(float value) {
    if (dense_ != nullptr) {
      const std::vector<float> values(100, value);
      return dense_->Assign(Contributor(0), {0, 100}, GradientBytes::OfFloats(values), kNow);
    }
    const std::vector<int64_t> rows = {1, 3};
    const std::vector<float> values(10, value);
    return sparse_->Assign(Contributor(0), rows, GradientBytes::OfFloats(values), kNow);
  }
  absl::StatusOr<std::vector<float>> Pull() {
    if (dense_ != nullptr) {
      const auto result = dense_->Pull({.range = dense_->range()}, kNow);
      if (!result.ok()) return result.status();
      std::vector<float> values = Values(*result);
      dense_->Release(result->pin);
      return values;
    }
    const std::vector<int64_t> rows = {1, 3, 7, 30, 31};
    std::vector<float> values(25);
    const auto result = sparse_->Pull({.rows = rows}, absl::MakeSpan(values), kNow);
    if (!result.ok()) return result.status();
    return values;
  }

 private:
  SimpleMemoryAccount account_;
  std::unique_ptr<DenseTable> dense_;
  std::unique_ptr<SparseTable> sparse_;
};

class TableRestoreTest : public testing::TestWithParam<bool> {
 protected:
  // Of a table that was pushed to.
  TableSnapshot Pushed() {
    Fixture table(GetParam());
    EXPECT_TRUE(table.Push(1).ok());
    EXPECT_TRUE(table.Push(2).ok());
    expected_ = table.Pull().value();
    return table.table().Snapshot();
  }
  std::vector<float> expected_;
};

TEST_P(TableRestoreTest, AnAbortedRestoreLeavesTheTableAsItWasCreated) {
  const TableSnapshot snapshot = Pushed();
  const std::vector<float> initial = Fixture(GetParam()).Pull().value();
  Fixture table(GetParam());
  const int64_t taken = table.taken_bytes();
  const auto begin = [&] {
    ASSERT_TRUE(table.table().BeginRestore(snapshot.header).ok());
    for (int array = 0; array < snapshot.header.array_count; ++array) {
      const auto part = absl::MakeConstSpan(snapshot.arrays[static_cast<size_t>(array)]).first(9);
      ASSERT_TRUE(table.table().RestorePart(array, 0, part).ok());
    }
    EXPECT_EQ(table.Pull().status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(table.Push(1).code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(table.table().BeginRestore(snapshot.header).message()),
                HasSubstr("is being restored by another call"));
  };
  begin();
  table.table().AbortRestore();
  EXPECT_EQ(table.table().version(), 0);
  EXPECT_EQ(table.table().Metrics().table_bytes + table.table().Metrics().idle_bytes,
            table.taken_bytes());
  EXPECT_EQ(table.table().Metrics().rows, 0);
  EXPECT_LE(table.taken_bytes() - table.table().Metrics().idle_bytes, taken);
  EXPECT_TRUE(table.Assign(5).ok()) << "nobody has used it";
  // Again, over what was assigned, and now to the end.
  begin();
  table.table().AbortRestore();
  ASSERT_TRUE(table.table().Restore(snapshot).ok());
  EXPECT_EQ(table.table().version(), 2);
  EXPECT_TRUE(SameFloats(table.Pull().value(), expected_));
  table.table().AbortRestore();
  EXPECT_EQ(table.table().version(), 2) << "none is under way";
  EXPECT_EQ(table.table().BeginRestore(snapshot.header).code(),
            absl::StatusCode::kFailedPrecondition);

  // Without a second restore: parameters and optimizer state are those of a new table.
  Fixture other(GetParam());
  ASSERT_TRUE(other.table().BeginRestore(snapshot.header).ok());
  ASSERT_TRUE(other.table().RestorePart(0, 0, snapshot.arrays[0]).ok());
  ASSERT_TRUE(other.table().RestorePart(1, 0, snapshot.arrays[1]).ok());
  other.table().AbortRestore();
  EXPECT_TRUE(SameFloats(other.Pull().value(), initial));
  ASSERT_TRUE(other.Push(1).ok());
  ASSERT_TRUE(other.Push(2).ok());
  EXPECT_TRUE(SameFloats(other.Pull().value(), expected_));
}

TEST_P(TableRestoreTest, ASnapshotThatIsRefusedLeavesTheTableUsable) {
  const TableSnapshot snapshot = Pushed();
  Fixture table(GetParam());
  TableSnapshot bad = snapshot;
  ++bad.header.array_count;
  EXPECT_EQ(table.table().Restore(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = snapshot;
  bad.arrays[0].pop_back();
  EXPECT_EQ(table.table().Restore(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = snapshot;
  bad.arrays.push_back(bad.arrays[0]);
  EXPECT_EQ(table.table().Restore(bad).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(table.table().Restore(snapshot).ok());
  EXPECT_TRUE(SameFloats(table.Pull().value(), expected_));
}

TEST_P(TableRestoreTest, ReadsPiecesOfASnapshotUntilTheTableChanges) {
  Fixture fixture(GetParam());
  Table& table = fixture.table();
  const int64_t created = table.changes();
  ASSERT_TRUE(fixture.Assign(5).ok());
  const int64_t assigned = table.changes();
  EXPECT_GT(assigned, created);
  ASSERT_TRUE(fixture.Push(1).ok());
  const int64_t pushed = table.changes();
  EXPECT_GT(pushed, assigned);
  const TableSnapshot whole = table.Snapshot();
  std::mt19937 random(1);
  for (int array = 0; array < whole.header.array_count; ++array) {
    for (const Range part : RandomChunks({0, whole.header.array_elements}, 7, random)) {
      std::vector<float> values(static_cast<size_t>(part.count));
      table.ReadArray(whole.header, array, part.offset, absl::MakeSpan(values));
      ASSERT_TRUE(SameFloats(values, PartOf(whole.arrays[static_cast<size_t>(array)], part)));
    }
  }
  ASSERT_TRUE(fixture.Pull().ok());
  ASSERT_FALSE(fixture.Push(-1).ok());
  EXPECT_EQ(table.changes(), pushed);
  ASSERT_TRUE(fixture.Push(2).ok());
  EXPECT_GT(table.changes(), pushed);
  Fixture other(GetParam());
  ASSERT_TRUE(other.table().BeginRestore(whole.header).ok());
  EXPECT_TRUE(other.table().restoring());
  EXPECT_GT(other.table().changes(), created);
  other.table().AbortRestore();
  EXPECT_FALSE(other.table().restoring());
}

TEST_P(TableRestoreTest, ReplacesWhatWasAssigned) {
  const TableSnapshot snapshot = Pushed();
  Fixture table(GetParam());
  ASSERT_TRUE(table.Assign(5).ok());
  ASSERT_TRUE(table.table().Restore(snapshot).ok());
  EXPECT_TRUE(SameFloats(table.Pull().value(), expected_));
}

INSTANTIATE_TEST_SUITE_P(Kinds, TableRestoreTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "dense" : "sparse"; });

TEST(SparseTableRestoreTest, RowsBeyondTheBudgetAreGivenBack) {
  Fixture source(false);
  ASSERT_TRUE(source.Push(1).ok());
  Fixture table(false, 1000);
  EXPECT_EQ(table.table().Restore(source.table().Snapshot()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table.taken_bytes(), 0);
  EXPECT_TRUE(table.Pull().ok());
}

}  // namespace
}  // namespace muster
