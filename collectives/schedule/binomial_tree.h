// The binomial tree that broadcast, reduce, gather and scatter share (Thakur, Rabenseifner and
// Gropp 2005, section 4). Ranks are numbered from the root on: number v hangs below v without its
// lowest set bit, and 2^k below that bit are its children v + 2^k. Its subtree are the numbers from
// v on. Pure functions.
#ifndef MUSTER_COLLECTIVES_SCHEDULE_BINOMIAL_TREE_H_
#define MUSTER_COLLECTIVES_SCHEDULE_BINOMIAL_TREE_H_

#include <vector>

namespace muster::schedule_internal {

struct BinomialPlace {
  int parent = -1;            // -1: the root
  int span = 1;               // numbers in the subtree, this one included
  std::vector<int> children;  // falling: the largest subtree first
};

// Requires: 0 <= number < size.
BinomialPlace BinomialPlaceOf(int number, int size);

}  // namespace muster::schedule_internal

#endif  // MUSTER_COLLECTIVES_SCHEDULE_BINOMIAL_TREE_H_
