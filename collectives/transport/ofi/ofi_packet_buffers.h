// The packet buffers of a mesh's first rail: those posted for receiving, and those that packets are
// sent from. One thread at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_BUFFERS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "collectives/transport/ofi/ofi_rail.h"

namespace muster {

// Zero-cost-until-touched memory, aligned to pages.
class OfiSlab {
 public:
  explicit OfiSlab(size_t bytes);
  std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
};

class OfiPacketBuffers {
 public:
  // `rail` must outlive this; its endpoint must be closed before.
  OfiPacketBuffers(OfiRail* rail, size_t packet_bytes, int receives, int sends);

  // Unregisters. Requires: the provider is done with the buffers.
  void Close() {
    receive_region_ = {};
    send_region_ = {};
  }

  size_t packet_bytes() const { return packet_bytes_; }

  // Posts as many receives as the provider takes, which is returned.
  absl::StatusOr<int> PostAll();
  // The bytes of receive `index`.
  absl::Span<const std::byte> Received(uint32_t index, size_t length) const {
    return absl::MakeConstSpan(At(receive_memory_, index), length);
  }
  // Posts receive `index` again. False: try again.
  absl::StatusOr<bool> Repost(uint32_t index);

  // A free buffer to send from, or -1.
  int TakeSend();
  std::byte* SendBuffer(int index) const { return At(send_memory_, static_cast<uint32_t>(index)); }
  absl::StatusOr<bool> Send(int index, Rank peer, fi_addr_t to, size_t size);
  void FreeSend(uint32_t index) { free_sends_.push_back(static_cast<int>(index)); }

 private:
  std::byte* At(const OfiSlab& slab, uint32_t index) const {
    return slab.data() + size_t{index} * packet_bytes_;
  }
  absl::Status RegisterAll();

  OfiRail* const rail_;
  const size_t packet_bytes_;
  const OfiSlab receive_memory_;
  const OfiSlab send_memory_;
  bool registered_ = false;
  OfiRegion receive_region_;
  OfiRegion send_region_;
  std::vector<OfiOperation> receives_;
  std::vector<OfiOperation> sends_;
  std::vector<int> free_sends_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_PACKET_BUFFERS_H_
