#include "server/parameter_server/core/sparse_table.h"

#include <map>
#include <set>

#include "gmock/gmock.h"
#include "tests/server/parameter_server/core/table_fixture.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Outcome = PushResult::Outcome;

constexpr int64_t kRows = 40;
constexpr int64_t kWidth = 5;

TableSpec Spec(int32_t contributors, Consistency consistency = Consistency::kSynchronous) {
  TableSpec spec;
  spec.name = "e";
  spec.shape =
      SparseShape{.rows = kRows, .width = kWidth, .initializer = Initializer::kNormal, .scale = 1};
  spec.learning_rate = {.peak = 0.5, .total_steps = 100};
  spec.contributors = contributors;
  spec.micro_batches = contributors;
  spec.consistency = consistency;
  return spec;
}

// A push in one chunk, or in several.
struct Lookups {
  std::vector<int64_t> rows;
  std::vector<float> values;
};

// ---- the oracle: a map from row to what is kept of it -----------------------------------------

using RowMap = std::map<int64_t, std::vector<float>>;

void AddRow(RowMap& sums, int64_t row, absl::Span<const float> values) {
  const auto [it, is_new] = sums.try_emplace(row, values.begin(), values.end());
  if (is_new) return;
  for (size_t i = 0; i < values.size(); ++i) it->second[i] += values[i];
}

RowMap SumOf(const Lookups& push) {
  RowMap sums;
  for (size_t i = 0; i < push.rows.size(); ++i) {
    AddRow(sums, push.rows[i], absl::MakeConstSpan(push.values).subspan(i * kWidth, kWidth));
  }
  return sums;
}

class Oracle {
 public:
  explicit Oracle(const TableSpec& spec)
      : spec_(spec),
        layout_(LayoutOf(spec).value()),
        rule_(UpdateRule::Create(spec.rule, layout_).value()) {
    all_.resize(kRows * kWidth);
    InitializeTensor(layout_.tensors()[0], spec.seed, absl::MakeSpan(all_));
    slots_.assign(static_cast<size_t>(rule_->state_slots()), std::vector<float>(all_.size()));
  }

  void Apply(Step step, int64_t samples, const RowMap& sums) {
    SquaredSum squares;
    for (const auto& [row, values] : sums) squares.Add(values);
    if (spec_.nonfinite == NonfinitePolicy::kSkip && !squares.finite()) return;
    const UpdateScalars scalars = {
        .learning_rate = LearningRate(spec_.learning_rate, step),
        .gradient_scale = ComputeGradientScale(spec_.clip_norm > 0 ? squares.Value() : 0,
                                               std::max<int64_t>(1, samples), spec_.clip_norm)
                              .scale,
        .update_count = ++updates_};
    for (const auto& [row, values] : sums) {
      std::vector<absl::Span<float>> slots;
      for (auto& slot : slots_) {
        slots.push_back(absl::MakeSpan(slot).subspan(row * kWidth, kWidth));
      }
      rule_->Apply({row * kWidth, kWidth}, scalars,
                   absl::MakeSpan(all_).subspan(row * kWidth, kWidth), values, slots);
      touched_.insert(row);
    }
  }
  void Touch(const std::vector<int64_t>& rows) { touched_.insert(rows.begin(), rows.end()); }

  const std::vector<float>& all() const { return all_; }
  size_t touched() const { return touched_.size(); }

 private:
  const TableSpec spec_;
  const Layout layout_;
  const std::unique_ptr<UpdateRule> rule_;
  std::vector<float> all_;
  std::vector<std::vector<float>> slots_;
  std::set<int64_t> touched_;
  int64_t updates_ = 0;
};

// Rows with many repetitions, within the range; sometimes none.
Lookups RandomLookups(std::mt19937& random, Range range) {
  Lookups push;
  const int64_t count = Draw(random, 0, 30);
  for (int64_t i = 0; i < count; ++i) {
    push.rows.push_back(Draw(random, range.offset, range.end() - 1));
    for (int64_t k = 0; k < kWidth; ++k) {
      push.values.push_back(std::ldexp(static_cast<float>(Draw(random, -1000, 1000)),
                                       static_cast<int>(Draw(random, -20, 2))));
    }
  }
  return push;
}

