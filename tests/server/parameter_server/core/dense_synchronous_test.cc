// Synchronous dense tables under contributors who come in any order, repeat themselves, are
// replaced, and lose the server: what anyone pulls has the bits of the definition, and every step
// counts once.
#include <limits>
#include <map>
#include <set>

#include "server/parameter_server/core/dense_table.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

constexpr Step kSteps = 4;
constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TableSpec RandomSpec(std::mt19937& random, uint32_t seed) {
  TableSpec spec;
  spec.name = "model";
  DenseShape shape;
  const Layout random_layout = RandomLayout(seed);
  for (const Tensor& tensor : random_layout.tensors()) {
    TensorSpec& t = shape.tensors.emplace_back(tensor.spec);
    t.initializer = Initializer::kNormal;
    t.scale = 0.5f;
    t.frozen = Draw(random, 0, 6) == 0;
    t.decay = Draw(random, 0, 1) == 0;
  }
  shape.tensors[0].frozen = false;
  shape.bucket_elements = Draw(random, 64, 3000);
  spec.seed = seed;
  const std::vector<UpdateRuleOptions> rules = AllRules();
  spec.rule = rules[Draw(random, 0, static_cast<int64_t>(rules.size()) - 1)];
  spec.learning_rate = {.schedule = LearningRateSchedule::kCosine,
                        .peak = 0.1,
                        .warmup_steps = 1,
                        .total_steps = kSteps + 2};
  constexpr int32_t kContributors[] = {1, 2, 3, 5};
  spec.contributors = kContributors[Draw(random, 0, 3)];
  spec.micro_batches = static_cast<int32_t>(
      Draw(random, 0, 1) == 0 ? spec.contributors : Draw(random, 1, 2 * spec.contributors + 1));
  spec.clip_norm = Draw(random, 0, 1) * 0.01;
  spec.nonfinite = Draw(random, 0, 1) == 0 ? NonfinitePolicy::kRefuse : NonfinitePolicy::kSkip;
  const bool lamb = std::holds_alternative<LambOptions>(spec.rule);
  if (Draw(random, 0, 2) == 0 && !lamb) {
    spec.clip_norm = 0;
    spec.nonfinite = NonfinitePolicy::kRefuse;
    spec.visibility = Visibility::kSegments;
  } else if (Draw(random, 0, 2) == 0) {
    spec.commit = CommitMode::kExternal;
  }
  const bool needs_all = lamb || (spec.commit == CommitMode::kAutomatic &&
                                  (spec.clip_norm > 0 || spec.nonfinite == NonfinitePolicy::kSkip));
  spec.shape = shape;
  if (!needs_all && Draw(random, 0, 1) == 0) {
    const Layout layout = LayoutOf(spec).value();
    const int64_t offset = Draw(random, 0, layout.padded_count() - 1);
    shape.range = Range{offset, Draw(random, 1, layout.padded_count() - offset)};
    spec.shape = shape;
  }
  return spec;
}

// A server and its contributors.
class World {
 public:
  explicit World(uint32_t seed)
      : random_(seed), seed_(seed), spec_(RandomSpec(random_, seed)), oracle_(spec_) {
    limits_.segment_elements = Draw(random_, 50, 3000);
    limits_.idle_bytes = Draw(random_, 0, 1) * 50'000;
    if (Draw(random_, 0, 1) == 0) limits_.held_bytes = 1;
    table_ = DenseTable::Create(spec_, limits_, account_).value();
    contributors_.resize(static_cast<size_t>(spec_.contributors));
    MakeGradients();
    for (int32_t c = 0; c < spec_.contributors; ++c) Attach(c);
  }
  ~World() {
    table_.reset();
    EXPECT_EQ(account_.taken_bytes(), 0);
  }

