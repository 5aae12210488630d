// A small classification job on generated data, for tests of the runtime.
#ifndef MUSTER_TESTS_WORKER_RUNTIME_SMALL_JOB_H_
#define MUSTER_TESTS_WORKER_RUNTIME_SMALL_JOB_H_

#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/job_spec.h"
#include "base/random.h"

namespace muster {

inline void AppendBigEndian(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

// Images of 8 x 8 whose brightest quarter says the class (of four), with noise.
inline void WriteIdxPair(FileSystem& files, const std::string& images_path,
                         const std::string& labels_path, int count, uint64_t seed) {
  std::string images, labels;
  AppendBigEndian(0x00000803, &images);
  AppendBigEndian(count, &images);
  AppendBigEndian(8, &images);
  AppendBigEndian(8, &images);
  AppendBigEndian(0x00000801, &labels);
  AppendBigEndian(count, &labels);
  const RandomStream random(seed, "small job");
  for (int i = 0; i < count; ++i) {
    const int label = static_cast<int>(random.Below(i * 100, 4));
    labels.push_back(static_cast<char>(label));
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 8; ++x) {
        const int quarter = (y / 4) * 2 + x / 4;
        const int base = quarter == label ? 110 : 60;
        images.push_back(static_cast<char>(base + random.Below(i * 100 + 1 + y * 8 + x, 90)));
      }
    }
  }
  MUSTER_CHECK(WriteFileDurably(files, images_path, images).ok());
  MUSTER_CHECK(WriteFileDurably(files, labels_path, labels).ok());
}

inline JobSpec SmallJob(FileSystem& files, const std::string& directory) {
  JobSpec spec;
  spec.name = "small";
  spec.model = MlpSpec{.hidden = {24, 16}};
  spec.data.train_images = directory + "/train-images";
  spec.data.train_labels = directory + "/train-labels";
  spec.data.test_images = directory + "/test-images";
  spec.data.test_labels = directory + "/test-labels";
  spec.data.classes = 4;
  spec.training.steps = 50;
  spec.training.global_batch = 48;
  spec.training.micro_batch = 4;
  spec.training.seed = 9;
  spec.training.optimizer.rule = AdamWSpec{};
  spec.training.optimizer.weight_decay = 0.01;
  spec.training.learning_rate.peak = 3e-3;
  spec.training.learning_rate.schedule = LearningRateSpec::Schedule::kCosine;
  spec.training.learning_rate.warmup_steps = 5;
  spec.communication.bucket_bytes = 1024;
  spec.communication.timeout_ms = 20'000;
  spec.description_json = "{}";
  WriteIdxPair(files, spec.data.train_images, spec.data.train_labels, 1200, 1);
  WriteIdxPair(files, spec.data.test_images, spec.data.test_labels, 333, 2);
  return spec;
}

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_RUNTIME_SMALL_JOB_H_
