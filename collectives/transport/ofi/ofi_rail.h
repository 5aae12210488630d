// One rail: a domain of the provider with its endpoint, address table and completion queue.
//
// Posting never blocks: it returns false when the provider, or this rail's own count of outstanding
// operations, asks to try again after reading completions. The completion queue has room for every
// operation that may be outstanding and every immediate that peers have leave to send, so it can't
// overrun. Errors are UNAVAILABLE with the provider's text. One thread at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_RAIL_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_RAIL_H_

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "collectives/transport/ofi/ofi_provider.h"

namespace muster {

// What a completion points back to. Must stay in place while the operation is outstanding.
struct OfiOperation {
  enum class Kind : uint8_t { kReceive, kSend, kWrite };
  fi_context2 reserved_for_provider = {};  // first: its address is the operation's
  Kind kind = Kind::kReceive;
  Rank peer = -1;  // of a send or write
  uint32_t index = 0;
};

struct OfiCompletion {
  OfiOperation* operation = nullptr;  // null: an immediate arrived
  uint32_t immediate = 0;
  size_t length = 0;    // of a receive
  absl::Status status;  // of the operation
};

template <typename T>
struct CloseFid {
  void operator()(T* object) const { fi_close(&object->fid); }
};
template <typename T>
using OfiHandle = std::unique_ptr<T, CloseFid<T>>;

// Registered memory. Unregistered when destroyed.
class OfiRegion {
 public:
  OfiRegion() = default;
  OfiRegion(OfiHandle<fid_mr> region, const std::byte* start, bool by_virtual_address)
      : region_(std::move(region)), start_(start), by_virtual_address_(by_virtual_address) {}
  void* descriptor() const { return region_ == nullptr ? nullptr : fi_mr_desc(region_.get()); }
  uint64_t key() const { return fi_mr_key(region_.get()); }
  // How peers address that byte of the region.
  uint64_t AddressOf(const std::byte* at) const {
    return by_virtual_address_ ? reinterpret_cast<uint64_t>(at)
                               : static_cast<uint64_t>(at - start_);
  }

 private:
  OfiHandle<fid_mr> region_;
  const std::byte* start_ = nullptr;
  bool by_virtual_address_ = false;
};

class OfiRail {
 public:
  struct Sizes {
    int receives = 0;    // posted at a time
    int immediates = 0;  // that peers may have leave for
    int peers = 0;
  };
  static absl::StatusOr<std::unique_ptr<OfiRail>> Open(const fi_info* info, const Sizes& sizes);

  // The endpoint's address, opaque.
  const std::string& address() const { return address_; }
  // It is an IP address with a port.
  bool at_ip_address() const;
  absl::StatusOr<fi_addr_t> Insert(const std::string& address);

  size_t inject_bytes() const { return info_->tx_attr->inject_size; }
  int64_t max_message_bytes() const;
  // A write may carry 4 bytes to its target.
  bool has_immediates() const { return info_->domain_attr->cq_data_size >= sizeof(uint32_t); }
  // Memory that operations read or write locally must be registered.
  bool needs_local_registration() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  // Registration pins pages.
  bool pins_memory() const { return (info_->domain_attr->mr_mode & FI_MR_ALLOCATED) != 0; }
  // Operations other than receives that are outstanding.
  int outstanding() const { return outstanding_; }

  // Ends all operations: nothing is read or written any more. Regions that are bound to endpoints
  // must be gone before; with `regions_gone` all are. Else those of other providers may follow.
  void CloseEndpoint(bool regions_gone);

  absl::StatusOr<OfiRegion> Register(const std::byte* start, size_t size, uint64_t access);

  absl::StatusOr<bool> PostReceive(std::byte* buffer, size_t size, void* descriptor,
                                   OfiOperation* operation);
  absl::StatusOr<bool> PostSend(fi_addr_t to, const std::byte* bytes, size_t size, void* descriptor,
                                OfiOperation* operation);
  // Requires: size <= inject_bytes(). Has no completion; the bytes are free at once.
  absl::StatusOr<bool> Inject(fi_addr_t to, const std::byte* bytes, size_t size);
  struct Write {
    fi_addr_t to = FI_ADDR_UNSPEC;
    const std::byte* bytes = nullptr;
    size_t size = 0;
    void* descriptor = nullptr;
    uint64_t address = 0;
    uint64_t key = 0;
    uint32_t immediate = 0;
    bool with_immediate = false;  // else it completes once delivered
  };
  absl::StatusOr<bool> PostWrite(const Write& write, OfiOperation* operation);

  // Appends what has completed, a few dozen at most, and lets the provider make progress.
  absl::Status Read(std::vector<OfiCompletion>* completions);

 private:
  OfiRail() = default;
  absl::Status ReadError(std::vector<OfiCompletion>* completions);

  OfiInfo info_;
  OfiHandle<fid_fabric> fabric_;
  OfiHandle<fid_domain> domain_;
  OfiHandle<fid_av> addresses_;
  OfiHandle<fid_cq> queue_;
  OfiHandle<fid_ep> endpoint_;  // after all it is bound to: closed first
  std::string address_;
  uint64_t next_key_ = 1;
  int outstanding_ = 0;
  int max_outstanding_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_RAIL_H_
