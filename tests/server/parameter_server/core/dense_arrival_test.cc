// Dense tables that apply pushes on arrival, under contributors who run at their own pace, repeat
// themselves, are replaced, and lose the server: each push counts once, in the order of arrival,
// and with bounded staleness nobody runs too far ahead.
#include <limits>
#include <map>

#include "server/parameter_server/core/dense_table.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

constexpr Step kSteps = 5;
constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TableSpec RandomSpec(std::mt19937& random, uint32_t seed) {
  TableSpec spec;
  spec.name = "model";
  DenseShape shape;
  const Layout random_layout = RandomLayout(seed);
  for (const Tensor& tensor : random_layout.tensors()) {
    shape.tensors.push_back(tensor.spec);
    shape.tensors.back().frozen = Draw(random, 0, 6) == 0;
  }
  shape.tensors[0].frozen = false;
  spec.shape = shape;
  const std::vector<UpdateRuleOptions> rules = AllRules();
  spec.rule = rules[Draw(random, 0, static_cast<int64_t>(rules.size()) - 1)];
  spec.learning_rate = {.peak = 0.1, .total_steps = kSteps};
  spec.contributors = static_cast<int32_t>(Draw(random, 1, 4));
  spec.micro_batches = static_cast<int32_t>(Draw(random, 1, 2 * spec.contributors));
  spec.consistency =
      Draw(random, 0, 1) == 0 ? Consistency::kAsynchronous : Consistency::kBoundedStaleness;
  if (spec.consistency == Consistency::kBoundedStaleness) spec.staleness = Draw(random, 0, 2);
  spec.clip_norm = Draw(random, 0, 1) * 0.01;
  spec.nonfinite = Draw(random, 0, 1) == 0 ? NonfinitePolicy::kRefuse : NonfinitePolicy::kSkip;
  if (!std::holds_alternative<LambOptions>(spec.rule) && Draw(random, 0, 1) == 0) {
    const Layout layout = LayoutOf(spec).value();
    const int64_t offset = Draw(random, 0, layout.padded_count() - 1);
    shape.range = Range{offset, Draw(random, 1, layout.padded_count() - offset)};
    spec.shape = shape;
  }
  return spec;
}

class World {
 public:
  explicit World(uint32_t seed)
      : random_(seed), seed_(seed), spec_(RandomSpec(random_, seed)), oracle_(spec_) {
    limits_.segment_elements = Draw(random_, 50, 3000);
    limits_.idle_bytes = Draw(random_, 0, 1) * 50'000;
    if (Draw(random_, 0, 1) == 0) limits_.held_bytes = 1;
    table_ = DenseTable::Create(spec_, limits_, account_).value();
    applied_.assign(static_cast<size_t>(spec_.micro_batches), 0);
    workers_.resize(static_cast<size_t>(spec_.contributors));
    for (int32_t c = 0; c < spec_.contributors; ++c) Attach(c);
  }
  ~World() {
    table_.reset();
    EXPECT_EQ(account_.taken_bytes(), 0);
  }

  bool Advance() {
    std::vector<int32_t> able;
    bool over = true;
    for (int32_t c = 0; c < spec_.contributors; ++c) {
      if (StepOf(c) >= kSteps) continue;
      over = false;
      if (!workers_[c].waits) able.push_back(c);
    }
    if (over) return false;
    EXPECT_FALSE(able.empty()) << "everybody waits";
    if (able.empty()) return false;
    // Some are faster than others.
    const int32_t c = able[std::min(Draw(random_, 0, static_cast<int64_t>(able.size()) - 1),
                                    Draw(random_, 0, static_cast<int64_t>(able.size()) - 1))];
    const int64_t draw = Draw(random_, 0, 99);
    if (draw < 10) {
      Repeat(c);
    } else if (draw < 13) {
      table_->Unpark(static_cast<Ticket>(c));
      Attach(c);
    } else if (draw < 15) {
      Restart();
    } else if (draw < 30) {
      Pull(c);
    } else {
      PushNext(c);
    }
    for (const Ticket ticket : table_->TakeReady()) workers_[ticket].waits = false;
    Check();
    return true;
  }

 private:
  struct Worker {
    uint64_t start = 0;
    bool waits = false;
    int32_t micro_batch = 0;
    Step step = 0;  // of the push under way; 0: none
    std::vector<Range> chunks;
    size_t next = 0;
    IntervalSet sent;
  };

