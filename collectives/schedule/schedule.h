// A schedule: what each rank does in one collective, as data.
//
// A schedule says nothing of sockets, threads or element types. It is a list of steps over slices
// of three named buffers; collectives/engine executes it over any transport, in segments, so that a
// step may begin as soon as the elements it reads are there. The symbolic checker (checker.h)
// proves each one.
//
// Meaning. Steps of one rank take effect *as if* executed one after the other. An executor may
// overlap them wherever slices do not conflict (read after write, write after read, write after
// write are kept, segment by segment). A send and its receive name the same count; the n-th send
// from a to b matches the n-th receive of b from a. A schedule must complete when every send waits
// for its receive (rendezvous).
#ifndef MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_H_
#define MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace muster {

enum class BufferName : uint8_t {
  kInput,    // the caller's contribution; never written, unless input and output are one buffer
  kOutput,   // the caller's result
  kScratch,  // owned by the executor, Schedule::scratch_count elements
};

// Elements [offset, offset + count) of a buffer.
struct Slice {
  BufferName buffer = BufferName::kInput;
  int64_t offset = 0;
  int64_t count = 0;
  bool operator==(const Slice&) const = default;
};

enum class StepKind : uint8_t {
  kSend,        // send `source` to `peer`
  kRecv,        // receive into `target` from `peer`
  kRecvReduce,  // target = incoming (+) source, in that order; incoming comes from `peer`
  kCopy,        // target = source
  kReduce,      // target = sources[0] (+) sources[1] (+) ..., left to right, accumulated in f32 for
                // 16-bit types and rounded once
};

struct ScheduleStep {
  StepKind kind = StepKind::kCopy;
  Rank peer = -1;              // kSend, kRecv, kRecvReduce
  Slice source;                // kSend, kRecvReduce, kCopy
  Slice target;                // kRecv, kRecvReduce, kCopy, kReduce
  std::vector<Slice> sources;  // kReduce
  // kRecvReduce, kReduce: `target` now holds the whole sum of all ranks. An average divides here,
  // and only here (for 16-bit types inside the kReduce, before its one rounding), so that every
  // algorithm scales at the same place.
  bool completes_sum = false;
};

// The slices a step reads, in order.
std::vector<Slice> SlicesReadBy(const ScheduleStep& step);

// One rank's part. No step moves zero elements; within one step a target is equal to a source or
// disjoint from it, so an executor may cut every step into segments. Slices of different steps may
// overlap in any way.
struct Schedule {
  std::vector<ScheduleStep> steps;
  // Scratch holds nothing before its first write, except in a barrier, whose element 0 is read as
  // the rank's own token (any value; zero it).
  int64_t scratch_count = 0;
};

enum class Collective : uint8_t {
  kAllReduce = 1,      // input count n, output count n
  kReduceScatter = 2,  // input sum of counts, output counts[rank]
  kAllGather = 3,      // input counts[rank], output sum of counts
  kBroadcast = 4,      // input n on the root (ignored elsewhere), output n
  kBarrier = 5,        // no input, no output; tokens in scratch
  kReduce = 6,         // input n, output n on the root (none elsewhere)
  kGather = 7,         // input counts[rank], output sum of counts on the root (none elsewhere)
  kScatter = 8,        // input sum of counts on the root (ignored elsewhere), output counts[rank]
  kAllToAll = 9,       // input one block for each rank, output one block of each rank
  kSendReceive = 10,   // input n on the sender (the root), output n on the destination; other ranks
                       // take no part
  // The two halves of a step of parameter servers. Of the ranks the first are workers, which
  // contribute; the others are servers. Any rank may own a chunk.
  kPush = 11,  // input sum of counts on workers (none elsewhere), output counts[rank]
  kPull = 12,  // input counts[rank], output sum of counts on workers (none elsewhere)
};

inline constexpr Collective kAllCollectives[] = {
    Collective::kAllReduce,   Collective::kReduceScatter, Collective::kAllGather,
    Collective::kBroadcast,   Collective::kBarrier,       Collective::kReduce,
    Collective::kGather,      Collective::kScatter,       Collective::kAllToAll,
    Collective::kSendReceive, Collective::kPush,          Collective::kPull};

// The numeric values are wire format (fingerprints): never renumber. docs/algorithms.md says what
// each is and costs. The ring is a segmented one: executors cut every step into segments. The
// direct all-reduce is the sharded star, a parameter server of which every rank is a shard.
enum class Algorithm : uint8_t {
  kAuto = 0,  // the communicator picks, the same on every rank
  kRing = 1,
  kDirect = 2,
  kRecursiveDoubling = 3,
  kHalvingDoubling = 4,
  kDoubleTree = 5,
  kHierarchical = 6,
  kStar = 7,
  kBruck = 8,
  kBinomialTree = 9,
  kScatterAllGather = 10,
  kOneShot = 11,
  kWindow = 32,  // in memory that the ranks share (window_schedule.h); has no schedule of messages
};

// Combines contributions: all-reduce, reduce-scatter, reduce, push.
bool Reduces(Collective collective);
// A rank that gives has its own chunk of the vector alone: all-gather, gather, pull.
bool InputIsChunk(Collective collective);
// A rank that gets has its own chunk of the vector alone: reduce-scatter, scatter, push.
bool OutputIsChunk(Collective collective);

const char* Name(Collective collective);
const char* Name(Algorithm algorithm);
const char* Name(StepKind kind);
const char* Name(BufferName buffer);

// [offset, offset + count) of chunk `index` when `total` elements are cut into `parts`: the first
// total % parts chunks have one element more. Chunk c is owned by rank c.
struct Chunk {
  int64_t offset = 0;
  int64_t count = 0;
};
Chunk ChunkOf(int64_t total, int parts, int index);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_SCHEDULE_SCHEDULE_H_
