// Who contributes to a table: incarnations, leases, and how far each has pulled.
//
// An index belongs to one incarnation at a time. Another that attaches takes its place, and the one
// before is fenced: its calls fail, and it cannot attach again. A lease that lapses frees the
// index, but does not fence: whoever was only slow attaches again.
//
// Thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_CONTRIBUTORS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_CONTRIBUTORS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/parameter_server/core/table_messages.h"

namespace muster {

class Contributors {
 public:
  // Fenced incarnations that are remembered per index.
  static constexpr size_t kFencedRemembered = 16;

  // `table` names the table in errors.
  Contributors(std::string table, int32_t count);

  // Attaches, or renews; true if it was not attached before. INVALID_ARGUMENT: an index out of
  // range, incarnation 0, a lease that is not above zero. FAILED_PRECONDITION: the incarnation is
  // fenced.
  absl::StatusOr<bool> Attach(ContributorId id, absl::Time now, absl::Duration lease);
  // Gives the index up, of its own will: no fence. Does nothing for one that is not attached.
  void Detach(ContributorId id);
  // Takes the index away, and fences whoever has it: an operator knows that it is gone.
  absl::Status Remove(int32_t index);

  // OK, and the lease renewed, if `id` is attached. FAILED_PRECONDITION says what to do.
  absl::Status Check(ContributorId id, absl::Time now);

  // Frees the indices whose lease has lapsed; they are returned.
  std::vector<int32_t> Expire(absl::Time now);
  // When Expire has something to do next; InfiniteFuture if nobody is attached.
  absl::Time NextExpiry() const;

  // Whether `id` is who has its index.
  bool attached(ContributorId id) const;
  bool attached(int32_t index) const { return static_cast<bool>(seats_[index].incarnation); }
  Incarnation incarnation(int32_t index) const { return seats_[index].incarnation; }
  int32_t count() const { return static_cast<int32_t>(seats_.size()); }
  int32_t attached_count() const;

  // The version that the contributor saw last; 0 before.
  Version pulled(int32_t index) const { return seats_[index].pulled; }
  void SetPulled(int32_t index, Version version) { seats_[index].pulled = version; }

 private:
  struct Seat {
    Incarnation incarnation;  // 0: free
    absl::Duration lease;
    absl::Time expires;
    Version pulled = 0;
    std::deque<Incarnation> fenced;
  };
  absl::Status CheckIndex(int32_t index) const;
  void Fence(Seat& seat);

  const std::string table_;
  std::vector<Seat> seats_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_CONTRIBUTORS_H_
