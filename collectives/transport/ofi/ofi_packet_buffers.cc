#include "collectives/transport/ofi/ofi_packet_buffers.h"

#include <new>

#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr std::align_val_t kPage{4096};

}  // namespace

OfiSlab::OfiSlab(size_t bytes)
    : memory_(static_cast<std::byte*>(::operator new(bytes == 0 ? 1 : bytes, kPage))) {}

void OfiSlab::Free::operator()(std::byte* memory) const { ::operator delete(memory, kPage); }

OfiPacketBuffers::OfiPacketBuffers(OfiRail* rail, size_t packet_bytes, int receives, int sends)
    : rail_(rail),
      packet_bytes_(packet_bytes),
      receive_memory_(packet_bytes * static_cast<size_t>(receives)),
      send_memory_(packet_bytes * static_cast<size_t>(sends)),
      receives_(static_cast<size_t>(receives)),
      sends_(static_cast<size_t>(sends)) {
  for (size_t i = 0; i < receives_.size(); ++i) receives_[i].index = static_cast<uint32_t>(i);
  for (size_t i = 0; i < sends_.size(); ++i) {
    sends_[i].index = static_cast<uint32_t>(i);
    free_sends_.push_back(static_cast<int>(i));
  }
}

absl::Status OfiPacketBuffers::RegisterAll() {
  if (registered_ || !rail_->needs_local_registration()) return absl::OkStatus();
  registered_ = true;
  MUSTER_ASSIGN_OR_RETURN(
      receive_region_,
      rail_->Register(receive_memory_.data(), packet_bytes_ * receives_.size(), FI_RECV));
  MUSTER_ASSIGN_OR_RETURN(
      send_region_, rail_->Register(send_memory_.data(), packet_bytes_ * sends_.size(), FI_SEND));
  return absl::OkStatus();
}

absl::StatusOr<int> OfiPacketBuffers::PostAll() {
  if (receives_.empty()) return 0;
  MUSTER_RETURN_IF_ERROR(RegisterAll());
  for (size_t i = 0; i < receives_.size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(const bool posted, Repost(static_cast<uint32_t>(i)));
    if (!posted) return static_cast<int>(i);
  }
  return static_cast<int>(receives_.size());
}

absl::StatusOr<bool> OfiPacketBuffers::Repost(uint32_t index) {
  return rail_->PostReceive(At(receive_memory_, index), packet_bytes_, receive_region_.descriptor(),
                            &receives_[index]);
}

int OfiPacketBuffers::TakeSend() {
  if (free_sends_.empty()) return -1;
  const int index = free_sends_.back();
  free_sends_.pop_back();
  return index;
}

absl::StatusOr<bool> OfiPacketBuffers::Send(int index, Rank peer, fi_addr_t to, size_t size) {
  OfiOperation& operation = sends_[static_cast<size_t>(index)];
  operation.peer = peer;
  return rail_->PostSend(to, SendBuffer(index), size, send_region_.descriptor(), &operation);
}

}  // namespace muster
