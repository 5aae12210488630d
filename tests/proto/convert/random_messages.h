// Random valid control messages for property tests, a pure function of the generator's state.
#ifndef MUSTER_TESTS_PROTO_CONVERT_RANDOM_MESSAGES_H_
#define MUSTER_TESTS_PROTO_CONVERT_RANDOM_MESSAGES_H_

#include <random>

#include "base/control/messages.h"
#include "proto/convert/control.h"

namespace muster {

WorkerMessage RandomWorkerMessage(std::mt19937_64& random);
Directive RandomDirective(std::mt19937_64& random);

}  // namespace muster

#endif  // MUSTER_TESTS_PROTO_CONVERT_RANDOM_MESSAGES_H_
