// Tables under calls that make no sense: anybody, any step, any range, in any order. Whatever
// comes, versions only rise, no step counts twice, what is pinned stays, refused calls change
// nothing, and memory is accounted to the byte.
#include <limits>
#include <map>

#include "server/parameter_server/core/table_directory.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

class Fuzzer {
 public:
  explicit Fuzzer(uint32_t seed) : random_(seed), directory_({.limits = Limits()}, account_) {
    TableSpec spec;
    spec.name = "t";
    spec.contributors = static_cast<int32_t>(Int(1, 3));
    spec.micro_batches = static_cast<int32_t>(Int(1, 5));
    constexpr Consistency kAll[] = {Consistency::kSynchronous, Consistency::kBoundedStaleness,
                                    Consistency::kAsynchronous};
    spec.consistency = kAll[Int(0, 2)];
    if (spec.consistency == Consistency::kBoundedStaleness) spec.staleness = Int(0, 2);
    spec.rule = AdamWOptions{};
    if (Int(0, 2) == 0) {
      spec.shape = SparseShape{.rows = 20, .width = 3};
    } else {
      spec.shape = DenseShape{
          .tensors = {{.name = "w", .shape = {Int(1, 300)}}, {.name = "b", .shape = {Int(1, 20)}}},
          .bucket_elements = 64};
      if (spec.consistency == Consistency::kSynchronous && Int(0, 1) == 0) {
        spec.visibility = Visibility::kSegments;
      }
    }
    if (spec.visibility == Visibility::kWholeSteps) {
      spec.clip_norm = static_cast<double>(Int(0, 1));
      spec.nonfinite = Int(0, 1) == 0 ? NonfinitePolicy::kRefuse : NonfinitePolicy::kSkip;
    }
    table_ = directory_.Open(spec)->table;
    spec_ = table_.get().spec();
  }
  ~Fuzzer() {
    table_ = {};
    EXPECT_TRUE(directory_.Drop("t").ok());
    EXPECT_EQ(account_.taken_bytes(), 0);
  }

  void Event() {
    Table& table = table_.get();
    const auto applied = table.Header().applied_steps;
    const int64_t updates = table.Metrics().updates + table.Metrics().updates_skipped;
    const Version version = table.version();
    switch (Int(0, 15)) {
      case 0:
        (void)table.Attach(Anybody(), now_, absl::Seconds(Int(-1, 5)));
        break;
      case 1:
        table.Detach(Anybody());
        break;
      case 2:
        if (Int(0, 9) == 0) (void)table.Remove(static_cast<int32_t>(Int(-1, 4)));
        break;
      case 3:
        now_ += absl::Milliseconds(Int(0, 400));
        for (const int32_t gone : table.Expire(now_)) {
          ASSERT_FALSE(table.contributors().attached(gone));
        }
        ASSERT_GT(table.NextExpiry(), now_);
        break;
      case 4:
      case 5:
        Pull();
        break;
      case 6:
        ReleaseOne();
        break;
      case 7:
        if (Int(0, 19) == 0) Restart();
        break;
      default:
        Push();
    }
    for (const Ticket ticket : table_.get().TakeReady()) ASSERT_LT(ticket, next_ticket_);
    Check(version, updates, applied);
  }

  Version version() { return table_.get().version(); }

 private:
  int64_t Int(int64_t low, int64_t high) { return Draw(random_, low, high); }
  TableLimits Limits() {
    return {.held_bytes = Int(0, 1) * 100'000,
            .retired_bytes = Int(0, 1) * 100'000,
            .idle_bytes = Int(0, 1) * 100'000,
            .segment_elements = Int(1, 200)};
  }
  ContributorId Anybody() {
    if (Int(0, 9) == 0)
      return {static_cast<int32_t>(Int(-2, 5)), {static_cast<uint64_t>(Int(0, 3))}};
    // Often the one who is there.
    const auto index = static_cast<int32_t>(Int(0, spec_.contributors - 1));
    const Incarnation there = table_.get().contributors().incarnation(index);
    if (there && Int(0, 9) > 0) return {index, there};
    return {index, {static_cast<uint64_t>(Int(1, 1000))}};
  }
  // Often the one whose micro-batch it is.
  ContributorId PusherOf(int32_t micro_batch) {
    if (micro_batch < 0 || micro_batch >= spec_.micro_batches || Int(0, 9) == 0) return Anybody();
    const Contributions cut(spec_.contributors, spec_.micro_batches);
    const int32_t index = cut.ContributorOf(micro_batch);
    return {index, table_.get().contributors().incarnation(index)};
  }
  Range AnyRange(Range within) {
    if (Int(0, 9) == 0) return {Int(-3, 500), Int(-3, 500)};
    if (Int(0, 1) == 0) return within;
    const int64_t begin = Int(within.offset, within.end() - 1);
    return {begin, Int(1, within.end() - begin)};
  }
  Payload AnyValues(int64_t count) {
    std::vector<float> values(static_cast<size_t>(std::max<int64_t>(0, count)));
    for (float& value : values) value = static_cast<float>(Int(-4, 4));
    if (!values.empty() && Int(0, 30) == 0) values[0] = std::numeric_limits<float>::infinity();
    return Encode(values, kDTypes[Int(0, 2)]);
  }

