// Memory that callers keep registered on all rails of a mesh. One thread at a time.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_REGIONS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_REGIONS_H_

#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "collectives/transport/ofi/ofi_rail.h"

namespace muster {

using OfiRails = std::vector<std::unique_ptr<OfiRail>>;

class OfiRegions {
 public:
  // `rails` must outlive this.
  explicit OfiRegions(const OfiRails& rails) : rails_(rails) {}

  absl::Status Register(absl::Span<std::byte> memory);
  absl::Status Deregister(absl::Span<std::byte> memory);
  void Clear() { entries_.clear(); }
  // The region of that rail that holds all of the memory, or null.
  const OfiRegion* Find(size_t rail, const std::byte* start, size_t size) const;

 private:
  struct Entry {
    size_t size = 0;
    std::vector<OfiRegion> regions;  // by rail
  };
  const OfiRails& rails_;
  std::map<const std::byte*, Entry> entries_;  // by first byte; they never overlap
};

// Memory registered for one transfer: those of the caller where they hold it, else own ones, made
// as rails are used.
class OfiTransferRegions {
 public:
  OfiTransferRegions() = default;
  OfiTransferRegions(const std::byte* start, size_t size, uint64_t access)
      : start_(start), size_(size), access_(access) {}
  absl::StatusOr<const OfiRegion*> On(size_t rail, const OfiRails& rails, const OfiRegions& kept);

 private:
  const std::byte* start_ = nullptr;
  size_t size_ = 0;
  uint64_t access_ = 0;
  std::vector<std::unique_ptr<OfiRegion>> own_;  // by rail
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_OFI_OFI_REGIONS_H_