  // One event; false when all have pulled the last step.
  bool Advance() {
    Check();
    std::vector<int32_t> able;
    bool over = true;
    for (int32_t c = 0; c < spec_.contributors; ++c) {
      if (contributors_[c].step > kSteps) continue;
      over = false;
      if (!contributors_[c].waits) able.push_back(c);
    }
    if (over) return false;
    if (table_->prepared().has_value() && (able.empty() || Draw(random_, 0, 9) == 0)) {
      Commit();
      return true;
    }
    EXPECT_FALSE(able.empty()) << "everybody waits";
    if (able.empty()) return false;
    const int32_t c = able[Draw(random_, 0, static_cast<int64_t>(able.size()) - 1)];
    const int64_t draw = Draw(random_, 0, 99);
    if (draw < 10) {
      Repeat(c);
    } else if (draw < 13) {
      Replace(c);
    } else if (draw < 15) {
      Restart();
    } else if (draw < 20) {
      ReleasePins();
    } else {
      GoOn(c);
    }
    Wake();
    return true;
  }

 private:
  struct Chunk {
    int32_t micro_batch = 0;
    Range range;
  };
  struct Worker {
    uint64_t start = 0;
    Step step = 1;
    std::vector<Chunk> chunks;  // of this step, in the order in which they are pushed
    size_t next = 0;
    bool waits = false;
  };
  struct Pin {
    DensePullResult result;
    std::vector<float> expected;
  };

  void MakeGradients() {
    const int64_t size = oracle_.layout().padded_count();
    std::vector<bool> trains(static_cast<size_t>(size), false);
    for (const Tensor& tensor : oracle_.layout().tensors()) {
      if (tensor.spec.frozen) continue;
      std::fill_n(trains.begin() + tensor.offset, tensor.count, true);
    }
    versions_.push_back(oracle_.parameters());
    for (Step step = 1; step <= kSteps; ++step) {
      std::vector<std::vector<float>> gradients;
      int64_t samples = 0;
      for (int32_t m = 0; m < spec_.micro_batches; ++m) {
        const DType dtype = kDTypes[Draw(random_, 0, 2)];
        std::vector<float> gradient = GradientOf(size, seed_, step, m, dtype);
        for (int64_t i = 0; i < size; ++i) {
          if (!trains[i]) gradient[i] = std::nanf("");  // counts nowhere
        }
        if (spec_.nonfinite == NonfinitePolicy::kSkip && step == 2 && m == 0) {
          gradient[0] = std::numeric_limits<float>::infinity();
        }
        samples += SamplesOf(step, m);
        payloads_[{step, m}] = Encode(gradient, dtype);
        gradients.push_back(std::move(gradient));
      }
      const std::vector<float> sum =
          SumByDefinition(oracle_.layout(), spec_.contributors, gradients);
      squares_.push_back(oracle_.SquaresOf(sum, {0, size}));
      oracle_.Apply(step, sum, samples, {0, size});
      versions_.push_back(oracle_.parameters());
    }
  }
  static int64_t SamplesOf(Step step, int32_t micro_batch) { return step + 3 * micro_batch; }

  // In one order for all, if memory for what is early is short; else in any.
  void MakeChunks(int32_t c) {
    Worker& worker = contributors_[c];
    worker.chunks.clear();
    worker.next = 0;
    const auto [first, last] = ShareByDefinition(c, spec_.contributors, spec_.micro_batches);
    for (int32_t m = first; m < last; ++m) {
      const int64_t most = Draw(random_, 0, 1) == 0 ? 100'000 : Draw(random_, 1, 2000);
      for (const Range range : RandomChunks(table_->range(), most, random_)) {
        worker.chunks.push_back({m, range});
      }
    }
    if (limits_.held_bytes > 1) {
      std::shuffle(worker.chunks.begin(), worker.chunks.end(), random_);
    }
  }

  void Attach(int32_t c) {
    Worker& worker = contributors_[c];
    ++worker.start;
    const AttachResult result = table_->Attach(Contributor(c, worker.start), kNow, kLease).value();
    ASSERT_EQ(result.version, table_->version());
    worker.waits = false;
    MakeChunks(c);
  }

