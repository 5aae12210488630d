#include "collectives/schedule/rooted.h"

#include <algorithm>

#include "collectives/schedule/binomial_tree.h"
#include "collectives/schedule/builder.h"
#include "collectives/schedule/star.h"

namespace muster::schedule_internal {
namespace {

// The chunks of the subtree below (and with) a number, in the order of numbers. On the root they
// lie where ranks have them, so a subtree may be two pieces; elsewhere in one piece of scratch.
class Subtrees {
 public:
  Subtrees(ScheduleBuilder& builder, const Team& team, Slice on_root)
      : builder_(builder), team_(team), on_root_(on_root) {}

  BinomialPlace place() const { return BinomialPlaceOf(team_.index, team_.size()); }

  // Pieces of a child's subtree, as the two ends of its message see them alike.
  std::vector<Run> PiecesOf(int number) const {
    const int span = BinomialPlaceOf(number, team_.size()).span;
    return RunsOf(int64_t{team_.members[0]} + number, span, team_.size());
  }

  int64_t CountOf(const Run& run) const {
    return builder_.ChunkOffset(run.last) - builder_.ChunkOffset(run.first);
  }

  // A place in scratch for the own subtree. Not for leaves and the root.
  void TakeScratch() {
    int64_t count = 0;
    for (const Run& run : PiecesOf(team_.index)) count += CountOf(run);
    scratch_ = builder_.TakeScratch(count);
  }

  // Where a piece lies on this rank. Requires: it is of the own subtree.
  Slice At(const Run& run) const {
    if (team_.index == 0) return builder_.ChunksIn(on_root_, run);
    int64_t offset = 0;
    for (Rank rank = builder_.rank(); rank != run.first; rank = Wrap(rank + 1, team_.size())) {
      offset += builder_.ChunkCount(rank);
    }
    return Part(scratch_, offset, CountOf(run));
  }

 private:
  ScheduleBuilder& builder_;
  const Team& team_;
  const Slice on_root_;
  Slice scratch_;
};

}  // namespace

Schedule DirectReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  AddStarReduce(builder);
  return builder.Take();
}

Schedule BinomialReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Team team = builder.Everyone(request.root);
  BinomialPlace place = BinomialPlaceOf(team.index, request.size);
  const bool is_root = place.parent < 0;
  Slice current = builder.WholeInput();
  if (request.size == 1) builder.AddCopy(current, builder.WholeOutput());
  Slice sum = builder.WholeOutput();
  if (!is_root && !place.children.empty()) sum = builder.TakeScratch(current.count);
  // The smallest subtree is ready first.
  std::reverse(place.children.begin(), place.children.end());
  for (const int child : place.children) {
    builder.Add(
        RecvReduce(team.At(child), current, sum, is_root && child == place.children.back()));
    current = sum;
  }
  if (!is_root) builder.Add(Send(team.At(place.parent), current));
  return builder.Take();
}

Schedule DirectGather(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Slice own = builder.Input(request.rank);
  if (request.rank != request.root) {
    builder.Add(Send(request.root, own));
    return builder.Take();
  }
  for (int ahead = 1; ahead < request.size; ++ahead) {
    const Rank from = Wrap(request.root + ahead, request.size);
    builder.Add(Recv(from, builder.Output(from)));
  }
  builder.AddCopy(own, builder.Output(request.rank));
  return builder.Take();
}

Schedule BinomialGather(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Team team = builder.Everyone(request.root);
  Subtrees subtrees(builder, team, builder.WholeOutput());
  const BinomialPlace place = subtrees.place();
  const bool is_leaf = place.parent >= 0 && place.children.empty();
  const Slice own = builder.Input(request.rank);
  if (is_leaf) {
    builder.Add(Send(team.At(place.parent), own));
    return builder.Take();
  }
  if (place.parent >= 0) subtrees.TakeScratch();
  builder.AddCopy(own, subtrees.At({request.rank, request.rank + 1}));
  for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
    for (const Run& run : subtrees.PiecesOf(*child)) {
      builder.Add(Recv(team.At(*child), subtrees.At(run)));
    }
  }
  if (place.parent >= 0) {
    for (const Run& run : subtrees.PiecesOf(team.index)) {
      builder.Add(Send(team.At(place.parent), subtrees.At(run)));
    }
  }
  return builder.Take();
}

Schedule DirectScatter(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Slice own = builder.Output(request.rank);
  if (request.rank != request.root) {
    builder.Add(Recv(request.root, own));
    return builder.Take();
  }
  for (int ahead = 1; ahead < request.size; ++ahead) {
    const Rank to = Wrap(request.root + ahead, request.size);
    builder.Add(Send(to, builder.Input(to)));
  }
  builder.AddCopy(builder.Input(request.rank), own);
  return builder.Take();
}

Schedule BinomialScatter(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Team team = builder.Everyone(request.root);
  Subtrees subtrees(builder, team, builder.WholeInput());
  const BinomialPlace place = subtrees.place();
  const bool is_leaf = place.parent >= 0 && place.children.empty();
  const Slice own = builder.Output(request.rank);
  if (is_leaf) {
    builder.Add(Recv(team.At(place.parent), own));
    return builder.Take();
  }
  if (place.parent >= 0) {
    subtrees.TakeScratch();
    for (const Run& run : subtrees.PiecesOf(team.index)) {
      builder.Add(Recv(team.At(place.parent), subtrees.At(run)));
    }
  }
  for (const int child : place.children) {
    for (const Run& run : subtrees.PiecesOf(child)) {
      builder.Add(Send(team.At(child), subtrees.At(run)));
    }
  }
  builder.AddCopy(subtrees.At({request.rank, request.rank + 1}), own);
  return builder.Take();
}

}  // namespace muster::schedule_internal