  template <typename Visit>
  void ForEachTrained(const Visit& visit) const {
    for (const Tensor& tensor : oracle_.layout().tensors()) {
      if (tensor.spec.frozen) continue;
      const int64_t begin = std::max(tensor.offset, table_->range().offset);
      const int64_t end = std::min(tensor.offset + tensor.count, table_->range().end());
      if (begin < end) visit(Range{begin, end - begin});
    }
  }

  Step StepOf(int32_t c) const {
    const auto [first, last] = ShareByDefinition(c, spec_.contributors, spec_.micro_batches);
    Step step = std::numeric_limits<Step>::max();
    for (int32_t m = first; m < last; ++m) step = std::min(step, applied_[m]);
    return step;
  }
  Step Slowest() const {
    Step step = std::numeric_limits<Step>::max();
    for (int32_t c = 0; c < spec_.contributors; ++c) step = std::min(step, StepOf(c));
    return step;
  }

  void Attach(int32_t c) {
    Worker& worker = workers_[c];
    ++worker.start;
    worker.waits = false;
    worker.step = 0;
    const AttachResult result = table_->Attach(Contributor(c, worker.start), kNow, kLease).value();
    for (const AttachResult::Next& next : result.next) {
      // All others are attached, so nobody is behind the slowest.
      ASSERT_EQ(next.step, applied_[next.micro_batch] + 1);
    }
  }

  std::vector<float> Gradient(Step step, int32_t m, DType dtype) const {
    std::vector<float> gradient =
        GradientOf(oracle_.layout().padded_count(), seed_, step, m, dtype);
    if (spec_.nonfinite == NonfinitePolicy::kSkip && (step + m) % 4 == 0) {
      ForEachTrained([&](Range range) { gradient[range.offset] = std::nanf(""); });
    }
    return gradient;
  }
  static DType DTypeOf(Step step, int32_t m) { return kDTypes[(step + m) % 3]; }

  absl::StatusOr<PushResult> Push(int32_t c, Step step, int32_t m, Range range) {
    // Each is drawn once.
    Payload& whole = payloads_[{step, m}];
    if (whole.bytes.empty()) {
      whole = Encode(Gradient(step, m, DTypeOf(step, m)), DTypeOf(step, m));
    }
    const size_t size = SizeOf(whole.dtype);
    Payload payload{.dtype = whole.dtype};
    payload.bytes.assign(whole.bytes.begin() + range.offset * size,
                         whole.bytes.begin() + range.end() * size);
    return table_->Push({.from = Contributor(c, workers_[c].start),
                         .id = {.step = step, .micro_batch = m},
                         .range = range,
                         .samples = m + 1,
                         .values = payload.view()},
                        kNow);
  }

  void PushNext(int32_t c) {
    Worker& worker = workers_[c];
    if (worker.step == 0) {
      // The micro-batch that is the furthest behind.
      const auto [first, last] = ShareByDefinition(c, spec_.contributors, spec_.micro_batches);
      worker.micro_batch = first;
      for (int32_t m = first; m < last; ++m) {
        if (applied_[m] < applied_[worker.micro_batch]) worker.micro_batch = m;
      }
      worker.step = applied_[worker.micro_batch] + 1;
      worker.chunks = {table_->range()};
      if (Draw(random_, 0, 2) > 0) {
        worker.chunks = RandomChunks(table_->range(), Draw(random_, 20, 4000), random_);
        std::shuffle(worker.chunks.begin(), worker.chunks.end(), random_);
      }
      worker.next = 0;
      worker.sent = {};
    }
    const Range chunk = worker.chunks[worker.next];
    const Version version = table_->version();
    const auto result = Push(c, worker.step, worker.micro_batch, chunk);
    ASSERT_TRUE(result.ok()) << result.status();
    const bool bounded = spec_.consistency == Consistency::kBoundedStaleness;
    const bool ahead = bounded && worker.step - 1 - Slowest() > spec_.staleness;
    if (result->outcome == PushResult::Outcome::kMustWait) {
      worker.waits = true;
      table_->Park(static_cast<Ticket>(c), result->wait);
      ASSERT_EQ(ahead, result->wait.what == Wait::For::kSlowest);
      return;
    }
    ASSERT_FALSE(ahead) << "it ran ahead too far";
    ASSERT_EQ(result->outcome, PushResult::Outcome::kAdded);
    ++worker.next;
    worker.sent.Add(chunk);
    bool complete = true;
    ForEachTrained([&](Range range) { complete &= worker.sent.Contains(range); });
    ASSERT_EQ(table_->version(), version + (complete ? 1 : 0));
    if (!complete) return;
    oracle_.Apply(
        worker.step,
        Gradient(worker.step, worker.micro_batch, DTypeOf(worker.step, worker.micro_batch)),
        worker.micro_batch + 1, table_->range());
    applied_[worker.micro_batch] = worker.step;
    worker.step = 0;
    const std::vector<float> expected = PartOf(oracle_.parameters(), table_->range());
    const std::vector<float> got = PullAll(*table_);
    ASSERT_TRUE(SameFloats(got, expected)) << Difference(got, expected);
  }