  absl::StatusOr<PushResult> Push(int32_t c, uint64_t start, Step step, const Chunk& chunk) {
    const Payload& payload = payloads_.at({step, chunk.micro_batch});
    const size_t size = SizeOf(payload.dtype);
    const absl::Span<const std::byte> piece =
        absl::MakeConstSpan(payload.bytes)
            .subspan(static_cast<size_t>(chunk.range.offset) * size,
                     static_cast<size_t>(chunk.range.count) * size);
    return table_->Push({.from = Contributor(c, start),
                         .id = {.step = step, .micro_batch = chunk.micro_batch},
                         .range = chunk.range,
                         .samples = SamplesOf(step, chunk.micro_batch),
                         .values = GradientBytes::Create(payload.dtype, {&piece, 1}).value()},
                        kNow);
  }

  void Park(int32_t c, const Wait& wait) {
    contributors_[c].waits = true;
    table_->Park(static_cast<Ticket>(c), wait);
  }

  void Wake() {
    for (const Ticket ticket : table_->TakeReady()) contributors_[ticket].waits = false;
  }

  void GoOn(int32_t c) {
    Worker& worker = contributors_[c];
    if (worker.next < worker.chunks.size()) {
      const auto result = Push(c, worker.start, worker.step, worker.chunks[worker.next]);
      ASSERT_TRUE(result.ok()) << result.status();
      if (result->outcome == PushResult::Outcome::kMustWait) {
        Park(c, result->wait);
      } else {
        ++worker.next;
      }
      return;
    }
    const bool part = spec_.visibility == Visibility::kSegments;
    Range range = table_->range();
    if (part && Draw(random_, 0, 1) == 0) {
      range.offset = Draw(random_, range.offset, range.end() - 1);
      range.count = Draw(random_, 1, table_->range().end() - range.offset);
    }
    DensePullResult result =
        table_
            ->Pull(
                {.from = Contributor(c, worker.start), .range = range, .min_version = worker.step},
                kNow)
            .value();
    if (result.wait.has_value()) {
      Park(c, *result.wait);
      return;
    }
    const auto [first, last] = ShareByDefinition(c, spec_.contributors, spec_.micro_batches);
    if (first < last) {
      ASSERT_EQ(result.version, worker.step)
          << "its next step is not pushed yet, so nothing can be further on";
    }
    std::vector<float> expected = PartOf(versions_[result.version], range);
    // Segments may be further on than the oldest of them, for who does not hold them up.
    if (part && first == last) expected = Values(result);
    ASSERT_TRUE(SameFloats(Values(result), expected))
        << "step " << worker.step << ": " << Difference(Values(result), expected);
    pins_.push_back({std::move(result), expected});
    if (range != table_->range()) return;  // the whole another time
    ++worker.step;
    if (worker.step <= kSteps) MakeChunks(c);
  }