absl::StatusOr<PushResult> PushChunk(SparseTable& table, ContributorId from, PushId id,
                                     const Lookups& push, int32_t chunk = 0,
                                     int32_t chunk_count = 1, int64_t samples = 1) {
  const auto n = static_cast<int64_t>(push.rows.size());
  const int64_t begin = n * chunk / chunk_count;
  const int64_t end = n * (chunk + 1) / chunk_count;
  return table.Push(
      {.from = from,
       .id = id,
       .chunk = chunk,
       .chunk_count = chunk_count,
       .samples = samples,
       .rows = absl::MakeConstSpan(push.rows).subspan(begin, end - begin),
       .values = GradientBytes::OfFloats(
           absl::MakeConstSpan(push.values).subspan(begin * kWidth, (end - begin) * kWidth))},
      kNow);
}

std::vector<float> ReadAll(SparseTable& table) {
  std::vector<int64_t> rows;
  for (int64_t row = table.range().offset; row < table.range().end(); ++row) rows.push_back(row);
  std::vector<float> values(rows.size() * kWidth);
  EXPECT_TRUE(table.Pull({.rows = rows}, absl::MakeSpan(values), kNow).ok());
  return values;
}

// Pushes in chunks, in any order over contributors, many of them twice; a server that dies between
// two steps. Every row has the bits of the definition.
TEST(SparseTableTest, HasTheBitsOfTheDefinition) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 random(seed);
    TableSpec spec = Spec(static_cast<int32_t>(Draw(random, 1, 4)),
                          seed % 3 == 0 ? Consistency::kAsynchronous : Consistency::kSynchronous);
    spec.micro_batches = static_cast<int32_t>(Draw(random, 1, 2 * spec.contributors));
    const UpdateRuleOptions rules[] = {SgdOptions{.momentum = 0.9}, AdamWOptions{}, LionOptions{},
                                       AdagradOptions{.initial_accumulator = 0.1}};
    spec.rule = rules[Draw(random, 0, 3)];
    spec.seed = seed;
    Range range = {0, kRows};
    if (Draw(random, 0, 1) == 0) {
      range = {7, 20};
      std::get<SparseShape>(spec.shape).range = range;
    } else {
      spec.clip_norm = Draw(random, 0, 1) * 0.1;
      if (Draw(random, 0, 1) == 0) spec.nonfinite = NonfinitePolicy::kSkip;
    }
    SimpleMemoryAccount account(kPlenty);
    auto table = SparseTable::Create(spec, {}, account).value();
    Oracle oracle(spec);
    const Contributions cut(spec.contributors, spec.micro_batches);
    const auto attach = [&] {
      for (int32_t c = 0; c < spec.contributors; ++c) {
        ASSERT_TRUE(table->Attach(Contributor(c), kNow, kLease).ok());
      }
    };
    attach();
    const bool synchronous = spec.consistency == Consistency::kSynchronous;
    for (Step step = 1; step <= 4; ++step) {
      struct Sent {
        int32_t micro_batch, chunk, count;
      };
      std::vector<Lookups> pushes;
      std::vector<Sent> delivery;
      for (int32_t m = 0; m < spec.micro_batches; ++m) {
        pushes.push_back(RandomLookups(random, range));
        if (spec.nonfinite == NonfinitePolicy::kSkip && step == 2 && !pushes[m].values.empty()) {
          pushes[m].values[0] = std::nanf("");
        }
        const auto chunks = static_cast<int32_t>(Draw(random, 1, 4));
        for (int32_t k = 0; k < chunks; ++k) delivery.push_back({m, k, chunks});
        if (Draw(random, 0, 1) == 0) delivery.push_back({m, 0, chunks});
        oracle.Touch(pushes[m].rows);
      }
      std::shuffle(delivery.begin(), delivery.end(), random);
      std::map<int32_t, std::set<int32_t>> received;
      for (const Sent& sent : delivery) {
        const bool repeated = !received[sent.micro_batch].insert(sent.chunk).second;
        const auto result =
            PushChunk(*table, Contributor(cut.ContributorOf(sent.micro_batch)),
                      {.step = step, .micro_batch = sent.micro_batch}, pushes[sent.micro_batch],
                      sent.chunk, sent.count, 1 + sent.micro_batch);
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_EQ(result->outcome, repeated ? Outcome::kDuplicate : Outcome::kAdded);
        const TableMetrics metrics = table->Metrics();
        ASSERT_EQ(account.taken_bytes(),
                  metrics.table_bytes + metrics.held_bytes + metrics.idle_bytes);
        if (!synchronous && !repeated &&
            static_cast<int32_t>(received[sent.micro_batch].size()) == sent.count) {
          oracle.Apply(step, 1 + sent.micro_batch, SumOf(pushes[sent.micro_batch]));
          ASSERT_EQ(result->version, table->version());
        }
      }
      if (synchronous) {
        RowMap total;
        int64_t samples = 0;
        for (int32_t c = 0; c < spec.contributors; ++c) {
          const auto [first, last] = ShareByDefinition(c, spec.contributors, spec.micro_batches);
          RowMap partial;
          for (int32_t m = first; m < last; ++m) {
            for (const auto& [row, values] : SumOf(pushes[m])) AddRow(partial, row, values);
            samples += 1 + m;
          }
          for (const auto& [row, values] : partial) AddRow(total, row, values);
        }
        oracle.Apply(step, samples, total);
        ASSERT_EQ(table->version(), step);
      } else {
        ASSERT_EQ(table->version(), step * spec.micro_batches);
      }
      ASSERT_EQ(table->Metrics().held_bytes, 0);
      ASSERT_EQ(table->Metrics().rows, static_cast<int64_t>(oracle.touched()));
      const std::vector<float> expected =
          PartOf(oracle.all(), {range.offset * kWidth, range.count * kWidth});
      const std::vector<float> got = ReadAll(*table);
      ASSERT_TRUE(SameFloats(got, expected)) << Difference(got, expected);
      if (Draw(random, 0, 2) == 0) {
        const TableSnapshot snapshot = table->Snapshot();
        table = nullptr;
        ASSERT_EQ(account.taken_bytes(), 0);
        table = SparseTable::Create(spec, {}, account).value();
        ASSERT_TRUE(table->Restore(snapshot).ok());
        attach();
        ASSERT_TRUE(SameFloats(ReadAll(*table), expected));
      }
    }
  }
}

