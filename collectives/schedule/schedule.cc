#include "collectives/schedule/schedule.h"

#include "base/check.h"

namespace muster {

bool Reduces(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kReduce:
    case Collective::kPush:
      return true;
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kBarrier:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
    case Collective::kSendReceive:
    case Collective::kPull:
      return false;
  }
  return false;
}

bool InputIsChunk(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kGather ||
         collective == Collective::kPull;
}

bool OutputIsChunk(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kScatter ||
         collective == Collective::kPush;
}

const char* Name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kReduce:
      return "reduce";
    case Collective::kGather:
      return "gather";
    case Collective::kScatter:
      return "scatter";
    case Collective::kAllToAll:
      return "all-to-all";
    case Collective::kSendReceive:
      return "send-receive";
    case Collective::kPush:
      return "push";
    case Collective::kPull:
      return "pull";
  }
  return "unknown collective";
}

const char* Name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kRecursiveDoubling:
      return "recursive-doubling";
    case Algorithm::kHalvingDoubling:
      return "halving-doubling";
    case Algorithm::kDoubleTree:
      return "double-tree";
    case Algorithm::kHierarchical:
      return "hierarchical";
    case Algorithm::kStar:
      return "star";
    case Algorithm::kBruck:
      return "bruck";
    case Algorithm::kBinomialTree:
      return "binomial-tree";
    case Algorithm::kWindow:
      return "window";
    case Algorithm::kScatterAllGather:
      return "scatter-all-gather";
    case Algorithm::kOneShot:
      return "one-shot";
  }
  return "unknown algorithm";
}

const char* Name(StepKind kind) {
  switch (kind) {
    case StepKind::kSend:
      return "send";
    case StepKind::kRecv:
      return "recv";
    case StepKind::kRecvReduce:
      return "recv-reduce";
    case StepKind::kCopy:
      return "copy";
    case StepKind::kReduce:
      return "reduce";
  }
  return "unknown step";
}

const char* Name(BufferName buffer) {
  switch (buffer) {
    case BufferName::kInput:
      return "input";
    case BufferName::kOutput:
      return "output";
    case BufferName::kScratch:
      return "scratch";
  }
  return "unknown buffer";
}

std::vector<Slice> SlicesReadBy(const ScheduleStep& step) {
  switch (step.kind) {
    case StepKind::kSend:
    case StepKind::kRecvReduce:
    case StepKind::kCopy:
      return {step.source};
    case StepKind::kRecv:
      return {};
    case StepKind::kReduce:
      return step.sources;
  }
  return {};
}

Chunk ChunkOf(int64_t total, int parts, int index) {
  MUSTER_CHECK(total >= 0 && parts >= 1 && index >= 0 && index < parts)
      << "total " << total << ", parts " << parts << ", index " << index;
  const int64_t small = total / parts;
  const int64_t larger = total % parts;  // how many chunks have one element more
  return {.offset = index * small + (index < larger ? index : larger),
          .count = small + (index < larger ? 1 : 0)};
}

}  // namespace muster
