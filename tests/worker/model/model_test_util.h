// Small models and batches for the model tests.
#ifndef MUSTER_TESTS_WORKER_MODEL_MODEL_TEST_UTIL_H_
#define MUSTER_TESTS_WORKER_MODEL_MODEL_TEST_UTIL_H_

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "state/initialize.h"
#include "worker/model/model.h"

namespace muster {

inline ModelConfig TinyMlp() {
  return {.architecture = MlpConfig{.input = 7, .hidden = {9, 5}, .classes = 4},
          .bucket_elements = 64};
}

// fc4 has the transpose of fc3's weight, fc5 that of fc2's: one next to its twin, one not.
inline ModelConfig TinyTiedMlp() {
  return {.architecture =
              MlpConfig{.input = 7, .hidden = {9, 6, 5, 6, 9}, .classes = 4, .tie_weights = true},
          .bucket_elements = 64};
}

// Two channels and an odd height, so that the order of channels and dropped rows matter.
inline ModelConfig TinyCnn() {
  return {.architecture = CnnConfig{.height = 5,
                                    .width = 6,
                                    .channels = 2,
                                    .conv_channels = {3, 4},
                                    .hidden = 6,
                                    .classes = 3},
          .bucket_elements = 64};
}

struct Batch {
  std::vector<float> inputs;
  std::vector<int32_t> labels;
};

inline Batch MakeBatch(const Model& model, int64_t samples, uint64_t seed) {
  const RandomStream stream(seed, "batch");
  Batch batch;
  for (int64_t i = 0; i < samples * model.features(); ++i) {
    batch.inputs.push_back(static_cast<float>(stream.Normal(i)));
  }
  for (int64_t i = 0; i < samples; ++i) {
    batch.labels.push_back(static_cast<int32_t>(stream.Below(1'000'000 + i, model.classes())));
  }
  return batch;
}

inline std::vector<float> FirstParameters(const Model& model, uint64_t seed) {
  std::vector<float> parameters(model.layout().padded_count());
  InitializeParameters(model.layout(), seed, absl::MakeSpan(parameters));
  return parameters;
}

inline absl::Status IgnoreBlock(int) { return absl::OkStatus(); }

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_MODEL_MODEL_TEST_UTIL_H_
