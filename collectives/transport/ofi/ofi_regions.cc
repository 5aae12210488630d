#include "collectives/transport/ofi/ofi_regions.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {

absl::Status OfiRegions::Register(absl::Span<std::byte> memory) {
  if (memory.empty()) return absl::InvalidArgumentError("no memory to register");
  const auto next = entries_.lower_bound(memory.data());
  const bool hits_next = next != entries_.end() && next->first < memory.data() + memory.size();
  const bool hits_previous = next != entries_.begin() &&
                             std::prev(next)->first + std::prev(next)->second.size > memory.data();
  if (hits_next || hits_previous) {
    return absl::AlreadyExistsError(
        absl::StrCat("some of these ", memory.size(), " bytes are registered already"));
  }
  Entry entry;
  entry.size = memory.size();
  for (const auto& rail : rails_) {
    MUSTER_ASSIGN_OR_RETURN(OfiRegion region, rail->Register(memory.data(), memory.size(),
                                                             FI_WRITE | FI_SEND | FI_REMOTE_WRITE));
    entry.regions.push_back(std::move(region));
  }
  entries_.emplace(memory.data(), std::move(entry));
  return absl::OkStatus();
}

absl::Status OfiRegions::Deregister(absl::Span<std::byte> memory) {
  const auto found = entries_.find(memory.data());
  if (found == entries_.end() || found->second.size != memory.size()) {
    return absl::NotFoundError(absl::StrCat("these ", memory.size(), " bytes are not registered"));
  }
  entries_.erase(found);
  return absl::OkStatus();
}

const OfiRegion* OfiRegions::Find(size_t rail, const std::byte* start, size_t size) const {
  auto after = entries_.upper_bound(start);
  if (after == entries_.begin()) return nullptr;
  const auto& [first, entry] = *std::prev(after);
  return start + size <= first + entry.size ? &entry.regions[rail] : nullptr;
}

absl::StatusOr<const OfiRegion*> OfiTransferRegions::On(size_t rail, const OfiRails& rails,
                                                        const OfiRegions& kept) {
  if (const OfiRegion* region = kept.Find(rail, start_, size_); region != nullptr) return region;
  if (own_.empty()) own_.resize(rails.size());
  if (own_[rail] == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(OfiRegion region, rails[rail]->Register(start_, size_, access_));
    own_[rail] = std::make_unique<OfiRegion>(std::move(region));
  }
  return own_[rail].get();
}

}  // namespace muster