  void Repeat(int32_t c) {
    const Worker& worker = contributors_[c];
    Step step = worker.step;
    Chunk chunk;
    if (worker.next > 0) {
      chunk = worker.chunks[Draw(random_, 0, static_cast<int64_t>(worker.next) - 1)];
    } else if (step > 1) {
      --step;
      const auto [first, last] = ShareByDefinition(c, spec_.contributors, spec_.micro_batches);
      if (first == last) return;
      chunk = {first, table_->range()};
    } else {
      return;
    }
    const int64_t held = table_->Metrics().held_bytes;
    const auto result = Push(c, worker.start, step, chunk);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->outcome, PushResult::Outcome::kDuplicate);
    ASSERT_EQ(table_->Metrics().held_bytes, held);
  }

  void Replace(int32_t c) {
    const uint64_t old = contributors_[c].start;
    table_->Unpark(static_cast<Ticket>(c));
    Attach(c);
    if (contributors_[c].chunks.empty()) return;
    const auto fenced = Push(c, old, contributors_[c].step, contributors_[c].chunks[0]);
    ASSERT_EQ(fenced.status().code(), absl::StatusCode::kFailedPrecondition);
  }

  // The server dies, and another goes on from a snapshot, in other parts.
  void Restart() {
    ReleasePins();
    const TableSnapshot snapshot = table_->Snapshot();
    table_.reset();
    ASSERT_EQ(account_.taken_bytes(), 0);
    table_ = DenseTable::Create(spec_, limits_, account_).value();
    ASSERT_TRUE(table_->BeginRestore(snapshot.header).ok());
    ASSERT_EQ(table_->Pull({.range = table_->range()}, kNow).status().code(),
              absl::StatusCode::kUnavailable);
    for (size_t a = 0; a < snapshot.arrays.size(); ++a) {
      ASSERT_EQ(table_->FinishRestore().code(), absl::StatusCode::kInvalidArgument);
      const auto size = static_cast<int64_t>(snapshot.arrays[a].size());
      for (const Range part : RandomChunks({0, size}, 1000, random_)) {
        ASSERT_TRUE(
            table_
                ->RestorePart(
                    static_cast<int>(a), part.offset,
                    absl::MakeConstSpan(snapshot.arrays[a]).subspan(part.offset, part.count))
                .ok());
      }
    }
    ASSERT_TRUE(table_->FinishRestore().ok());
    ASSERT_EQ(table_->version(), snapshot.header.version);
    // What was received of the step under way is lost: all push it again.
    for (int32_t c = 0; c < spec_.contributors; ++c) Attach(c);
  }

  void Commit() {
    const PreparedStep prepared = *table_->prepared();
    const SquaredSum& whole = squares_[static_cast<size_t>(prepared.step) - 1];
    if (table_->range() == Range{0, oracle_.layout().padded_count()}) {
      ASSERT_EQ(prepared.squared_gradient.ToWords(), whole.ToWords());
    }
    ASSERT_EQ(table_->Commit(prepared.step + 1, whole).code(),
              absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE(table_->Commit(prepared.step, whole).ok());
    ASSERT_TRUE(table_->Commit(prepared.step, whole).ok()) << "again, and nothing happens";
    ASSERT_EQ(table_->version(), prepared.step);
    Wake();
  }

  // What is pinned has not changed, whatever was applied since.
  void ReleasePins() {
    for (const Pin& pin : pins_) {
      ASSERT_TRUE(SameFloats(Values(pin.result), pin.expected));
      table_->Release(pin.result.pin);
    }
    pins_.clear();
    ASSERT_EQ(table_->Metrics().retired_bytes, 0);
  }

  void Check() {
    ASSERT_GE(table_->version(), version_);
    version_ = table_->version();
    const TableMetrics metrics = table_->Metrics();
    ASSERT_EQ(account_.taken_bytes(), metrics.table_bytes + metrics.held_bytes +
                                          metrics.retired_bytes + metrics.idle_bytes);
    ASSERT_EQ(metrics.pins, static_cast<int64_t>(pins_.size()));
  }

  std::mt19937 random_;
  const uint32_t seed_;
  const TableSpec spec_;
  DenseOracle oracle_;
  std::vector<std::vector<float>> versions_;  // parameters of the whole space, by version
  std::vector<SquaredSum> squares_;           // of the sums of steps 1, 2, ...
  std::map<std::pair<Step, int32_t>, Payload> payloads_;
  TableLimits limits_;
  SimpleMemoryAccount account_{kPlenty};
  std::unique_ptr<DenseTable> table_;
  std::vector<Worker> contributors_;
  std::vector<Pin> pins_;
  Version version_ = 0;
};

class DenseSynchronousTest : public testing::TestWithParam<int> {};

TEST_P(DenseSynchronousTest, EveryPullHasTheBitsOfTheDefinition) {
  constexpr uint32_t kSeeds = 16;
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

INSTANTIATE_TEST_SUITE_P(Seeds, DenseSynchronousTest, testing::Range(0, 4));

}  // namespace
}  // namespace muster
