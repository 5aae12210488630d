// How a bucket is cut into the blocks in which its gradient is coded (gradient_codec.h): what
// trains of it, from each beginning on. So blocks belong to the layout, as buckets do, and what is
// frozen is neither coded nor sent, nor disturbs what trains beside it.
//
// A value; immutable after construction, so thread-safe.
#ifndef MUSTER_WORKER_COMPRESSION_BLOCK_CUT_H_
#define MUSTER_WORKER_COMPRESSION_BLOCK_CUT_H_

#include <cstdint>
#include <vector>

#include "state/layout.h"
#include "state/range.h"
#include "worker/compression/gradient_codec.h"

namespace muster {

class BlockCut {
 public:
  BlockCut(const Layout& layout, int bucket, const GradientCodec& codec);

  struct Block {
    Range elements;        // in the flat space
    int64_t bytes_at = 0;  // where its code begins in that of the bucket
    int64_t bytes = 0;
  };
  Block At(int block) const;
  // Blocks [first, last).
  struct Blocks {
    int first = 0;
    int last = 0;
    bool operator==(const Blocks&) const = default;
  };
  Blocks all() const { return {0, count_}; }
  // Those with an element in `range`.
  Blocks Touching(Range range) const;
  // Of their codes.
  int64_t BytesOf(Blocks blocks) const {
    return BytesBefore(blocks.last) - BytesBefore(blocks.first);
  }
  // Where a block begins among the codes of `blocks`. Requires: it is one of them.
  int64_t BytesAt(int block, Blocks blocks) const {
    return BytesBefore(block) - BytesBefore(blocks.first);
  }

 private:
  // Elements that train, cut from the first on.
  struct Segment {
    Range elements;
    int first_block = 0;
    int64_t bytes_at = 0;
  };
  const Segment& SegmentOf(int block) const;
  int64_t BytesBefore(int block) const;

  int64_t block_elements_;
  int64_t block_bytes_;  // of whole ones
  int count_ = 0;
  int64_t bytes_ = 0;
  GradientCodec codec_;
  std::vector<Segment> segments_;  // in order of offset
};

}  // namespace muster

#endif  // MUSTER_WORKER_COMPRESSION_BLOCK_CUT_H_
