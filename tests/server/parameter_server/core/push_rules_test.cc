// Who may push what, what becomes of values that are not finite, and of calls that wait when their
// contributor is no more.
#include <limits>

#include "gmock/gmock.h"
#include "server/parameter_server/core/sparse_table.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Outcome = PushResult::Outcome;

constexpr float kLarge = 3e38f;  // finite; twice as much is not
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TableSpec Spec(int32_t contributors, Consistency consistency = Consistency::kSynchronous) {
  return DenseSpecOf({{.name = "w", .shape = {64}}, {.name = "b", .shape = {64}}}, contributors,
                     consistency);
}

class DenseFixture {
 public:
  explicit DenseFixture(const TableSpec& spec, const TableLimits& limits = {})
      : table_(DenseTable::Create(spec, limits, account_).value()) {
    for (int32_t c = 0; c < spec.contributors; ++c) {
      EXPECT_TRUE(table_->Attach(Contributor(c), kNow, kLease).ok());
    }
  }
  DenseTable* operator->() { return table_.get(); }
  absl::StatusOr<PushResult> Push(int32_t from, PushId id, float value, int64_t samples = 1,
                                  std::optional<Range> part = std::nullopt) {
    const Range range = part.value_or(table_->range());
    const std::vector<float> values(static_cast<size_t>(range.count), value);
    return table_->Push({.from = Contributor(from),
                         .id = id,
                         .range = range,
                         .samples = samples,
                         .values = GradientBytes::OfFloats(values)},
                        kNow);
  }
  std::vector<float> Pull() { return PullAll(*table_); }

 private:
  SimpleMemoryAccount account_{kPlenty};
  std::unique_ptr<DenseTable> table_;
};

// ---- calls that wait ---------------------------------------------------------------------------

