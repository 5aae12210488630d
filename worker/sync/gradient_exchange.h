// Replicated data parallelism: every rank holds all parameters; the gradients of a step are summed
// by all-reduce, bucket by bucket, while backward still runs.
//
// One object serves one view. Used by one thread, except that the communicator may be aborted from
// any.
#ifndef MUSTER_WORKER_SYNC_GRADIENT_EXCHANGE_H_
#define MUSTER_WORKER_SYNC_GRADIENT_EXCHANGE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "collectives/engine/communicator.h"
#include "state/bucket_slices.h"
#include "state/layout.h"
#include "state/range.h"
#include "worker/sync/commit_exchange.h"

namespace muster {

struct GradientExchangeOptions {
  Algorithm algorithm = Algorithm::kAuto;
  absl::Duration timeout = absl::Seconds(30);  // of one collective
};

class GradientExchange {
 public:
  // Both must outlive the object. Each bucket is cut as all strategies cut it
  // (state/bucket_slices.h).
  GradientExchange(Communicator& communicator, const Layout& layout,
                   const GradientExchangeOptions& options);

  // Starts summing the buckets of `block` in place, those that are frozen left out. Each block once
  // per step, in the same order on every rank. `gradients` (the whole flat space) belongs to the
  // exchange until Finish.
  void Start(Step step, int block, absl::Span<float> gradients);

  // Waits until every bucket started is summed: this rank has prepared the step.
  absl::Status Finish();

  // The small all-reduce that commits the step.
  absl::StatusOr<CommitRecord> Commit(Step step, Epoch epoch,
                                      const CommitContribution& contribution);

  // Sums evaluation results over ranks: {loss_sum, correct, samples}.
  struct Evaluation {
    double loss_sum = 0;
    int64_t correct = 0;
    int64_t samples = 0;
  };
  absl::StatusOr<Evaluation> SumEvaluation(Step step, const Evaluation& mine);

  // The range of the flat space whose norm this rank contributes.
  Range NormRange() const;

  // Time spent blocked in Finish and Commit since the last call.
  absl::Duration TakeWaited();

  // Of the collective that failed last, the rank held responsible, if one is known.
  std::optional<Rank> culprit() const { return culprit_; }

 private:
  absl::Status WaitFor(Work& work);

  Communicator& communicator_;
  const Layout& layout_;
  const GradientExchangeOptions options_;
  const BucketSlices slices_;
  std::vector<Work> works_;
  absl::Duration waited_;
  std::optional<Rank> culprit_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_SYNC_GRADIENT_EXCHANGE_H_