  void Push() {
    const bool odd = Int(0, 9) == 0;
    // Mostly what comes next, so that something happens.
    const auto m = static_cast<int32_t>(odd ? Int(-1, 6) : Int(0, spec_.micro_batches - 1));
    muster::Step next = version() + 1;
    const auto applied = table_.get().Header().applied_steps;
    if (!applied.empty() && m >= 0 && m < spec_.micro_batches) next = applied[m] + 1;
    const PushId id = {.step = odd ? Int(-1, 9) : next, .micro_batch = m};
    const int64_t samples = odd ? Int(-1, 2) : 1;
    const ContributorId from = PusherOf(m);
    const int64_t wrong = odd ? Int(-1, 1) : 0;
    absl::StatusOr<PushResult> result;
    const TableMetrics before = table_.get().Metrics();
    if (table_.dense != nullptr) {
      const Range range = AnyRange(table_.dense->range());
      const Payload payload = AnyValues(range.count + wrong);
      result = table_.dense->Push(
          {.from = from, .id = id, .range = range, .samples = samples, .values = payload.view()},
          now_);
    } else {
      std::vector<int64_t> rows;
      for (int64_t i = Int(0, 6); i > 0; --i) rows.push_back(odd ? Int(-1, 20) : Int(0, 19));
      const Payload payload = AnyValues(static_cast<int64_t>(rows.size()) * 3 + wrong);
      result = table_.sparse->Push({.from = from,
                                    .id = id,
                                    .chunk = static_cast<int32_t>(odd ? Int(-1, 3) : Int(0, 1)),
                                    .chunk_count = static_cast<int32_t>(odd ? Int(-1, 3) : 2),
                                    .samples = samples,
                                    .rows = rows,
                                    .values = payload.view()},
                                   now_);
    }
    if (!result.ok()) {
      const TableMetrics after = table_.get().Metrics();
      ASSERT_FALSE(result.status().message().empty());
      ASSERT_EQ(after.pushes_refused, before.pushes_refused + 1);
      ASSERT_EQ(after.held_bytes, before.held_bytes);
      ASSERT_EQ(after.updates, before.updates);
    } else if (result->outcome == PushResult::Outcome::kMustWait) {
      table_.get().Park(next_ticket_++, result->wait);
    }
  }

  void Pull() {
    std::optional<ContributorId> from;
    if (Int(0, 1) == 0) from = Anybody();
    const Version min_version = Int(0, 3) == 0 ? version() + Int(-1, 2) : 0;
    if (table_.dense == nullptr) {
      const std::vector<int64_t> rows = {Int(-1, 20), 5};
      std::vector<float> values(6);
      (void)table_.sparse->Pull({.from = from, .rows = rows, .min_version = min_version},
                                absl::MakeSpan(values), now_);
      return;
    }
    auto result = table_.dense->Pull(
        {.from = from, .range = AnyRange(table_.dense->range()), .min_version = min_version}, now_);
    if (!result.ok()) return;
    if (result->wait.has_value()) {
      table_.get().Park(next_ticket_++, *result->wait);
      return;
    }
    ASSERT_GE(result->version, min_version);
    pins_.push_back({*result, Values(*result)});
  }

  void ReleaseOne() {
    if (pins_.empty()) return;
    std::swap(pins_[Int(0, static_cast<int64_t>(pins_.size()) - 1)], pins_.back());
    ASSERT_TRUE(SameFloats(Values(pins_.back().first), pins_.back().second)) << "it was pinned";
    table_.dense->Release(pins_.back().first.pin);
    pins_.pop_back();
  }

  void Restart() {
    while (!pins_.empty()) ReleaseOne();
    const TableSnapshot snapshot = table_.get().Snapshot();
    table_ = {};
    ASSERT_TRUE(directory_.Drop("t").ok());
    table_ = directory_.Open(spec_)->table;
    ASSERT_TRUE(table_.get().Restore(snapshot).ok());
    const TableSnapshot again = table_.get().Snapshot();
    ASSERT_EQ(again.header.version, snapshot.header.version);
    ASSERT_EQ(again.header.rows, snapshot.header.rows);
    ASSERT_EQ(again.header.applied_steps, snapshot.header.applied_steps);
    ASSERT_EQ(again.header.segment_versions, snapshot.header.segment_versions);
    for (size_t i = 0; i < snapshot.arrays.size(); ++i) {
      ASSERT_TRUE(SameFloats(again.arrays[i], snapshot.arrays[i]));
    }
    restarted_ = true;
  }

  void Check(Version version, int64_t updates, const std::vector<muster::Step>& applied) {
    const Table& table = table_.get();
    const TableMetrics metrics = table.Metrics();
    ASSERT_EQ(metrics.table_bytes + metrics.held_bytes + metrics.retired_bytes + metrics.idle_bytes,
              account_.taken_bytes());
    ASSERT_EQ(metrics.pins, static_cast<int64_t>(pins_.size()));
    ASSERT_GE(table.version(), version);
    if (!std::exchange(restarted_, false)) {
      // Each version is one update, or one that was skipped.
      ASSERT_EQ(metrics.updates + metrics.updates_skipped - updates, table.version() - version);
    }
    const auto now_applied = table.Header().applied_steps;
    for (size_t i = 0; i < applied.size(); ++i) ASSERT_GE(now_applied[i], applied[i]);
  }

  std::mt19937 random_;
  SimpleMemoryAccount account_{kPlenty};
  TableDirectory directory_;
  TableSpec spec_;
  AnyTable table_;
  absl::Time now_ = kNow;
  Ticket next_ticket_ = 1;
  bool restarted_ = false;
  std::vector<std::pair<DensePullResult, std::vector<float>>> pins_;
};

TEST(TableFuzzTest, NothingBreaksATable) {
  int64_t versions = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Fuzzer fuzzer(seed);
    for (int i = 0; i < 600; ++i) {
      fuzzer.Event();
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    versions += fuzzer.version();
  }
  EXPECT_GT(versions, 1000) << "else it tests only refusals";
}

}  // namespace
}  // namespace muster