TEST(PushRulesTest, CallsThatWaitEndWithTheirContributor) {
  enum class Ends { kReplaced, kRemoved, kDetached, kExpired };
  for (const Ends ends : {Ends::kReplaced, Ends::kRemoved, Ends::kDetached, Ends::kExpired}) {
    SCOPED_TRACE(static_cast<int>(ends));
    DenseFixture table(Spec(2));
    const auto push = table.Push(0, {.step = 3, .micro_batch = 0}, 1);
    ASSERT_EQ(push->outcome, Outcome::kMustWait);
    table->Park(1, push->wait);
    DensePull request{.from = Contributor(0), .range = table->range(), .min_version = 1};
    table->Park(2, *table->Pull(request, kNow)->wait);
    const auto other = table.Push(1, {.step = 3, .micro_batch = 1}, 1);
    ASSERT_EQ(other->outcome, Outcome::kMustWait);
    table->Park(3, other->wait);
    const DensePull reader{.range = table->range(), .min_version = 1};
    table->Park(4, *table->Pull(reader, kNow)->wait);
    ASSERT_TRUE(table->Heartbeat(Contributor(1), kNow + kLease).ok());
    EXPECT_THAT(table->TakeReady(), IsEmpty());
    switch (ends) {
      case Ends::kReplaced:
        ASSERT_TRUE(table->Attach(Contributor(0, 2), kNow, kLease).ok());
        break;
      case Ends::kRemoved:
        ASSERT_TRUE(table->Remove(0).ok());
        break;
      case Ends::kDetached:
        table->Detach(Contributor(0));
        break;
      case Ends::kExpired:
        EXPECT_THAT(table->Expire(kNow + kLease), ElementsAre(0));
        break;
    }
    EXPECT_THAT(table->TakeReady(), ElementsAre(1, 2)) << "and the others wait on";
    EXPECT_EQ(table.Push(0, {.step = 3, .micro_batch = 0}, 1).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(table->Pull(request, kNow).status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(PushRulesTest, CallsThatWaitForMemoryOrTheSlowestEndWithTheirContributor) {
  TableLimits limits;
  limits.held_bytes = 1;
  DenseFixture table(Spec(3), limits);
  ASSERT_EQ(table.Push(0, {.step = 1, .micro_batch = 0}, 1, 1, Range{0, 16})->outcome,
            Outcome::kAdded);
  const auto memory = table.Push(2, {.step = 1, .micro_batch = 2}, 1, 1, Range{0, 16});
  ASSERT_EQ(memory->wait.what, Wait::For::kProgress);
  table->Park(1, memory->wait);
  ASSERT_TRUE(table->Remove(2).ok());
  EXPECT_THAT(table->TakeReady(), ElementsAre(1));

  TableSpec spec = Spec(2, Consistency::kBoundedStaleness);
  DenseFixture stale(spec);
  ASSERT_EQ(stale.Push(0, {.step = 1, .micro_batch = 0}, 1)->outcome, Outcome::kAdded);
  const auto ahead = stale.Push(0, {.step = 2, .micro_batch = 0}, 1);
  ASSERT_EQ(ahead->wait.what, Wait::For::kSlowest);
  stale->Park(1, ahead->wait);
  const DensePull pull{.from = Contributor(0), .range = stale->range()};
  stale->Park(2, *stale->Pull(pull, kNow)->wait);
  ASSERT_TRUE(stale->Attach(Contributor(0, 2), kNow, kLease).ok());
  EXPECT_THAT(stale->TakeReady(), ElementsAre(1, 2));
}

// ---- who pushes what ---------------------------------------------------------------------------

TEST(PushRulesTest, OnlyItsContributorPushesAMicroBatch) {
  for (const Consistency consistency : {Consistency::kSynchronous, Consistency::kAsynchronous}) {
    TableSpec spec = Spec(2, consistency);
    spec.micro_batches = 5;  // 0 and 1, 2 to 4
    DenseFixture table(spec);
    const absl::Status status = table.Push(0, {.step = 1, .micro_batch = 3}, 100).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "table \"t\": micro-batch 3 is for contributor 1 to push, and came from contributor "
              "0, which has micro-batches 0 to 1 of 5");
    EXPECT_EQ(table.Push(1, {.step = 1, .micro_batch = 1}, 100).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(table->Metrics().pushes_refused, 2);
    for (int32_t m = 0; m < 5; ++m) {
      EXPECT_EQ(table.Push(m < 2 ? 0 : 1, {.step = 1, .micro_batch = m}, 1)->outcome,
                Outcome::kAdded);
    }
    EXPECT_EQ(table.Pull()[0], consistency == Consistency::kSynchronous ? -1.0f : -5.0f);
  }
  TableSpec few = Spec(2);
  few.micro_batches = 1;
  DenseFixture table(few);
  EXPECT_THAT(
      std::string(table.Push(0, {.step = 1}, 1).status().message()),
      HasSubstr("is for contributor 1 to push, and came from contributor 0, which has none"));
  EXPECT_EQ(table.Push(1, {.step = 1}, 1)->outcome, Outcome::kAdded);
}

TEST(PushRulesTest, SamplesCannotOverflow) {
  for (const Consistency consistency : {Consistency::kSynchronous, Consistency::kAsynchronous}) {
    DenseFixture table(Spec(2, consistency));
    for (const int64_t samples : {std::numeric_limits<int64_t>::max(), kMaxSamplesOfPush + 1}) {
      const absl::Status status = table.Push(0, {.step = 1, .micro_batch = 0}, 1, samples).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr("0 to 1099511627776 samples"));
    }
    EXPECT_TRUE(table.Push(0, {.step = 1, .micro_batch = 0}, 1, kMaxSamplesOfPush).ok());
    EXPECT_TRUE(table.Push(1, {.step = 1, .micro_batch = 1}, 1, kMaxSamplesOfPush).ok());
    EXPECT_LT(table.Pull()[0], 0.0f);
    EXPECT_GT(table.Pull()[0], -1e-11f);
  }
}

// ---- not finite --------------------------------------------------------------------------------

TEST(PushRulesTest, AStepWhoseSumOverflowsChangesNothing) {
  for (const bool clips : {false, true}) {
    TableSpec spec = Spec(2);
    spec.clip_norm = clips ? 1e30 : 0;
    DenseFixture table(spec);
    ASSERT_EQ(table.Push(0, {.step = 1, .micro_batch = 0}, kLarge)->outcome, Outcome::kAdded);
    ASSERT_EQ(table.Push(1, {.step = 1, .micro_batch = 1}, kLarge)->outcome, Outcome::kAdded);
    EXPECT_EQ(table->version(), 1) << "the step is done";
    EXPECT_EQ(table.Pull()[0], 0.0f);
    EXPECT_EQ(table->Metrics().updates_skipped, 1);
    EXPECT_EQ(table->Metrics().updates, 0);
    EXPECT_EQ(table->Header().update_count, 0);
    ASSERT_TRUE(table.Push(0, {.step = 2, .micro_batch = 0}, 1).ok());
    ASSERT_TRUE(table.Push(1, {.step = 2, .micro_batch = 1}, 1).ok());
    EXPECT_EQ(table.Pull()[0], -1.0f);
    EXPECT_EQ(table->Metrics().updates, 1);
  }
}

TEST(PushRulesTest, ASegmentWhoseSumOverflowsStaysAndTheStepCountsAsSkipped) {
  TableSpec spec = Spec(2);
  spec.visibility = Visibility::kSegments;
  TableLimits limits;
  limits.segment_elements = 64;
  DenseFixture table(spec, limits);
  for (int32_t c = 0; c < 2; ++c) {
    ASSERT_TRUE(table.Push(c, {.step = 1, .micro_batch = c}, kLarge, 1, Range{0, 64}).ok());
    ASSERT_TRUE(table.Push(c, {.step = 1, .micro_batch = c}, 1, 1, Range{64, 64}).ok());
  }
  EXPECT_EQ(table->version(), 1);
  EXPECT_EQ(table.Pull()[0], 0.0f);
  EXPECT_EQ(table.Pull()[64], -1.0f);
  EXPECT_EQ(table->Metrics().updates_skipped, 1);
  EXPECT_EQ(table->Metrics().updates, 0);
}

TEST(PushRulesTest, RowsWhoseSumOverflowsChangeNothing) {
  for (const Consistency consistency : {Consistency::kSynchronous, Consistency::kAsynchronous}) {
    SimpleMemoryAccount account(kPlenty);
    TableSpec spec = Spec(1, consistency);
    spec.shape = SparseShape{.rows = 10, .width = 1};
    const auto table = SparseTable::Create(spec, {}, account).value();
    ASSERT_TRUE(table->Attach(Contributor(0), kNow, kLease).ok());
    const std::vector<int64_t> rows = {3, 4, 3};
    const auto push = [&](Step step, float value) {
      const std::vector<float> values(3, value);
      return table->Push({.from = Contributor(0),
                          .id = {.step = step},
                          .samples = 1,
                          .rows = rows,
                          .values = GradientBytes::OfFloats(values)},
                         kNow);
    };
    std::vector<float> before(3), values(3);
    const SparsePull pull{.rows = rows};
    EXPECT_EQ(push(1, kLarge)->version, 1);
    EXPECT_EQ(table->Metrics().updates_skipped, 1);
    ASSERT_TRUE(table->Pull(pull, absl::MakeSpan(before), kNow).ok());
    EXPECT_EQ(push(2, 1)->version, 2);
    ASSERT_TRUE(table->Pull(pull, absl::MakeSpan(values), kNow).ok());
    EXPECT_THAT(values, ElementsAre(before[0] - 2, before[1] - 1, before[2] - 2));
  }
}

TEST(PushRulesTest, NoInitialValueIsAssignedThatIsNotFinite) {
  DenseFixture table(Spec(1));
  std::vector<float> values(128, 2.0f);
  values[70] = std::nanf("");
  const absl::Status refused =
      table->Assign(Contributor(0), {0, 128}, GradientBytes::OfFloats(values), kNow);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("in element 6 of tensor \"b\""));
  EXPECT_EQ(table.Pull()[0], 0.0f) << "nothing was assigned";

  SimpleMemoryAccount account(kPlenty);
  TableSpec spec = Spec(1);
  spec.shape = SparseShape{.rows = 10, .width = 2};
  const auto sparse = SparseTable::Create(spec, {}, account).value();
  ASSERT_TRUE(sparse->Attach(Contributor(0), kNow, kLease).ok());
  const std::vector<int64_t> rows = {3, 4};
  const std::vector<float> bad = {1, 1, 1, kInfinity};
  EXPECT_THAT(
      std::string(
          sparse->Assign(Contributor(0), rows, GradientBytes::OfFloats(bad), kNow).message()),
      HasSubstr("in column 1 of row 4"));
  EXPECT_EQ(sparse->Metrics().rows, 0);
}

}  // namespace
}  // namespace muster
