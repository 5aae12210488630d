#include "collectives/transport/ofi/ofi_rail.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/transport.h"

namespace muster {
namespace {

constexpr size_t kMaxAddressBytes = 512;
constexpr int kMaxOutstanding = 1024;
constexpr int kBatch = 16;

absl::Status FabricError(absl::string_view what, int64_t code) {
  const std::string text =
      absl::StrCat("libfabric: ", what, ": ", fi_strerror(static_cast<int>(-code)));
  if (code == -FI_ENOMEM || code == -FI_EMFILE) {
    return absl::ResourceExhaustedError(
        absl::StrCat(text, " (is the limit of locked memory, ulimit -l, too low?)"));
  }
  return absl::UnavailableError(text);
}

absl::Status Check(absl::string_view what, int64_t code) {
  return code == 0 ? absl::OkStatus() : FabricError(what, code);
}

// Of a posting: done, to be tried again, or broken.
absl::StatusOr<bool> Posted(absl::string_view what, int64_t code) {
  if (code == 0) return true;
  if (code == -FI_EAGAIN) return false;
  return FabricError(what, code);
}

// Retry for ever: credits keep a live receiver ready, and a dead one is noticed elsewhere. The
// default gives up with an error after a few rounds when a receiver is slow.
absl::Status SetOptions([[maybe_unused]] const fi_info& info, [[maybe_unused]] fid_ep* endpoint) {
#ifdef MUSTER_HAVE_FI_OPT_EFA_RNR_RETRY
  if (absl::string_view(info.fabric_attr->prov_name) == "efa") {
    size_t for_ever = 7;  // The device's word for no limit.
    const int code = fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_EFA_RNR_RETRY, &for_ever,
                               sizeof(for_ever));
    // Devices without the capability keep the provider's own retry.
    if (code != 0 && code != -FI_ENOSYS && code != -FI_EOPNOTSUPP) {
      return FabricError("setting FI_OPT_EFA_RNR_RETRY", code);
    }
  }
#endif
  return absl::OkStatus();
}

template <typename T, typename Open>
absl::Status OpenInto(OfiHandle<T>* handle, absl::string_view what, Open open) {
  T* raw = nullptr;
  MUSTER_RETURN_IF_ERROR(Check(what, open(&raw)));
  handle->reset(raw);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<OfiRail>> OfiRail::Open(const fi_info* offer, const Sizes& sizes) {
  std::unique_ptr<OfiRail> rail(new OfiRail);
  rail->info_.reset(fi_dupinfo(offer));
  fi_info* const info = rail->info_.get();
  MUSTER_RETURN_IF_ERROR(OpenInto(&rail->fabric_, "opening the fabric", [&](fid_fabric** out) {
    return fi_fabric(info->fabric_attr, out, nullptr);
  }));
  MUSTER_RETURN_IF_ERROR(OpenInto(&rail->domain_, "opening the domain", [&](fid_domain** out) {
    return fi_domain(rail->fabric_.get(), info, out, nullptr);
  }));
  fi_av_attr addresses = {};
  addresses.type =
      info->domain_attr->av_type != FI_AV_UNSPEC ? info->domain_attr->av_type : FI_AV_TABLE;
  addresses.count = static_cast<size_t>(std::max(sizes.peers, 1));
  MUSTER_RETURN_IF_ERROR(OpenInto(
      &rail->addresses_, "opening the address table",
      [&](fid_av** out) { return fi_av_open(rail->domain_.get(), &addresses, out, nullptr); }));
  rail->max_outstanding_ =
      static_cast<int>(std::min<size_t>(std::max<size_t>(info->tx_attr->size, 1), kMaxOutstanding));
  fi_cq_attr queue = {};
  queue.size =
      static_cast<size_t>(sizes.receives + sizes.immediates + rail->max_outstanding_ + kBatch);
  queue.format = FI_CQ_FORMAT_DATA;
  queue.wait_obj = FI_WAIT_NONE;
  MUSTER_RETURN_IF_ERROR(OpenInto(&rail->queue_, "opening the completion queue", [&](fid_cq** out) {
    return fi_cq_open(rail->domain_.get(), &queue, out, nullptr);
  }));
  MUSTER_RETURN_IF_ERROR(OpenInto(&rail->endpoint_, "opening the endpoint", [&](fid_ep** out) {
    return fi_endpoint(rail->domain_.get(), info, out, nullptr);
  }));
  fid_ep* const endpoint = rail->endpoint_.get();
  MUSTER_RETURN_IF_ERROR(
      Check("binding the address table", fi_ep_bind(endpoint, &rail->addresses_->fid, 0)));
  MUSTER_RETURN_IF_ERROR(Check("binding the completion queue",
                               fi_ep_bind(endpoint, &rail->queue_->fid, FI_TRANSMIT | FI_RECV)));
  MUSTER_RETURN_IF_ERROR(SetOptions(*info, endpoint));
  MUSTER_RETURN_IF_ERROR(Check("enabling the endpoint", fi_enable(endpoint)));
  std::string address(kMaxAddressBytes, '\0');
  size_t length = address.size();
  MUSTER_RETURN_IF_ERROR(Check("asking for the endpoint's address",
                               fi_getname(&endpoint->fid, address.data(), &length)));
  address.resize(length);
  rail->address_ = std::move(address);
  return rail;
}

bool OfiRail::at_ip_address() const { return HasIpAddress(*info_); }

absl::StatusOr<fi_addr_t> OfiRail::Insert(const std::string& address) {
  fi_addr_t handle = FI_ADDR_UNSPEC;
  const int inserted = fi_av_insert(addresses_.get(), address.data(), 1, &handle, 0, nullptr);
  if (inserted != 1) {
    return FabricError("inserting a peer's address", inserted < 0 ? inserted : -FI_EINVAL);
  }
  return handle;
}

void OfiRail::CloseEndpoint(bool regions_gone) {
  if (regions_gone || (info_->domain_attr->mr_mode & FI_MR_ENDPOINT) == 0) endpoint_.reset();
}

int64_t OfiRail::max_message_bytes() const {
  return static_cast<int64_t>(
      std::min<size_t>(info_->ep_attr->max_msg_size, static_cast<size_t>(kMaxMessageBytes)));
}

absl::StatusOr<OfiRegion> OfiRail::Register(const std::byte* start, size_t size, uint64_t access) {
  const int mode = info_->domain_attr->mr_mode;
  const uint64_t wanted_key = (mode & FI_MR_PROV_KEY) != 0 ? 0 : next_key_++;
  OfiHandle<fid_mr> region;
  MUSTER_RETURN_IF_ERROR(
      OpenInto(&region, absl::StrCat("registering ", size, " bytes of memory"), [&](fid_mr** out) {
        return fi_mr_reg(domain_.get(), start, size, access, 0, wanted_key, 0, out, nullptr);
      }));
  if ((mode & FI_MR_ENDPOINT) != 0) {
    MUSTER_RETURN_IF_ERROR(
        Check("binding a memory region", fi_mr_bind(region.get(), &endpoint_->fid, 0)));
    MUSTER_RETURN_IF_ERROR(Check("enabling a memory region", fi_mr_enable(region.get())));
  }
  return OfiRegion(std::move(region), start, (mode & FI_MR_VIRT_ADDR) != 0);
}

absl::StatusOr<bool> OfiRail::PostReceive(std::byte* buffer, size_t size, void* descriptor,
                                          OfiOperation* operation) {
  operation->kind = OfiOperation::Kind::kReceive;
  return Posted("posting a receive", fi_recv(endpoint_.get(), buffer, size, descriptor,
                                             FI_ADDR_UNSPEC, &operation->reserved_for_provider));
}

absl::StatusOr<bool> OfiRail::PostSend(fi_addr_t to, const std::byte* bytes, size_t size,
                                       void* descriptor, OfiOperation* operation) {
  if (outstanding_ >= max_outstanding_) return false;
  operation->kind = OfiOperation::Kind::kSend;
  MUSTER_ASSIGN_OR_RETURN(const bool posted,
                          Posted("sending", fi_send(endpoint_.get(), bytes, size, descriptor, to,
                                                    &operation->reserved_for_provider)));
  outstanding_ += posted ? 1 : 0;
  return posted;
}

absl::StatusOr<bool> OfiRail::Inject(fi_addr_t to, const std::byte* bytes, size_t size) {
  return Posted("injecting", fi_inject(endpoint_.get(), bytes, size, to));
}

absl::StatusOr<bool> OfiRail::PostWrite(const Write& write, OfiOperation* operation) {
  if (outstanding_ >= max_outstanding_) return false;
  operation->kind = OfiOperation::Kind::kWrite;
  iovec local = {const_cast<std::byte*>(write.bytes), write.size};
  void* descriptor = write.descriptor;
  fi_rma_iov remote = {};
  remote.addr = write.address;
  remote.len = write.size;
  remote.key = write.key;
  fi_msg_rma message = {};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = write.to;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &operation->reserved_for_provider;
  message.data = write.immediate;
  const uint64_t flags =
      FI_COMPLETION | (write.with_immediate ? FI_REMOTE_CQ_DATA : FI_DELIVERY_COMPLETE);
  MUSTER_ASSIGN_OR_RETURN(const bool posted,
                          Posted("writing", fi_writemsg(endpoint_.get(), &message, flags)));
  outstanding_ += posted ? 1 : 0;
  return posted;
}

absl::Status OfiRail::ReadError(std::vector<OfiCompletion>* completions) {
  fi_cq_err_entry entry = {};  // Zeroed: err_data_size above 0 would ask for a copy.
  const int64_t got = fi_cq_readerr(queue_.get(), &entry, 0);
  if (got == -FI_EAGAIN) return absl::OkStatus();
  if (got < 0) return FabricError("reading an error", got);
  char text[256] = "";
  fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, text, sizeof(text));
  OfiCompletion completion;
  completion.status =
      absl::UnavailableError(absl::StrCat("libfabric: ", fi_strerror(entry.err), " (", text, ")"));
  if (entry.op_context == nullptr) return completion.status;
  completion.operation = static_cast<OfiOperation*>(entry.op_context);
  if (completion.operation->kind != OfiOperation::Kind::kReceive) --outstanding_;
  completions->push_back(std::move(completion));
  return absl::OkStatus();
}

absl::Status OfiRail::Read(std::vector<OfiCompletion>* completions) {
  fi_cq_data_entry entries[kBatch];
  const int64_t got = fi_cq_read(queue_.get(), entries, kBatch);
  if (got == -FI_EAGAIN) return absl::OkStatus();
  if (got == -FI_EAVAIL) return ReadError(completions);
  if (got < 0) return FabricError("reading completions", got);
  for (int64_t i = 0; i < got; ++i) {
    const fi_cq_data_entry& entry = entries[i];
    OfiCompletion completion;
    if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & FI_RECV) == 0) {
      completion.immediate = static_cast<uint32_t>(entry.data);
    } else {
      completion.operation = static_cast<OfiOperation*>(entry.op_context);
      completion.length = entry.len;
      MUSTER_CHECK(completion.operation != nullptr);
      if (completion.operation->kind != OfiOperation::Kind::kReceive) --outstanding_;
    }
    completions->push_back(std::move(completion));
  }
  return absl::OkStatus();
}

}  // namespace muster
