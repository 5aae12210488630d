#include "server/parameter_server/core/dense_table.h"

#include "gmock/gmock.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Outcome = PushResult::Outcome;

// "w" of 100 elements and "b" of 3, which begin at 0 and 128; 192 in all. SGD at rate 1.
TableSpec Spec(int32_t contributors = 1, Consistency consistency = Consistency::kSynchronous) {
  return DenseSpecOf({{.name = "w", .shape = {10, 10}}, {.name = "b", .shape = {3}}}, contributors,
                     consistency);
}

class Fixture {
 public:
  explicit Fixture(const TableSpec& spec, const TableLimits& limits = {})
      : table_(DenseTable::Create(spec, limits, account_).value()) {
    for (int32_t c = 0; c < spec.contributors; ++c) {
      EXPECT_TRUE(table_->Attach(Contributor(c), kNow, kLease).ok());
    }
  }
  DenseTable& operator*() { return *table_; }
  DenseTable* operator->() { return table_.get(); }

  absl::StatusOr<PushResult> Push(int32_t from, Step step, float value,
                                  std::optional<Range> part = std::nullopt, int64_t samples = 1) {
    const Range range = part.value_or(table_->range());
    const std::vector<float> values(static_cast<size_t>(std::max<int64_t>(0, range.count)), value);
    return PushValues(from, {.step = step, .micro_batch = from}, range, values, samples);
  }
  absl::StatusOr<PushResult> PushValues(int32_t from, PushId id, Range range,
                                        const std::vector<float>& values, int64_t samples = 1) {
    return table_->Push({.from = Contributor(from),
                         .id = id,
                         .range = range,
                         .samples = samples,
                         .values = GradientBytes::OfFloats(values)},
                        kNow);
  }
  // Pulls, and releases at once.
  DensePullResult Pull(std::optional<int32_t> from, Version min_version) {
    DensePull pull{.range = table_->range(), .min_version = min_version};
    if (from.has_value()) pull.from = Contributor(*from);
    DensePullResult result = table_->Pull(pull, kNow).value();
    if (!result.wait.has_value()) table_->Release(result.pin);
    return result;
  }
  float First() { return PullAll(*table_)[0]; }

 private:
  SimpleMemoryAccount account_{kPlenty};
  std::unique_ptr<DenseTable> table_;
};

TEST(DenseTableTest, AFastWorkersPushDoesNotReachASlowWorkersPull) {
  Fixture table(Spec(2));
  ASSERT_TRUE(table.Push(0, 1, 2).ok());
  EXPECT_EQ(table->version(), 0) << "stable before visible";
  ASSERT_TRUE(table.Push(1, 1, 4).ok());
  EXPECT_EQ(table->version(), 1);
  EXPECT_EQ(table.Pull(0, 1).version, 1);
  // The fast one goes on; the slow one has not pulled yet.
  EXPECT_EQ(table.Push(0, 2, 8)->outcome, Outcome::kAdded);
  const auto beyond = table.Push(0, 3, 8);
  EXPECT_EQ(beyond->outcome, Outcome::kMustWait) << "held in the sender, not here";
  EXPECT_EQ(beyond->wait.value, 2);
  const auto slow =
      table->Pull({.from = Contributor(1), .range = table->range(), .min_version = 1}, kNow);
  EXPECT_EQ(slow->version, 1);
  EXPECT_EQ(slow->pieces[0][0], -3.0f);
  // Both go on while that pull is still being sent.
  ASSERT_TRUE(table.Push(1, 2, 8).ok());
  EXPECT_EQ(table->version(), 2);
  EXPECT_EQ(slow->pieces[0][0], -3.0f);
  EXPECT_GT(table->Metrics().retired_bytes, 0);
  table->Release(slow->pin);
  EXPECT_EQ(table->Metrics().retired_bytes, 0);
  EXPECT_EQ(table.First(), -11.0f);
}

TEST(DenseTableTest, PullsWaitForTheVersionTheyName) {
  Fixture table(Spec());
  const DensePullResult early = table.Pull(0, 2);
  ASSERT_TRUE(early.wait.has_value());
  table->Park(5, *early.wait);
  ASSERT_TRUE(table.Push(0, 1, 1).ok());
  EXPECT_THAT(table->TakeReady(), IsEmpty());
  ASSERT_TRUE(table.Push(0, 2, 1).ok());
  EXPECT_THAT(table->TakeReady(), ElementsAre(5));
  EXPECT_EQ(table.Pull(0, 2).version, 2);
  EXPECT_EQ(table->Metrics().pull_waits, 1);
}