TEST(SparseTableTest, MergesRowsThatComeSeveralTimesAndCountsThemOnce) {
  SimpleMemoryAccount account(kPlenty);
  const auto table = SparseTable::Create(Spec(1), {}, account).value();
  ASSERT_TRUE(table->Attach(Contributor(0), kNow, kLease).ok());
  const std::vector<float> before = ReadAll(*table);
  EXPECT_EQ(table->Metrics().rows, 0) << "pulls make no rows";
  const Lookups push = {{3, 9, 3, 3}, std::vector<float>(4 * kWidth, 2.0f)};
  ASSERT_TRUE(PushChunk(*table, Contributor(0), {.step = 1}, push, 0, 2).ok());
  EXPECT_EQ(table->version(), 0);
  ASSERT_TRUE(PushChunk(*table, Contributor(0), {.step = 1}, push, 1, 2).ok());
  const std::vector<float> after = ReadAll(*table);
  EXPECT_EQ(after[3 * kWidth], before[3 * kWidth] - 0.5f * 6.0f);
  EXPECT_EQ(after[9 * kWidth], before[9 * kWidth] - 0.5f * 2.0f);
  EXPECT_EQ(after[4 * kWidth], before[4 * kWidth]);
  EXPECT_EQ(table->Metrics().rows, 2);
  EXPECT_EQ(table->Metrics().rows_merged, 2);
}

