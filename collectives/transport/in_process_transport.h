// A mesh whose ranks are threads of one process. A receiver copies or reduces straight from the
// sender's memory; nothing is buffered. Behaves as transport.h says.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_IN_PROCESS_TRANSPORT_H_
#define MUSTER_COLLECTIVES_TRANSPORT_IN_PROCESS_TRANSPORT_H_

#include <memory>
#include <vector>

#include "collectives/transport/transport.h"

namespace muster {

// Element r is rank r's end. The ends may outlive each other.
std::vector<std::unique_ptr<Transport>> MakeInProcessMesh(int world_size,
                                                          TransportLimits limits = {});

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_IN_PROCESS_TRANSPORT_H_
