#include "collectives/transport/ofi/ofi_provider.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/topology/read_topology.h"
#include "collectives/transport/socket.h"

namespace muster {
namespace {

constexpr const char* kAutomatic[] = {"efa", "tcp", "net", "tcp;ofi_rxm"};

// What is asked for. Providers answer with what they need of it.
OfiInfo MakeHints(absl::string_view provider) {
  OfiInfo hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  // The shm provider offers neither by name.
  if (provider != "shm") hints->caps |= FI_LOCAL_COMM | FI_REMOTE_COMM;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // One thread at a time, by the mesh's lock.
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->msg_order = FI_ORDER_NONE;
  hints->rx_attr->msg_order = FI_ORDER_NONE;
  if (!provider.empty()) hints->fabric_attr->prov_name = strdup(std::string(provider).c_str());
  return hints;
}

// All that `provider` (all providers where empty) offers, at `node` where it is not empty.
std::vector<OfiInfo> Query(absl::string_view provider, const std::string& node) {
  const OfiInfo hints = MakeHints(provider);
  fi_info* list = nullptr;
  const int error =
      fi_getinfo(FI_VERSION(1, 17), node.empty() ? nullptr : node.c_str(), nullptr,
                 node.empty() ? 0 : static_cast<uint64_t>(FI_SOURCE), hints.get(), &list);
  std::vector<OfiInfo> offers;
  if (error != 0) return offers;
  for (fi_info* info = list; info != nullptr; info = info->next) {
    // A hint "tcp" is answered with layered providers, too ("tcp;ofi_rxm").
    if (!provider.empty() && provider != info->fabric_attr->prov_name) continue;
    // Sends of this fabric are limited to one MTU.
    if (absl::string_view(info->fabric_attr->name) == "efa-direct") continue;
    offers.emplace_back(fi_dupinfo(info));
  }
  fi_freeinfo(list);
  return offers;
}

// What could be asked for by name on this machine.
std::string Available() {
  std::set<std::string> names;
  for (const char* provider : {"", "shm"}) {
    for (const OfiInfo& info : Query(provider, "")) names.insert(info->fabric_attr->prov_name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

std::string Version() {
  const uint32_t version = fi_version();
  return absl::StrCat("libfabric ", FI_MAJOR(version), ".", FI_MINOR(version));
}

bool HasIpAddresses(const std::vector<OfiInfo>& offers) {
  return std::any_of(offers.begin(), offers.end(),
                     [](const OfiInfo& info) { return HasIpAddress(*info); });
}

std::string DomainOf(const OfiInfo& info) { return info->domain_attr->name; }

// One rail per IP address or interface.
absl::Status AddIpRails(const std::string& provider, const std::vector<std::string>& rails,
                        OfiChoice* choice, std::vector<std::string>* names) {
  for (const std::string& rail : rails) {
    const auto address = ResolveBindHost(rail, 0);
    if (!address.ok()) {
      return absl::NotFoundError(
          absl::StrCat("no rail for provider ", provider, ": ", address.status().message()));
    }
    std::vector<OfiInfo> offers = Query(provider, address->Host());
    if (offers.empty()) {
      return absl::NotFoundError(absl::StrCat("provider ", provider, " (", Version(),
                                              ") has no endpoint at ", address->Host(), " ('", rail,
                                              "')"));
    }
    names->push_back(absl::StrCat(DomainOf(offers[0]), " (", address->Host(), ")"));
    choice->rails.push_back(std::move(offers[0]));
  }
  return absl::OkStatus();
}

std::string PciAddressOf(const fi_info& info) {
  if (info.nic == nullptr || info.nic->bus_attr == nullptr ||
      info.nic->bus_attr->bus_type != FI_BUS_PCI) {
    return "";
  }
  const fi_pci_attr& pci = info.nic->bus_attr->attr.pci;
  return absl::StrFormat("%04x:%02x:%02x.%x", pci.domain_id, pci.bus_id, pci.device_id,
                         pci.function_id);
}

// A rail for each domain, the nearest first, as many as are wanted. What tells near from far may be
// hidden.
void AddNearestRails(const OfiOptions& options, std::vector<OfiInfo> domains, OfiChoice* choice,
                     std::vector<std::string>* names) {
  HostTopology topology;
  if (domains.size() > 1) topology = ReadHostTopology().value_or(HostTopology());
  const DevicePlace from =
      options.near_device.empty() ? topology.process : PlaceOf(topology, options.near_device, "");
  std::vector<DevicePlace> places;
  for (const OfiInfo& info : domains) {
    places.push_back(PlaceOf(topology, PciAddressOf(*info), DomainOf(info)));
  }
  std::vector<size_t> order = NearestFirst(places, from);
  if (options.max_rails > 0 && order.size() > static_cast<size_t>(options.max_rails)) {
    order.resize(static_cast<size_t>(options.max_rails));
  }
  for (const size_t i : order) {
    const Nearness nearness = NearnessOf(places[i], from);
    names->push_back(DomainOf(domains[i]));
    if (nearness != Nearness::kUnknown) {
      absl::StrAppend(&names->back(), " (", Name(nearness), ")");
    }
    choice->rails.push_back(std::move(domains[i]));
  }
}

// One rail per domain, all or those named.
absl::Status AddDomainRails(const OfiOptions& options, std::vector<OfiInfo> offers,
                            OfiChoice* choice, std::vector<std::string>* names) {
  std::vector<std::string> known;
  std::vector<OfiInfo> domains;
  for (OfiInfo& info : offers) {
    if (std::find(known.begin(), known.end(), DomainOf(info)) != known.end()) continue;
    known.push_back(DomainOf(info));
    domains.push_back(std::move(info));
  }
  if (options.rails.empty()) {
    AddNearestRails(options, std::move(domains), choice, names);
    return absl::OkStatus();
  }
  for (const std::string& rail : options.rails) {
    const auto found = std::find(known.begin(), known.end(), rail);
    if (found == known.end()) {
      return absl::NotFoundError(absl::StrCat("provider ", choice->provider, " has no device '",
                                              rail, "'; it has ", absl::StrJoin(known, ", ")));
    }
    names->push_back(rail);
    choice->rails.emplace_back(fi_dupinfo(domains[found - known.begin()].get()));
  }
  return absl::OkStatus();
}

absl::StatusOr<OfiChoice> Choose(const std::string& provider, const OfiOptions& options,
                                 const std::string& host) {
  const std::vector<std::string>& rails = options.rails;
  std::vector<OfiInfo> offers = Query(provider, "");
  if (offers.empty()) {
    std::string why = absl::StrCat(Version(), " offers no provider '", provider,
                                   "' with reliable datagrams and RMA here");
    if (provider == "efa") {
      why = absl::StrCat("no EFA device (or no EFA provider in ", Version(), ") on this machine");
    }
    return absl::NotFoundError(absl::StrCat(why, "; available: ", Available()));
  }
  OfiChoice choice;
  choice.provider = provider;
  std::vector<std::string> names;
  if (HasIpAddresses(offers)) {
    MUSTER_RETURN_IF_ERROR(AddIpRails(
        provider, rails.empty() ? std::vector<std::string>{host} : rails, &choice, &names));
  } else {
    MUSTER_RETURN_IF_ERROR(AddDomainRails(options, std::move(offers), &choice, &names));
  }
  choice.explanation =
      absl::StrCat(provider, " (", Version(), ") over ", absl::StrJoin(names, ", "));
  return choice;
}

}  // namespace

bool HasIpAddress(const fi_info& info) {
  return info.addr_format == FI_SOCKADDR_IN || info.addr_format == FI_SOCKADDR_IN6 ||
         info.addr_format == FI_SOCKADDR;
}

absl::StatusOr<OfiChoice> ChooseOfiProvider(const OfiOptions& options, const std::string& host) {
  if (options.provider != "auto") return Choose(options.provider, options, host);
  std::vector<std::string> passed_over;
  for (const std::string candidate : kAutomatic) {
    if (Query(candidate, "").empty()) {
      passed_over.push_back(
          absl::StrCat(candidate, candidate == "efa" ? ": no device" : ": not in this library"));
      continue;
    }
    MUSTER_ASSIGN_OR_RETURN(OfiChoice choice, Choose(candidate, options, host));
    absl::StrAppend(
        &choice.explanation, "; auto took the first there is of ", absl::StrJoin(kAutomatic, ", "),
        passed_over.empty() ? "" : absl::StrCat(" (", absl::StrJoin(passed_over, ", "), ")"));
    return choice;
  }
  return absl::NotFoundError(absl::StrCat(Version(), " has none of the providers ",
                                          absl::StrJoin(kAutomatic, ", "),
                                          " here; available: ", Available()));
}

}  // namespace muster
