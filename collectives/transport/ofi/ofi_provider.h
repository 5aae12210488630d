// Chooses a libfabric provider and its devices, and says why. Stateless, thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PROVIDER_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PROVIDER_H_

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/transport/ofi/ofi_transport.h"

namespace muster {

struct FreeOfiInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using OfiInfo = std::unique_ptr<fi_info, FreeOfiInfo>;

struct OfiChoice {
  std::string provider;
  std::vector<OfiInfo> rails;  // at least one
  std::string explanation;     // one line
};

// Its endpoints are at IP addresses with ports.
bool HasIpAddress(const fi_info& info);

// The requests of OfiOptions; `host` is an address of this machine, for where no rail is named.
// NOT_FOUND names what is there instead.
absl::StatusOr<OfiChoice> ChooseOfiProvider(const OfiOptions& options, const std::string& host);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PROVIDER_H_
