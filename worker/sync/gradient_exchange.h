// How the gradients of a step meet, bucket by bucket, while backward still runs: summed everywhere
// where every rank holds everything (all-reduce), or each slice for those who hold its shard
// (reduce-scatter, or push where members serve; then the owner hands it to its replicas). All sum
// by the same cut, in the same order, so they make the same bits (docs/algorithms.md). Where
// contributions are compressed they go to whoever sums them as they are (compressed_sums.h).
//
// With hybrid sharding each group sums its own contributions, and then those who hold the same
// shard sum theirs: the same bits on all of them, but not those of one group. Sums of a block cross
// from group to group while the next one is computed.
//
// One object serves one view. Used by one thread, except that the communicator may be aborted from
// any.
#ifndef MUSTER_WORKER_SYNC_GRADIENT_EXCHANGE_H_
#define MUSTER_WORKER_SYNC_GRADIENT_EXCHANGE_H_

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/control/messages.h"
#include "base/dtype.h"
#include "base/ids.h"
#include "base/job_spec.h"
#include "collectives/engine/communicator.h"
#include "state/layout.h"
#include "state/range.h"
#include "state/view_map.h"
#include "worker/sync/commit_exchange.h"
#include "worker/sync/compressed_sums.h"
#include "worker/sync/shard_mesh.h"

namespace muster {

struct GradientExchangeOptions {
  Algorithm algorithm = Algorithm::kAuto;
  absl::Duration timeout = absl::Seconds(30);  // of one collective
  DType dtype = DType::kF32;                   // of the gradients
  // Of contributions; then dtype, that of their sums, is kBF16.
  GradientCompression compression;
};

class GradientExchange {
 public:
  // All must outlive the object. Requires: the mesh is that of `view`; contributions are not
  // compressed where it has several groups.
  GradientExchange(const ShardMesh& mesh, const Layout& layout, const View& view,
                   const GradientExchangeOptions& options);

  // Starts summing the buckets of `block` in place, those that are frozen left out. `gradients` is
  // the block's, from its first element on (of a parameter server, which has none, room for them),
  // and belongs to the exchange until FinishBlock or Finish. Each block once per step, in the same
  // order on every rank, as are the calls of FinishBlock. Where contributions are compressed,
  // `contribution` is the block's in f32, and is the caller's again, with what its codes lack if
  // they carry (gradient_codec.h), when the call returns; `gradients` is then room for the sums.
  void Start(Step step, int block, void* gradients, float* contribution = nullptr);

  // Waits until a block is summed, as far as this rank holds it (elsewhere anything may stand).
  absl::Status FinishBlock(int block);
  // Waits until every block started is: this rank has prepared the step.
  absl::Status Finish();

  // What the ranks' squared norms make together, for those who must know it before the commit.
  absl::StatusOr<SquaredSum> SumSquares(Step step, const SquaredSum& mine);

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

  // The ranges of the flat space whose norm this rank contributes: all ranks' are the whole, once.
  const std::vector<Range>& NormRanges() const { return norm_ranges_; }

  // Time spent blocked in Finish and Commit since the last call.
  absl::Duration TakeWaited();

  // Of the collective that failed last, the rank held responsible, if one is known.
  std::optional<Rank> culprit() const { return culprit_; }

 private:
  // A block under way.
  struct Started {
    int block = 0;
    std::byte* gradients = nullptr;
    std::vector<int> buckets;                     // as completed
    std::vector<Work> sums;                       // of each
    std::vector<CompressedSums::Exchange> codes;  // instead, where contributions are compressed
    std::vector<Work> copies;  // of what was summed, to whoever else is to have it
    bool summed = false;
  };
  CollectiveOptions OptionsOf(std::string label) const;
  Work Sum(const Started& started, int bucket);
  // An element of the block's gradients.
  std::byte* At(const Started& started, int64_t element) const;
  absl::Status FinishSums(Started& started);
  absl::Status SumCodes(size_t index, Started& started);
  absl::Status FinishCopies(Started& started);
  // What this rank has summed of the bucket goes to whoever else holds its shard.
  void HandOn(int bucket, Started& started);
  void HandToReplicas(int bucket, Started& started);
  void SumAcross(int bucket, Started& started);
  absl::Status SumWords(Step step, const char* label, absl::Span<int64_t> words);
  absl::Status WaitFor(Work& work);

  const ShardMesh mesh_;
  Communicator& communicator_;  // of all
  const Layout& layout_;
  const GradientExchangeOptions options_;
  const ViewMap map_;
  const Strategy strategy_;
  const bool computes_;  // this rank contributes
  const Rank place_;     // whose slices are this rank's
  std::optional<CompressedSums> compressed_;
  // To whom this rank hands its slices, and from whom it gets theirs: one pair for each replica.
  std::vector<std::pair<Rank, Rank>> replicas_;
  std::vector<Range> norm_ranges_;
  Step step_ = 0;
  std::vector<Started> started_;  // in order
  absl::Status status_;           // of sums that Start waited for
  absl::Duration waited_;
  std::optional<Rank> culprit_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_SYNC_GRADIENT_EXCHANGE_H_