TEST(DenseTableTest, SlowReadersMakeOthersWaitAndNotUpdates) {
  TableLimits limits;
  limits.retired_bytes = 0;
  Fixture table(Spec(), limits);
  const DensePullResult slow = table->Pull({.range = table->range()}, kNow).value();
  EXPECT_FALSE(table.Pull(0, 0).wait.has_value()) << "the current version is shared";
  ASSERT_TRUE(table.Push(0, 1, 1).ok());
  EXPECT_EQ(table->version(), 1);
  const DensePullResult next = table.Pull(0, 1);
  ASSERT_TRUE(next.wait.has_value());
  EXPECT_EQ(next.wait->what, Wait::For::kProgress);
  table->Park(1, *next.wait);
  EXPECT_THAT(table->TakeReady(), IsEmpty());
  table->Release(slow.pin);
  EXPECT_THAT(table->TakeReady(), ElementsAre(1));
  EXPECT_FALSE(table.Pull(0, 1).wait.has_value());
}

TEST(DenseTableTest, NamesWhatWasExpectedAndWhatCame) {
  Fixture table(Spec());
  const auto error = [](const absl::StatusOr<PushResult>& result) {
    return std::string(result.status().message());
  };
  EXPECT_EQ(error(table.Push(0, 0, 1)),
            "table \"t\": expected a step from 1 on, a micro-batch of 0 to 0 and 0 to "
            "1099511627776 samples, got step 0, micro-batch 0, 1 samples");
  EXPECT_FALSE(table.PushValues(0, {.step = 1, .micro_batch = 1}, {0, 1}, {1}).ok());
  EXPECT_FALSE(table.PushValues(0, {.step = 1}, {0, 1}, {1}, -1).ok());
  EXPECT_EQ(error(table.Push(0, 1, 1, Range{100, 93})),
            "table \"t\": expected elements of [0, 192), which this server has of 192, got 93 from "
            "100 on; ask the server that owns them");
  EXPECT_EQ(table.Push(0, 1, 1, Range{-1, 3}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(table.Push(0, 1, 1, Range{5, 0}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(error(table.PushValues(0, {.step = 1}, {4, 3}, {1, 2})),
            "table \"t\": expected 3 values (elements 4 to 6), got 2 of f32");
  std::vector<float> values(192, 1.0f);
  values[129] = std::nanf("");
  EXPECT_THAT(error(table.PushValues(0, {.step = 1}, {0, 192}, values)),
              HasSubstr("got a NaN or an infinity in element 1 of tensor \"b\""));
  values[129] = 1;
  values[110] = std::nanf("");  // padding
  EXPECT_EQ(table.PushValues(0, {.step = 1}, {0, 192}, values)->outcome, Outcome::kAdded);
  EXPECT_EQ(table->version(), 1);
  EXPECT_EQ(table.Push(0, 1, 1)->outcome, Outcome::kDuplicate);
  EXPECT_EQ(table->Metrics().pushes_refused, 8);
  EXPECT_EQ(table->Metrics().pushes_duplicate, 1);
  EXPECT_EQ(table->Pull({.range = {0, 193}}, kNow).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(DenseTableTest, RefusesWhoIsNotAttached) {
  Fixture table(Spec(2));
  ASSERT_TRUE(table->Attach(Contributor(0, 2), kNow, kLease).ok());
  EXPECT_EQ(table.Push(0, 1, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(table->Metrics().pushes_fenced, 1);
  EXPECT_FALSE(table->Pull({.from = Contributor(0), .range = {0, 1}}, kNow).ok());
  EXPECT_FALSE(table->Heartbeat(Contributor(0), kNow).ok());
  EXPECT_TRUE(table->Heartbeat(Contributor(0, 2), kNow + kLease / 2).ok());
  EXPECT_THAT(table->Expire(kNow + kLease), ElementsAre(1));
  EXPECT_EQ(table.Push(1, 1, 1).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(DenseTableTest, ChunksOfAMicroBatchAgreeInTheirSamples) {
  for (const Consistency consistency : {Consistency::kSynchronous, Consistency::kAsynchronous}) {
    Fixture table(Spec(1, consistency));
    ASSERT_TRUE(table.Push(0, 1, 6, Range{0, 64}, 3).ok());
    EXPECT_EQ(table.Push(0, 1, 6, Range{64, 128}, 2).status().code(),
              absl::StatusCode::kInvalidArgument);
    ASSERT_TRUE(table.Push(0, 1, 6, Range{64, 128}, 3).ok());
    EXPECT_EQ(table.First(), -2.0f);
    ASSERT_TRUE(table.Push(0, 2, 6, std::nullopt, 0).ok());
    EXPECT_EQ(table.First(), -8.0f) << "no samples, no division";
  }
}

TEST(DenseTableTest, SkipsAStepThatIsNotFiniteAsAWhole) {
  TableSpec spec = Spec(2);
  spec.nonfinite = NonfinitePolicy::kSkip;
  Fixture table(spec);
  ASSERT_TRUE(table.Push(0, 1, 1).ok());
  ASSERT_TRUE(table.Push(1, 1, std::nanf("")).ok());
  EXPECT_EQ(table->version(), 1) << "the step is done";
  EXPECT_EQ(table.First(), 0.0f);
  EXPECT_EQ(table->Metrics().updates_skipped, 1);
  EXPECT_EQ(table->Header().update_count, 0);
}

TEST(DenseTableTest, OneEarlyPushFitsAndMoreWait) {
  TableLimits limits;
  limits.held_bytes = 1;
  Fixture table(Spec(3), limits);
  // The first bucket slice begins with contributor 1, so 0 and 2 are early there.
  EXPECT_EQ(table.Push(0, 1, 1, Range{0, 64})->outcome, Outcome::kAdded);
  const auto second = table.Push(2, 1, 1, Range{0, 64});
  ASSERT_EQ(second->outcome, Outcome::kMustWait);
  EXPECT_EQ(second->wait.what, Wait::For::kProgress);
  table->Park(2, second->wait);
  EXPECT_EQ(table.Push(1, 1, 1, Range{0, 64})->outcome, Outcome::kAdded)
      << "in order, so no memory";
  EXPECT_THAT(table->TakeReady(), ElementsAre(2));
  EXPECT_EQ(table.Push(2, 1, 1, Range{0, 64})->outcome, Outcome::kAdded);
  EXPECT_EQ(table->Metrics().push_waits, 1);
}

TEST(DenseTableTest, InitialValuesAreDrawnOrAssignedBeforeUse) {
  TableSpec spec = Spec();
  std::get<DenseShape>(spec.shape).tensors[0].initializer = Initializer::kNormal;
  std::get<DenseShape>(spec.shape).tensors[0].scale = 1;
  spec.seed = 4;
  TableLimits limits;
  limits.segment_elements = 50;
  Fixture table(spec, limits);
  std::vector<float> expected(192);
  InitializeParameters(table->layout(), 4, absl::MakeSpan(expected));
  ASSERT_TRUE(SameFloats(PullAll(*table), expected));
  EXPECT_EQ(table->Assign(Contributor(0), {0, 2}, Encode({{1.0f, 2.0f}}, DType::kF32).view(), kNow)
                .code(),
            absl::StatusCode::kFailedPrecondition);
  Fixture other(spec, limits);
  const std::vector<float> values(160, 5.0f);
  ASSERT_TRUE(other->Assign(Contributor(0), {30, 160}, GradientBytes::OfFloats(values), kNow).ok());
  for (int64_t i = 30; i < 190; ++i) expected[i] = i < 100 || (i >= 128 && i < 131) ? 5.0f : 0.0f;
  ASSERT_TRUE(SameFloats(PullAll(*other), expected)) << "padding stays zero";
}

TEST(DenseTableTest, AFrozenPartIsOfEveryVersion) {
  TableSpec spec = Spec();
  auto& shape = std::get<DenseShape>(spec.shape);
  shape.tensors[0].frozen = true;
  shape.range = Range{0, 128};
  Fixture table(spec);
  EXPECT_EQ(table.Push(0, 1, 1)->outcome, Outcome::kDuplicate) << "nothing is needed";
  EXPECT_EQ(table.Pull(0, 7).version, 7);
}

TEST(DenseTableTest, BoundedStalenessHoldsTheFastBackAndJoinersStartAtTheSlowest) {
  TableSpec spec = Spec(3, Consistency::kBoundedStaleness);
  spec.staleness = 1;
  Fixture table(spec);
  table->Detach(Contributor(2));
  ASSERT_EQ(table.Push(0, 1, 1)->outcome, Outcome::kAdded);
  ASSERT_EQ(table.Push(0, 2, 1)->outcome, Outcome::kAdded);
  const auto ahead = table.Push(0, 3, 1);
  ASSERT_EQ(ahead->outcome, Outcome::kMustWait);
  EXPECT_EQ(ahead->wait.what, Wait::For::kSlowest);
  EXPECT_TRUE(table.Pull(0, 0).wait.has_value());
  EXPECT_FALSE(table.Pull(std::nullopt, 0).wait.has_value()) << "a reader";
  table->Park(9, ahead->wait);
  ASSERT_EQ(table.Push(1, 1, 1)->outcome, Outcome::kAdded);
  EXPECT_THAT(table->TakeReady(), ElementsAre(9));
  ASSERT_EQ(table.Push(0, 3, 1)->outcome, Outcome::kAdded);
  // Who joins late does not hold all others up.
  const AttachResult joined = table->Attach(Contributor(2, 2), kNow, kLease).value();
  ASSERT_EQ(joined.next.size(), 1u);
  EXPECT_EQ(joined.next[0].step, 2);
  // Who is gone does not, either.
  const auto again = table.Push(0, 4, 1);
  ASSERT_EQ(again->outcome, Outcome::kMustWait);
  table->Park(9, again->wait);
  ASSERT_TRUE(table->Remove(1).ok());
  EXPECT_THAT(table->TakeReady(), IsEmpty());
  table->Detach(Contributor(2, 2));
  EXPECT_THAT(table->TakeReady(), ElementsAre(9));
  EXPECT_EQ(table->version(), 4);
}

TEST(DenseTableTest, CountsTheStalenessOfPushes) {
  Fixture table(Spec(2, Consistency::kAsynchronous));
  EXPECT_EQ(table.Pull(0, 0).version, 0);
  ASSERT_TRUE(table.Push(0, 1, 1).ok());
  ASSERT_TRUE(table.Push(0, 2, 1).ok());
  ASSERT_TRUE(table.Push(0, 3, 1).ok());
  EXPECT_EQ(table.Pull(1, 0).version, 3);
  ASSERT_TRUE(table.Push(1, 1, 1).ok());
  const StalenessHistogram staleness = table->Metrics().staleness;
  EXPECT_EQ(staleness.count, 4);
  EXPECT_EQ(staleness.sum, 0 + 1 + 2 + 0);
  EXPECT_EQ(staleness.largest, 2);
  EXPECT_THAT(staleness.counts, ElementsAre(2, 1, 1, 0, 0, 0, 0, 0, 0, 0));
}

TEST(DenseTableTest, RefusesASnapshotThatIsNotOne) {
  Fixture table(Spec());
  ASSERT_TRUE(table.Push(0, 1, 1).ok());
  const TableSnapshot good = table->Snapshot();
  EXPECT_EQ(table->Restore(good).code(), absl::StatusCode::kFailedPrecondition) << "in use";
  const auto restored = [](const TableSnapshot& snapshot) {
    Fixture fresh(Spec());
    return fresh->Restore(snapshot);
  };
  EXPECT_TRUE(restored(good).ok());
  TableSnapshot bad = good;
  bad.header.spec.seed = 9;
  EXPECT_EQ(restored(bad).message(),
            "table \"t\" and the snapshot are of different specs: seed is 0, and not 9");
  bad = good;
  bad.header.update_count = 2;
  EXPECT_EQ(restored(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.header.applied_steps = {1};
  EXPECT_EQ(restored(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.header.array_elements = 191;
  EXPECT_EQ(restored(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.arrays[0].pop_back();
  EXPECT_EQ(restored(bad).code(), absl::StatusCode::kInvalidArgument);
  bad = good;
  bad.arrays.push_back(bad.arrays[0]);
  EXPECT_EQ(restored(bad).code(), absl::StatusCode::kInvalidArgument);
}

TEST(DenseTableTest, ABudgetThatDoesNotSufficeIsNamedWithNumbers) {
  SimpleMemoryAccount account(1000);
  const absl::Status status = DenseTable::Create(Spec(), {}, account).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "table \"t\": its 192 elements need 1536 bytes for parameters, optimizer state and "
            "sums; the server has 0 of its 1000 bytes in use: drop a table, raise the budget, or "
            "use more servers");
  EXPECT_EQ(account.taken_bytes(), 0);
  SimpleMemoryAccount enough(1536);
  EXPECT_TRUE(DenseTable::Create(Spec(), {}, enough).ok());
  TableSpec several = Spec(2);
  several.micro_batches = 4;
  SimpleMemoryAccount partial(1536);
  EXPECT_THAT(std::string(DenseTable::Create(several, {}, partial).status().message()),
              HasSubstr("partial sums of contributors"));
}

}  // namespace
}  // namespace muster
