#include "server/parameter_server/core/contributors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace muster {

Contributors::Contributors(std::string table, int32_t count)
    : table_(std::move(table)), seats_(static_cast<size_t>(count)) {}

absl::Status Contributors::CheckIndex(int32_t index) const {
  if (index >= 0 && index < count()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table \"", table_, "\": expected contributor 0 to ", count() - 1, ", got ", index));
}

absl::StatusOr<bool> Contributors::Attach(ContributorId id, absl::Time now, absl::Duration lease) {
  MUSTER_RETURN_IF_ERROR(CheckIndex(id.index));
  if (!id.incarnation) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", table_, "\": contributor ", id.index, " has no incarnation"));
  }
  if (lease <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table \"", table_, "\": expected a lease above 0, got ", absl::FormatDuration(lease)));
  }
  Seat& seat = seats_[static_cast<size_t>(id.index)];
  if (std::find(seat.fenced.begin(), seat.fenced.end(), id.incarnation) != seat.fenced.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "table \"", table_, "\": incarnation ", id.incarnation.ToString(), " of contributor ",
        id.index, " was replaced and is fenced; stop, or start anew with another incarnation"));
  }
  const bool joins = seat.incarnation != id.incarnation;
  if (joins) {
    Fence(seat);
    seat.incarnation = id.incarnation;
    seat.pulled = 0;
  }
  seat.lease = lease;
  seat.expires = now + lease;
  return joins;
}

void Contributors::Fence(Seat& seat) {
  if (!seat.incarnation) return;
  seat.fenced.push_back(seat.incarnation);
  if (seat.fenced.size() > kFencedRemembered) seat.fenced.pop_front();
  seat.incarnation = {};
}

void Contributors::Detach(ContributorId id) {
  if (!CheckIndex(id.index).ok()) return;
  Seat& seat = seats_[static_cast<size_t>(id.index)];
  if (seat.incarnation == id.incarnation) seat.incarnation = {};
}

absl::Status Contributors::Remove(int32_t index) {
  MUSTER_RETURN_IF_ERROR(CheckIndex(index));
  Fence(seats_[static_cast<size_t>(index)]);
  return absl::OkStatus();
}

bool Contributors::attached(ContributorId id) const {
  if (id.index < 0 || id.index >= count()) return false;
  const Seat& seat = seats_[static_cast<size_t>(id.index)];
  return bool{seat.incarnation} && seat.incarnation == id.incarnation;
}

absl::Status Contributors::Check(ContributorId id, absl::Time now) {
  MUSTER_RETURN_IF_ERROR(CheckIndex(id.index));
  Seat& seat = seats_[static_cast<size_t>(id.index)];
  if (!attached(id)) {
    return absl::FailedPreconditionError(
        absl::StrCat("table \"", table_, "\": expected ",
                     seat.incarnation ? absl::StrCat("incarnation ", seat.incarnation.ToString())
                                      : "nobody until someone attaches",
                     " as contributor ", id.index, ", got ", id.incarnation.ToString(),
                     "; attach again, and stop if that is refused"));
  }
  seat.expires = now + seat.lease;
  return absl::OkStatus();
}

std::vector<int32_t> Contributors::Expire(absl::Time now) {
  std::vector<int32_t> expired;
  for (int32_t i = 0; i < count(); ++i) {
    Seat& seat = seats_[static_cast<size_t>(i)];
    if (!seat.incarnation || seat.expires > now) continue;
    seat.incarnation = {};
    expired.push_back(i);
  }
  return expired;
}

absl::Time Contributors::NextExpiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Seat& seat : seats_) {
    if (seat.incarnation) next = std::min(next, seat.expires);
  }
  return next;
}

int32_t Contributors::attached_count() const {
  return static_cast<int32_t>(std::count_if(
      seats_.begin(), seats_.end(), [](const Seat& seat) { return bool{seat.incarnation}; }));
}

}  // namespace muster
