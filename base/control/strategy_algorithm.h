// By which algorithms the collectives of a strategy can go. Pure.
#ifndef MUSTER_BASE_CONTROL_STRATEGY_ALGORITHM_H_
#define MUSTER_BASE_CONTROL_STRATEGY_ALGORITHM_H_

#include "base/control/strategy.h"

namespace muster {

// Of the strategy's path and stage; what it names itself does not matter.
bool Takes(const Strategy& strategy, SyncAlgorithm algorithm);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_STRATEGY_ALGORITHM_H_
