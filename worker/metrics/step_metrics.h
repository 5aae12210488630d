// What a job reports about its training: one record per step and one per evaluation.
#ifndef MUSTER_WORKER_METRICS_STEP_METRICS_H_
#define MUSTER_WORKER_METRICS_STEP_METRICS_H_

#include <cstdint>

#include "base/ids.h"

namespace muster {

struct StepMetrics {
  Step step = 0;
  double loss = 0;  // mean over the global batch
  double learning_rate = 0;
  double gradient_norm = 0;     // global, before clipping
  bool update_skipped = false;  // the gradient was not finite
  double step_time_ms = 0;
  double samples_per_s = 0;    // of the whole fleet
  double comm_wait_share = 0;  // of the step's time, waiting for communication: 0 .. 1
  double data_epochs = 0;      // passes over the data, with fraction
  Epoch epoch = 0;             // of the view
  int32_t world_size = 0;
};

struct EvaluationMetrics {
  Step step = 0;
  double test_loss = 0;
  double test_accuracy = 0;  // 0 .. 1
};

}  // namespace muster

#endif  // MUSTER_WORKER_METRICS_STEP_METRICS_H_
