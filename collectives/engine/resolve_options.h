// What a communicator's options stand for on the transport and the machine it has.
#ifndef MUSTER_COLLECTIVES_ENGINE_RESOLVE_OPTIONS_H_
#define MUSTER_COLLECTIVES_ENGINE_RESOLVE_OPTIONS_H_

#include <optional>

#include "collectives/engine/communicator.h"
#include "collectives/engine/window_plan.h"
#include "collectives/model/cost_model.h"
#include "collectives/transport/transport.h"

namespace muster {

// The options with their defaults filled in (communicator.h says which).
CommunicatorOptions ResolveOptions(CommunicatorOptions options, const Transport& transport);

// Of the transport's window, for resolved options. Where there is none: zeros; nothing.
WindowSizes WindowSizesOf(Transport& transport, const CommunicatorOptions& options);
std::optional<ChoiceRequest::Window> WindowChoiceOf(Transport& transport,
                                                    const CommunicatorOptions& options);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_RESOLVE_OPTIONS_H_
