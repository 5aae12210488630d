// What strategies would take, as tables for people. Pure functions, thread-safe.
#ifndef MUSTER_CLIENT_OUTPUT_STRATEGY_TEXT_H_
#define MUSTER_CLIENT_OUTPUT_STRATEGY_TEXT_H_

#include <string>

#include "muster/v1/coordinator.pb.h"

namespace muster {

// Each candidate with its memory and time, and why the choice is what it is. Lines end with "\n".
std::string StrategyChoiceText(const v1::ExplainStrategyResponse& choice);

}  // namespace muster

#endif  // MUSTER_CLIENT_OUTPUT_STRATEGY_TEXT_H_
