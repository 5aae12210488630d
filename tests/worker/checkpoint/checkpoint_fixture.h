// A small training state with values that depend on its step, for tests of checkpoints.
#ifndef MUSTER_TESTS_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define MUSTER_TESTS_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "state/layout.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/part_plan.h"
#include "worker/checkpoint/training_state.h"

namespace muster {

inline Layout MakeLayout(int64_t bucket_elements = 64) {
  std::vector<TensorSpec> tensors;
  tensors.push_back({.name = "fc1.weight", .shape = {5, 30}, .block = 0});
  tensors.push_back({.name = "fc1.bias", .shape = {5}, .block = 0});
  tensors.push_back({.name = "fc2.weight", .shape = {3, 5}, .block = 1});
  tensors.push_back({.name = "fc2.bias", .shape = {3}, .block = 1});
  auto layout = Layout::Create(std::move(tensors), bucket_elements);
  MUSTER_CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

// Element i of each tensor is a function of step, tensor and slot; padding is zero.
inline std::vector<float> MakeValues(const Layout& layout, Step step, int slot) {
  std::vector<float> values(static_cast<size_t>(layout.padded_count()), 0.0f);
  for (const Tensor& tensor : layout.tensors()) {
    for (int64_t i = 0; i < tensor.count; ++i) {
      values[static_cast<size_t>(tensor.offset + i)] =
          static_cast<float>(step) + 1000.0f * static_cast<float>(slot) +
          static_cast<float>(tensor.spec.name.size()) / 16 + static_cast<float>(i) / 256;
    }
  }
  return values;
}

// Owns what a TrainingState borrows.
class OwnedState {
 public:
  OwnedState(const Layout& layout, Step step, uint64_t branch = 0)
      : parameters_(MakeValues(layout, step, 0)),
        momentum_(MakeValues(layout, step, 1)),
        variance_(MakeValues(layout, step, 2)) {
    Describe(layout, step, branch);
    state_.parameters = parameters_;
    state_.slots = {{"adam_m", momentum_}, {"adam_v", variance_}};
  }
  // One part of it.
  OwnedState(const Layout& layout, Step step, const CheckpointPart& part)
      : OwnedState(layout, step) {
    const Range range = RangesOfParts(layout, part.count)[static_cast<size_t>(part.index)];
    const auto cut = [range](absl::Span<const float> values) {
      return values.subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.count));
    };
    state_.part = part;
    state_.parameters = cut(state_.parameters);
    for (OptimizerSlot& slot : state_.slots) slot.values = cut(slot.values);
  }
  OwnedState(const OwnedState&) = delete;
  OwnedState& operator=(const OwnedState&) = delete;
  const TrainingState& state() const { return state_; }
  TrainingState& state() { return state_; }

 private:
  void Describe(const Layout& layout, Step step, uint64_t branch) {
    state_.progress = {.step = step,
                       .branch = branch,
                       .epoch = 3,
                       .update_count = step - 1,
                       .nonfinite_in_row = 1,
                       .seed = 0xfedcba9876543210,
                       .job = "name: test\nsteps: 100\n",
                       .job_fingerprint = 0x0123456789abcdef};
    state_.layout = &layout;
  }

  std::vector<float> parameters_, momentum_, variance_;
  TrainingState state_;
};

// Puts what comes into a flat space, which is zero before.
inline PieceSink Into(const Layout& layout, std::vector<float>* space) {
  space->assign(static_cast<size_t>(layout.padded_count()), 0.0f);
  return [space](int64_t offset, absl::Span<const float> values) {
    std::copy(values.begin(), values.end(), space->begin() + offset);
  };
}

// All of the space.
inline absl::Status LoadParameters(FileSystem& files, const Checkpoint& checkpoint,
                                   const Layout& layout, std::vector<float>* parameters) {
  return LoadParameters(files, checkpoint, layout, {{0, layout.padded_count()}},
                        Into(layout, parameters));
}
inline absl::Status LoadOptimizer(FileSystem& files, const Checkpoint& checkpoint,
                                  const Layout& layout,
                                  std::vector<std::pair<std::string, std::vector<float>*>> slots) {
  std::vector<OptimizerSlotDestination> destinations;
  for (const auto& [name, space] : slots) destinations.push_back({name, Into(layout, space)});
  return LoadOptimizer(files, checkpoint, layout, {{0, layout.padded_count()}}, destinations);
}

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
