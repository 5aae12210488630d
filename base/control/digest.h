// A 128-bit digest of a state, for recognising states that were seen before. Not for untrusted
// input. The same on every platform; order matters. Plain value, not thread-safe.
#ifndef MUSTER_BASE_CONTROL_DIGEST_H_
#define MUSTER_BASE_CONTROL_DIGEST_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "base/control/messages.h"

namespace muster {

class Digest {
 public:
  void Add(uint64_t value) {
    low_ = Mix(low_ ^ value, 0x9e3779b97f4a7c15u);
    high_ = Mix(high_ + value, 0xc2b2ae3d27d4eb4fu);
  }
  void Add(absl::string_view text);

  void Add(Incarnation incarnation) { Add(incarnation.value); }
  void Add(const StateTag& tag);
  void Add(const CommitRecord& record);
  void Add(const Prepared& prepared);
  void Add(const CheckpointReport& report);
  void Add(const Strategy& strategy);
  void Add(const View& view);  // members by incarnation
  void Add(const Directive& directive);
  // What the other side can act on: neither the sequence nor what is only shown, as its
  // communication path and what it waits for.
  void Add(const WorkerStatus& status);
  void Add(const LinkSpeeds& links);

  template <typename T>
  void Add(const std::optional<T>& value) {
    Add(static_cast<uint64_t>(value.has_value()));
    if (value.has_value()) Add(*value);
  }

  uint64_t low() const { return low_; }
  uint64_t high() const { return high_; }

 private:
  static uint64_t Mix(uint64_t value, uint64_t multiplier) {
    const unsigned __int128 product = static_cast<unsigned __int128>(value) * multiplier;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^
           (value >> 29) * multiplier;
  }

  uint64_t low_ = 0x243f6a8885a308d3u;
  uint64_t high_ = 0x13198a2e03707344u;
};

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_DIGEST_H_