  void Pull(int32_t c) {
    const Step ahead = StepOf(c) - Slowest();
    const DensePullResult result =
        table_->Pull({.from = Contributor(c, workers_[c].start), .range = table_->range()}, kNow)
            .value();
    const bool waits = spec_.consistency == Consistency::kBoundedStaleness && StepOf(c) <= kSteps &&
                       ahead > spec_.staleness;
    ASSERT_EQ(result.wait.has_value(), waits);
    if (waits) return;
    ASSERT_EQ(result.version, table_->version());
    table_->Release(result.pin);
  }

  void Repeat(int32_t c) {
    const auto [first, last] = ShareByDefinition(c, spec_.contributors, spec_.micro_batches);
    if (first == last) return;
    const auto m = static_cast<int32_t>(Draw(random_, first, last - 1));
    if (applied_[m] > 0) {
      const Step step = Draw(random_, 1, applied_[m]);
      const auto result = Push(c, step, m, table_->range());
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->outcome, PushResult::Outcome::kDuplicate);
    }
    ASSERT_EQ(Push(c, applied_[m] + 2, m, table_->range()).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }

  void Restart() {
    const TableSnapshot snapshot = table_->Snapshot();
    table_.reset();
    ASSERT_EQ(account_.taken_bytes(), 0);
    table_ = DenseTable::Create(spec_, limits_, account_).value();
    ASSERT_TRUE(table_->Restore(snapshot).ok());
    // As each attaches, those who are not yet do not count: all, then.
    for (int32_t c = 0; c < spec_.contributors; ++c) {
      Worker& worker = workers_[c];
      ++worker.start;
      worker.waits = false;
      worker.step = 0;
      const AttachResult result =
          table_->Attach(Contributor(c, worker.start), kNow, kLease).value();
      for (const AttachResult::Next& next : result.next) {
        ASSERT_GE(next.step, applied_[next.micro_batch] + 1);
        applied_[next.micro_batch] = next.step - 1;
      }
    }
  }

  void Check() {
    ASSERT_GE(table_->version(), version_);
    version_ = table_->version();
    const TableMetrics metrics = table_->Metrics();
    ASSERT_EQ(account_.taken_bytes(), metrics.table_bytes + metrics.held_bytes +
                                          metrics.retired_bytes + metrics.idle_bytes);
    if (limits_.held_bytes == 1) {
      ASSERT_LE(metrics.held_bytes, BufferPool::BytesFor(table_->range().count));
    }
  }

  std::mt19937 random_;
  const uint32_t seed_;
  const TableSpec spec_;
  DenseOracle oracle_;
  TableLimits limits_;
  SimpleMemoryAccount account_{kPlenty};
  std::unique_ptr<DenseTable> table_;
  std::vector<Step> applied_;  // by micro-batch
  std::map<std::pair<Step, int32_t>, Payload> payloads_;
  std::vector<Worker> workers_;
  Version version_ = 0;
};

class DenseArrivalTest : public testing::TestWithParam<int> {};

TEST_P(DenseArrivalTest, EachPushCountsOnceInTheOrderOfArrival) {
  constexpr uint32_t kSeeds = 20;
  for (uint32_t i = 0; i < kSeeds; ++i) {
    const uint32_t seed = static_cast<uint32_t>(GetParam()) * kSeeds + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    World world(seed);
    int events = 0;
    while (world.Advance() && !testing::Test::HasFatalFailure()) {
      ASSERT_LT(++events, 200'000) << "it does not end";
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DenseArrivalTest, testing::Range(0, 3));

}  // namespace
}  // namespace muster
