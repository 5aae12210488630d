// A window (window.h) among the ranks of a ShmGroup. Rank 0's area counts arrivals; whoever
// completes a meet wakes those that sleep.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/window.h"

namespace muster {

class ShmWindow : public Window {
 public:
  explicit ShmWindow(ShmGroup& group) : group_(group), size_(static_cast<size_t>(group.size())) {}

  std::byte* Stage(Rank rank) const override { return group_.area(rank).stage; }
  int64_t stage_bytes() const override { return kShmStageBytes; }
  std::optional<int64_t> PlaceOf(const void* data, int64_t bytes) const override {
    return group_.PlaceOf(data, bytes);
  }
  std::byte* At(Rank rank, int64_t place) const override { return group_.At(rank, place); }
  void Publish(const WindowCall& call) override { group_.own().calls[++published_ % 2] = call; }
  const WindowCall& Published(Rank rank) const override {
    return group_.area(rank).calls[published_ % 2];
  }
  void Arrive(uint64_t token) override;
  bool TakeMet() override {
    if (!waiting_ || !Met()) return false;
    waiting_ = false;
    return true;
  }
  std::vector<Rank> Missing() const override;
  bool BeginTouch() override { return group_.BeginTouch(); }
  void EndTouch() override { group_.EndTouch(); }

  // A meet was arrived at and not yet taken.
  bool waiting() const { return waiting_; }
  uint64_t token() const { return token_; }
  // All have arrived.
  bool Met() const;
  // A rank that has closed and had not arrived.
  std::optional<Rank> ClosedWhileMissed() const;

 private:
  ShmGroup& group_;
  const size_t size_;
  uint64_t meets_ = 0;      // arrived at
  uint64_t published_ = 0;  // calls
  bool waiting_ = false;
  uint64_t token_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_
