// A window (window.h) among the ranks of a ShmGroup. Rank 0's area counts arrivals; whoever
// completes a meet wakes those that sleep.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_
#define MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/transport/give_way.h"
#include "collectives/transport/shm/shm_group.h"
#include "collectives/transport/window.h"

namespace muster {

class ShmWindow : public Window {
 public:
  explicit ShmWindow(ShmGroup& group)
      : group_(group),
        size_(static_cast<size_t>(group.size())),
        share_cores_(RanksShareCores(group.size())),
        offered_(size_),
        pieces_end_(size_) {}

  std::byte* Stage(Rank rank) const override { return group_.area(rank).stage; }
  int64_t stage_bytes() const override { return kShmStageBytes; }
  std::optional<int64_t> PlaceOf(const void* data, int64_t bytes) const override {
    return group_.PlaceOf(data, bytes);
  }
  std::byte* At(Rank rank, int64_t place) const override { return group_.At(rank, place); }
  int64_t MapPages(Rank rank, int64_t place, int64_t bytes, int64_t most) override {
    return group_.MapPages(rank, place, bytes, most);
  }
  void Publish(const WindowCall& call) override {
    group_.own().calls[++published_ % 2].call = call;
    shows_ = true;
  }
  const WindowCall& Published(Rank rank) const override {
    return group_.area(rank).calls[published_ % 2].call;
  }
  void Arrive(uint64_t token) override;
  bool TakeMet() override;
  bool TakeMetSoon() override;
  std::vector<Rank> Missing() const override;
  void OfferPieces(absl::Span<const int64_t> counts) override;
  Pieces TakePieces(Rank owner, int64_t most) override;
  void FinishPieces(int64_t count, uint64_t token) override;
  bool ranks_share_cores() const override { return share_cores_; }
  bool BeginTouch() override { return group_.BeginTouch(); }
  void EndTouch() override { group_.EndTouch(); }

  // A meet was arrived at and not yet taken.
  bool waiting() const { return waiting_; }
  uint64_t token() const { return token_; }
  // All have arrived, or all pieces are finished.
  bool Met() const;
  // A rank that has closed and had not arrived.
  std::optional<Rank> ClosedWhileMissed() const;

 private:
  bool HasPieces(Rank rank) const;
  void WakeOthers();

  ShmGroup& group_;
  const size_t size_;
  const bool share_cores_;
  uint64_t meets_ = 0;      // arrived at
  uint64_t published_ = 0;  // calls
  bool shows_ = false;      // a call at this meet
  // Pieces, by owner: offered last, and ever; all ranks' ever.
  std::vector<uint64_t> offered_;
  std::vector<uint64_t> pieces_end_;
  uint64_t all_pieces_end_ = 0;
  bool waiting_ = false;
  bool for_pieces_ = false;  // waits for these, not at a meet
  uint64_t token_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_SHM_SHM_WINDOW_H_