// Tied embeddings: the output layer's gradient is dense, the input's sparse.
TEST(SparseTableTest, TakesDenseAndSparseGradientsOfOneStep) {
  SimpleMemoryAccount account(kPlenty);
  TableSpec spec = Spec(1);
  spec.micro_batches = 2;
  const auto table = SparseTable::Create(spec, {}, account).value();
  ASSERT_TRUE(table->Attach(Contributor(0), kNow, kLease).ok());
  const std::vector<float> before = ReadAll(*table);
  const std::vector<float> dense(kRows * kWidth, 1.0f);
  const Lookups sparse = {{5, 5}, std::vector<float>(2 * kWidth, 4.0f)};
  ASSERT_TRUE(
      PushChunk(*table, Contributor(0), {.step = 1, .micro_batch = 1}, sparse, 0, 1, 0).ok());
  SparsePush all{.from = Contributor(0),
                 .id = {.step = 1},
                 .samples = 1,
                 .rows_range = Range{0, kRows},
                 .values = GradientBytes::OfFloats(dense)};
  ASSERT_EQ(table->Push(all, kNow)->outcome, Outcome::kAdded);
  ASSERT_EQ(table->version(), 1);
  const std::vector<float> after = ReadAll(*table);
  for (int64_t row = 0; row < kRows; ++row) {
    const float gradient = row == 5 ? 9.0f : 1.0f;
    ASSERT_EQ(after[row * kWidth], before[row * kWidth] - 0.5f * gradient) << "row " << row;
  }
  all.id.step = 2;
  all.rows_range = Range{1, kRows};
  EXPECT_EQ(table->Push(all, kNow).status().code(), absl::StatusCode::kOutOfRange);
  all.rows_range = Range{0, kRows - 1};
  EXPECT_EQ(table->Push(all, kNow).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SparseTableTest, NamesWhatWasExpectedAndWhatCame) {
  SimpleMemoryAccount account(kPlenty);
  const auto table = SparseTable::Create(Spec(1), {}, account).value();
  ASSERT_TRUE(table->Attach(Contributor(0), kNow, kLease).ok());
  const auto error = [&](const Lookups& push, int32_t chunk = 0, int32_t count = 1) {
    SparsePush wire{.from = Contributor(0),
                    .id = {.step = 1},
                    .chunk = chunk,
                    .chunk_count = count,
                    .samples = 1,
                    .rows = push.rows,
                    .values = GradientBytes::OfFloats(push.values)};
    return std::string(table->Push(wire, kNow).status().message());
  };
  EXPECT_EQ(error({{kRows}, std::vector<float>(kWidth)}),
            "table \"e\": expected rows of [0, 40), which this server has, got row 40; ask the "
            "server that owns it");
  EXPECT_EQ(error({{3, 4}, std::vector<float>(kWidth)}),
            "table \"e\": expected 10 values (2 rows of 5), got 5 of f32");
  EXPECT_THAT(error({{3}, std::vector<float>(kWidth)}, 2, 2), HasSubstr("got chunk 2 of 2"));
  Lookups bad = {{3, 4}, std::vector<float>(2 * kWidth)};
  bad.values[kWidth + 2] = std::nanf("");
  EXPECT_THAT(error(bad), HasSubstr("got a NaN or an infinity in column 2 of row 4"));
  EXPECT_EQ(table->Metrics().rows, 0);
  const Lookups good = {{3, 4}, std::vector<float>(2 * kWidth, 1.0f)};
  ASSERT_TRUE(PushChunk(*table, Contributor(0), {.step = 1}, good, 0, 2).ok());
  EXPECT_THAT(error(good, 1, 3), HasSubstr("expected 1 samples in 2 chunks"));
  const auto early = PushChunk(*table, Contributor(0), {.step = 2}, good);
  ASSERT_EQ(early->outcome, Outcome::kMustWait);
  table->Park(1, early->wait);
  ASSERT_TRUE(PushChunk(*table, Contributor(0), {.step = 1}, good, 1, 2).ok());
  EXPECT_THAT(table->TakeReady(), ElementsAre(1));
}

TEST(SparseTableTest, ASuccessorStartsAPushAnewThatWasNotComplete) {
  for (const Consistency consistency : {Consistency::kSynchronous, Consistency::kAsynchronous}) {
    SimpleMemoryAccount account(kPlenty);
    const auto table = SparseTable::Create(Spec(1, consistency), {}, account).value();
    ASSERT_TRUE(table->Attach(Contributor(0), kNow, kLease).ok());
    const std::vector<float> before = ReadAll(*table);
    const Lookups push = {{3, 4}, std::vector<float>(2 * kWidth, 1.0f)};
    ASSERT_TRUE(PushChunk(*table, Contributor(0), {.step = 1}, push, 0, 2).ok());
    ASSERT_TRUE(table->Attach(Contributor(0, 2), kNow, kLease).ok());
    EXPECT_EQ(table->Metrics().held_bytes, 0);
    ASSERT_TRUE(PushChunk(*table, Contributor(0, 2), {.step = 1}, push).ok());
    EXPECT_EQ(table->version(), 1);
    EXPECT_EQ(ReadAll(*table)[3 * kWidth], before[3 * kWidth] - 0.5f);
  }
}

TEST(SparseTableTest, KeepsToItsLimits) {
  SimpleMemoryAccount account(kPlenty);
  TableLimits limits;
  limits.held_bytes = 1000;
  const auto table = SparseTable::Create(Spec(2), limits, account).value();
  ASSERT_TRUE(table->Attach(Contributor(0), kNow, kLease).ok());
  ASSERT_TRUE(table->Attach(Contributor(1), kNow, kLease).ok());
  const Lookups large = {std::vector<int64_t>(40, 3), std::vector<float>(40 * kWidth, 1.0f)};
  ASSERT_TRUE(PushChunk(*table, Contributor(0), {.step = 1}, large).ok()) << "one always fits";
  const absl::Status over =
      PushChunk(*table, Contributor(1), {.step = 1, .micro_batch = 1}, large).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted) << over;
  EXPECT_THAT(std::string(over.message()), HasSubstr("more are beyond the 1000"));

  // Rows beyond the budget.
  SimpleMemoryAccount small(1000);
  const auto other = SparseTable::Create(Spec(1), {}, small).value();
  ASSERT_TRUE(other->Attach(Contributor(0), kNow, kLease).ok());
  const Lookups one = {{3}, std::vector<float>(kWidth, 1.0f)};
  const absl::Status full = PushChunk(*other, Contributor(0), {.step = 1}, one).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("no room for new rows beside 0"));
  EXPECT_EQ(other->version(), 0);
}

TEST(SparseTableTest, AHugeTableTakesMemoryForRowsThatArePushedOnly) {
  SimpleMemoryAccount account(1 << 20);
  TableSpec spec = Spec(1);
  std::get<SparseShape>(spec.shape).rows = int64_t{1} << 36;
  const auto table = SparseTable::Create(spec, {}, account).value();
  ASSERT_TRUE(table->Attach(Contributor(0), kNow, kLease).ok());
  const std::vector<int64_t> rows = {int64_t{1} << 35, 5};
  std::vector<float> first(2 * kWidth), second(2 * kWidth);
  ASSERT_TRUE(table->Pull({.rows = rows}, absl::MakeSpan(first), kNow).ok());
  ASSERT_TRUE(
      PushChunk(*table, Contributor(0), {.step = 1}, {{rows[0]}, std::vector<float>(kWidth, 1.0f)})
          .ok());
  ASSERT_TRUE(table->Pull({.rows = rows}, absl::MakeSpan(second), kNow).ok());
  EXPECT_EQ(second[0], first[0] - 0.5f);
  EXPECT_EQ(second[kWidth], first[kWidth]);
  EXPECT_EQ(table->Metrics().rows, 1);
}

}  // namespace
}  // namespace muster
