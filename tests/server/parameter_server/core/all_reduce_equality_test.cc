// A synchronous table makes of contributions, bit for bit, what workers make of them by all-reduce
// and their own update: a job may go from one to the other at any step.
#include "server/parameter_server/core/dense_table.h"
#include "state/clip_norm.h"
#include "tests/collectives/engine/communicator_fixture.h"
#include "tests/server/parameter_server/core/table_fixture.h"
#include "worker/sync/gradient_exchange.h"

namespace muster {
namespace {

TableSpec Spec(int32_t contributors, int32_t micro_batches, const UpdateRuleOptions& rule) {
  TableSpec spec;
  spec.name = "model";
  spec.shape =
      DenseShape{.tensors = {{.name = "embedding", .shape = {10}, .block = 0},
                             {.name = "hidden",
                              .shape = {60, 50},
                              .block = 1,
                              .initializer = Initializer::kNormal,
                              .scale = 0.1f},
                             {.name = "frozen", .shape = {130}, .block = 1, .frozen = true},
                             {.name = "bias", .shape = {1111}, .block = 2, .decay = false}},
                 .bucket_elements = 1024};
  spec.rule = rule;
  spec.learning_rate = {.schedule = LearningRateSchedule::kLinear, .peak = 0.05, .total_steps = 5};
  spec.contributors = contributors;
  spec.micro_batches = micro_batches;
  spec.clip_norm = 0.5;
  spec.nonfinite = NonfinitePolicy::kSkip;
  return spec;
}

class AllReduceEqualityTest : public testing::TestWithParam<Algorithm> {};

TEST_P(AllReduceEqualityTest, ATableHasTheBitsOfWorkers) {
  constexpr uint64_t kSeed = 17;
  constexpr int64_t kSamples = 3;  // of a micro-batch
  for (const int32_t size : {1, 2, 3, 5}) {
    for (const int32_t micro_batches : {size, 2 * size + 1, std::max(1, size - 1)}) {
      for (const UpdateRuleOptions& rule :
           {UpdateRuleOptions(AdamWOptions{}), UpdateRuleOptions(LambOptions{})}) {
        SCOPED_TRACE(absl::StrCat(size, " workers, ", micro_batches, " micro-batches"));
        const TableSpec spec = Spec(size, micro_batches, rule);
        const Layout layout = LayoutOf(spec).value();
        SimpleMemoryAccount account(kPlenty);
        const auto table = DenseTable::Create(spec, {}, account).value();
        // The workers' own state, as one: they all have the same.
        const auto update_rule = UpdateRule::Create(rule, layout).value();
        RuleState state = FirstState(layout, *update_rule);
        InitializeParameters(layout, spec.seed, absl::MakeSpan(state.parameters));
        for (int32_t c = 0; c < size; ++c) {
          ASSERT_TRUE(table->Attach(Contributor(c), kNow, kLease).ok());
        }
        for (Step step = 1; step <= 3; ++step) {
          TestFleet fleet = MakeFleet(MeshKind::kInProcess, size);
          std::vector<std::vector<float>> reduced(static_cast<size_t>(size));
          RunRanks(size, [&](Rank r) {
            View view;
            view.members.resize(static_cast<size_t>(size));
            GradientExchangeOptions options;
            options.algorithm = GetParam();
            GradientExchange exchange(ShardMesh(*fleet.ranks[r]), layout, view, options);
            // Added up in order, from the first on; zeros if there is none.
            std::vector<float>& sum = reduced[r];
            sum.assign(static_cast<size_t>(layout.padded_count()), 0.0f);
            const auto [first, last] = ShareByDefinition(r, size, micro_batches);
            for (int32_t m = first; m < last; ++m) {
              const std::vector<float> gradient =
                  GradientOf(layout.padded_count(), kSeed, step, m, DType::kF32);
              for (size_t i = 0; i < sum.size(); ++i) {
                sum[i] = m == first ? gradient[i] : sum[i] + gradient[i];
              }
            }
            for (int block = layout.block_count() - 1; block >= 0; --block) {
              exchange.Start(step, block, sum.data() + layout.RangeOfBlock(block).offset);
            }
            ASSERT_TRUE(exchange.Finish().ok());
          });
          // What the worker does with it (worker/runtime/replica.cc); padding is zero there.
          std::vector<float> gradient(static_cast<size_t>(layout.padded_count()));
          for (const Tensor& tensor : layout.tensors()) {
            std::copy_n(reduced[0].begin() + tensor.offset, tensor.count,
                        gradient.begin() + tensor.offset);
          }
          SquaredSum squares;
          AddTrainedSquares(layout, {0, layout.padded_count()}, gradient, squares);
          const UpdateScalars scalars = {
              .learning_rate = LearningRate(spec.learning_rate, step),
              .gradient_scale =
                  ComputeGradientScale(squares.Value(), kSamples * micro_batches, spec.clip_norm)
                      .scale,
              .update_count = step};
          UpdateRanges(*update_rule, {{0, layout.padded_count()}}, scalars, gradient, state);

          const Contributions cut(size, micro_batches);
          // The table: the last micro-batch first, each in two parts.
          const Range range = table->range();
          for (int32_t m = micro_batches - 1; m >= 0; --m) {
            const std::vector<float> pushed =
                GradientOf(layout.padded_count(), kSeed, step, m, DType::kF32);
            for (const Range part : {Range{1500, range.count - 1500}, Range{0, 1500}}) {
              const std::vector<float> values = PartOf(pushed, part);
              const auto result = table->Push({.from = Contributor(cut.ContributorOf(m)),
                                               .id = {.step = step, .micro_batch = m},
                                               .range = part,
                                               .samples = kSamples,
                                               .values = GradientBytes::OfFloats(values)},
                                              kNow);
              ASSERT_TRUE(result.ok()) << result.status();
              ASSERT_EQ(result->outcome, PushResult::Outcome::kAdded);
            }
          }
          ASSERT_EQ(table->version(), step);
          const std::vector<float> got = PullAll(*table);
          ASSERT_TRUE(SameFloats(got, state.parameters))
              << "step " << step << ": " << Difference(got, state.parameters);
        }
        ASSERT_GT(table->Metrics().updates_clipped, 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, AllReduceEqualityTest,
                         testing::Values(Algorithm::kRing, Algorithm::kDirect));

}  // namespace
}  // namespace muster
