// One line of text for events and actions, for traces.
#ifndef MUSTER_TESTS_SIM_DESCRIBE_H_
#define MUSTER_TESTS_SIM_DESCRIBE_H_

#include <string>

#include "base/control/messages.h"
#include "server/core/events.h"
#include "tests/sim/model_worker.h"
#include "worker/core/events.h"

namespace muster::sim {

std::string Describe(const StateTag& tag);  // "1.2@3": branch, step, epoch
std::string Describe(const View& view);     // "view 3 [a b] from 1.2@3 hold"
std::string Describe(const Directive& directive);
std::string Describe(const WorkerStatus& status);
std::string Describe(const PersistentRecord& record);
std::string Describe(const coordinator::Action& action);  // incarnations as small numbers
std::string Describe(const worker::Action& action);
std::string Describe(const Op& op);
std::string Describe(const coordinator::TimerId& id);

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_DESCRIBE_H_
