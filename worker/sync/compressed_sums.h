// Sums of compressed contributions to a gradient (worker/compression). Each worker codes its own
// once and sends the codes to whoever sums them; nothing is coded on the way. The sum is made in
// f32 in the canonical order, from the decoded contributions, and rounded once, to bf16.
//
// Who sums: the owner of each slice, as ever; where everybody is to have the sum, and p codes of
// the bucket are fewer bytes than one and its sums, everybody does for himself. The bits are the
// same.
//
// Memory: the codes of a bucket, those sent and those received, until it is summed; about the codes
// of two contributions in all where owners sum, of p + 1 where everybody does.
//
// One object serves one view; used by one thread.
#ifndef MUSTER_WORKER_SYNC_COMPRESSED_SUMS_H_
#define MUSTER_WORKER_SYNC_COMPRESSED_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/job_spec.h"
#include "collectives/engine/communicator.h"
#include "state/layout.h"
#include "state/range.h"
#include "state/view_map.h"
#include "worker/compression/block_cut.h"
#include "worker/compression/gradient_codec.h"

namespace muster {

class CompressedSums {
 public:
  // All must outlive the object. `shared`: everybody is to have every sum, not its owner alone.
  CompressedSums(Communicator& communicator, const Layout& layout, const ViewMap& map, bool shared,
                 const GradientCompression& compression);

  // Codes of one bucket on their way.
  struct Exchange {
    int bucket = 0;
    std::vector<std::byte> sent;
    std::vector<std::byte> received;
    Work work;
  };
  // Codes a contribution, that of the bucket from its first element on, and starts to send it. What
  // the codes lack is left there, if the codec carries. Null of a parameter server. In the same
  // order on every rank.
  Exchange Start(int bucket, float* contribution, const CollectiveOptions& options);

  // Whether all ranks sum all of a bucket, so that no sums need be handed on. The same everywhere.
  bool EverybodySums(int bucket) const;
  // What this rank sums of a bucket.
  Range SummedHere(int bucket) const;
  // Once the work of the exchange is done, well: sums into `sums`, in bf16, those of the bucket
  // from its first element on. What is frozen keeps its values. DATA_LOSS names the bucket and the
  // rank (`culprit()`) that sent what is no code.
  absl::Status Sum(Exchange exchange, uint16_t* sums);
  std::optional<Rank> culprit() const { return culprit_; }

 private:
  // Codes what each owner is to have, one after the other.
  void CodeForOwners(int bucket, float* contribution, std::vector<std::byte>& sent) const;
  void Encode(int bucket, int block, float* contribution, std::byte* bytes) const;
  std::vector<std::byte> TakeBuffer(int64_t bytes);

  Communicator& communicator_;
  const Layout& layout_;
  const ViewMap& map_;
  const bool shared_;
  const int workers_;
  const GradientCodec codec_;
  std::vector<BlockCut> cuts_;  // by bucket
  std::vector<std::vector<std::byte>> spare_;
  std::optional<Rank> culprit_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_SYNC_COMPRESSED_SUMS_H_
