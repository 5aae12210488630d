#include "collectives/schedule/double_tree.h"

#include <array>

#include "collectives/schedule/builder.h"

namespace muster::schedule_internal {
namespace {

// In the first tree: the lowest set bit moves up by one; where that rank does not exist, it goes.
int ParentInOrder(int number, int size) {
  if (number == 0) return -1;
  const int bit = number & -number;
  const int higher = (number ^ bit) | (bit << 1);
  return higher < size ? higher : number ^ bit;
}

// Numbers of the first tree to ranks of `tree`.
int RankOf(int tree, int number, int size) {
  if (tree == 0) return number;
  return size % 2 == 0 ? size - 1 - number : Wrap(number + 1, size);
}

int NumberOf(int tree, Rank rank, int size) {
  if (tree == 0) return rank;
  return size % 2 == 0 ? size - 1 - rank : Wrap(rank - 1, size);
}

}  // namespace

TreePlace DoubleTreePlace(int tree, Rank rank, int size) {
  TreePlace place;
  const int number = NumberOf(tree, rank, size);
  if (number != 0) place.parent = RankOf(tree, ParentInOrder(number, size), size);
  // Children stand at a power of two before or behind: at most two of these are its own.
  for (int distance = 1; distance < size; distance *= 2) {
    for (const int child : {number - distance, number + distance}) {
      if (child <= 0 || child >= size || ParentInOrder(child, size) != number) continue;
      place.children.push_back(RankOf(tree, child, size));
    }
  }
  return place;
}

Schedule DoubleTreeAllReduce(const ScheduleRequest& request) {
  ScheduleBuilder builder(request);
  const Slice input = builder.WholeInput();
  const Slice output = builder.WholeOutput();
  if (request.size == 1) {
    builder.AddCopy(input, output);
    return builder.Take();
  }
  std::array<TreePlace, 2> places;
  std::array<Chunk, 2> halves;
  for (int tree = 0; tree < 2; ++tree) {
    places[tree] = DoubleTreePlace(tree, request.rank, request.size);
    halves[tree] = ChunkOf(input.count, 2, tree);
  }
  // Both trees reduce before either broadcasts, so that a pair joined in both is not kept waiting.
  for (int tree = 0; tree < 2; ++tree) {
    const auto& [parent, children] = places[tree];
    const Slice sum = Part(output, halves[tree].offset, halves[tree].count);
    Slice current = Part(input, halves[tree].offset, halves[tree].count);
    for (const Rank child : children) {
      const bool last = parent < 0 && child == children.back();
      builder.Add(RecvReduce(child, current, sum, last));
      current = sum;
    }
    if (parent >= 0) builder.Add(Send(parent, current));
  }
  for (int tree = 0; tree < 2; ++tree) {
    const auto& [parent, children] = places[tree];
    const Slice sum = Part(output, halves[tree].offset, halves[tree].count);
    if (parent >= 0) builder.Add(Recv(parent, sum));
    for (const Rank child : children) builder.Add(Send(child, sum));
  }
  return builder.Take();
}

}  // namespace muster::schedule_internal
