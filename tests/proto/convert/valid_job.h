// A job description in which every field is right and every optional part is given.
#ifndef MUSTER_TESTS_PROTO_CONVERT_VALID_JOB_H_
#define MUSTER_TESTS_PROTO_CONVERT_VALID_JOB_H_

#include "google/protobuf/text_format.h"
#include "muster/v1/job.pb.h"

namespace muster {

inline v1::JobDescription ValidJob() {
  v1::JobDescription job;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(R"(
    name: "images-1"
    model { mlp { hidden: 256 hidden: 128 } }
    data { idx { train_images: "/d/i" train_labels: "/d/l" test_images: "/t/i" test_labels: "/t/l"
                 classes: 7 mean: 0.25 deviation: 0.5 } }
    training { steps: 500 global_batch: 256 micro_batch: 32 seed: 42
      optimizer { sgd { momentum: 0.9 nesterov: true } weight_decay: 0.001
                  groups { tensors: "fc1.*" tensors: "*.bias" weight_decay: 0
                           learning_rate_scale: 0.5 } }
      learning_rate { peak: 0.1 schedule: COSINE warmup_steps: 20 final: 0.01 }
      clip_norm: 1 evaluate_every: 100 max_nonfinite_steps: 3 }
    workers { min: 2 start: 4 max: 8 start_timeout_ms: 1000 }
    checkpoints { directory: "/c" every: 50 keep: 2 resume: true }
    communication {
      algorithm: DIRECT bucket_bytes: 65536 timeout_ms: 5000 transport: SHARED_MEMORY
    }
  )",
                                                                    &job);
  if (!parsed) std::abort();
  return job;
}

}  // namespace muster

#endif  // MUSTER_TESTS_PROTO_CONVERT_VALID_JOB_H_
