// The blocks of a rank's area: memory that its messages are copied to, and its peers from, where
// they can't be read in place. Only the owner hands them out; peers say when they have read one.
//
// The last used is used first, so that few are ever touched. Not thread-safe.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_BLOCKS_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace muster {

class ShmBlocks {
 public:
  static constexpr int64_t kSmallBytes = 4 << 10;
  static constexpr int64_t kLargeBytes = 64 << 10;
  static constexpr uint32_t kSmall = 256;
  static constexpr uint32_t kLarge = 40;
  // Large ones that whole messages leave to pieces: messages may lie long before they are awaited,
  // pieces are taken at once.
  static constexpr size_t kKeptForPieces = 16;
  static constexpr int64_t kBytes = kSmall * kSmallBytes + kLarge * kLargeBytes;

  explicit ShmBlocks(std::byte* memory) : memory_(memory) {
    for (uint32_t i = kSmall; i-- > 0;) small_.push_back(i);
    for (uint32_t i = kLarge; i-- > 0;) large_.push_back(kSmall + i);
  }

  // A block for a message of that length, at most kLargeBytes, while there are some.
  std::optional<uint32_t> TakeForMessage(int64_t bytes) {
    if (bytes <= kSmallBytes && !small_.empty()) return Pop(small_);
    return large_.size() > kKeptForPieces ? std::optional(Pop(large_)) : std::nullopt;
  }
  // A block of kLargeBytes.
  std::optional<uint32_t> TakeForPiece() {
    return large_.empty() ? std::nullopt : std::optional(Pop(large_));
  }
  void Give(uint32_t block) { (block < kSmall ? small_ : large_).push_back(block); }

  static int64_t OffsetOf(uint32_t block) {
    return block < kSmall ? block * kSmallBytes
                          : kSmall * kSmallBytes + (block - kSmall) * kLargeBytes;
  }
  std::byte* At(uint32_t block) const { return memory_ + OffsetOf(block); }

 private:
  static uint32_t Pop(std::vector<uint32_t>& free) {
    const uint32_t block = free.back();
    free.pop_back();
    return block;
  }

  std::byte* const memory_;
  std::vector<uint32_t> small_;
  std::vector<uint32_t> large_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_BLOCKS_H_
