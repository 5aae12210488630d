// Calls that wait for a table to move on, by the ticket that their owner gave them.
//
// Thread-compatible.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_WAIT_LIST_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_WAIT_LIST_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/parameter_server/core/table_messages.h"

namespace muster {

using Ticket = uint64_t;

class WaitList {
 public:
  // `progress` is the table's count of events at which a Wait::kProgress ends. Requires: no call of
  // this ticket waits.
  void Park(Ticket ticket, const Wait& wait, int64_t progress);
  // Forgets a call. Does nothing if it does not wait.
  void Remove(Ticket ticket) { parked_.erase(ticket); }
  size_t size() const { return parked_.size(); }

  // Those whose wait is over, or whose contributor is attached no longer, in the order of their
  // parking; they wait no longer.
  std::vector<Ticket> TakeReady(int64_t progress,
                                absl::FunctionRef<bool(const Wait& wait)> has_come,
                                absl::FunctionRef<bool(ContributorId id)> attached);
  std::vector<Ticket> TakeAll();

 private:
  struct Parked {
    Wait wait;
    int64_t progress = 0;
    uint64_t order = 0;
  };
  static std::vector<Ticket> Sorted(std::vector<std::pair<uint64_t, Ticket>> taken);

  std::map<Ticket, Parked> parked_;
  uint64_t next_order_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_WAIT_LIST_H_
