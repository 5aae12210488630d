#include "collectives/schedule/binomial_tree.h"

#include <algorithm>
#include <bit>

namespace muster::schedule_internal {

BinomialPlace BinomialPlaceOf(int number, int size) {
  BinomialPlace place;
  const int bit =
      number == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(size))) : number & -number;
  if (number != 0) place.parent = number - bit;
  place.span = std::min(bit, size - number);
  for (int distance = bit / 2; distance > 0; distance /= 2) {
    if (number + distance < size) place.children.push_back(number + distance);
  }
  return place;
}

}  // namespace muster::schedule_internal
