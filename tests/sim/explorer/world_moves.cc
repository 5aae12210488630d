// What may happen next in a World, and how to say it.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "tests/sim/describe.h"
#include "tests/sim/explorer/world.h"

namespace muster::sim {

using coordinator::TimerId;
using coordinator::TimerKind;

std::vector<Move> World::Moves() const {
  std::vector<Move> moves;
  for (size_t slot = 0; slot < places_.size(); ++slot) {
    const Place& place = places_[slot];
    if (!place.worker.has_value()) continue;
    for (const Op& op : place.worker->Enabled(*this)) {
      if (op.kind != OpKind::kBreak) moves.push_back({MoveKind::kOp, slot, op});
    }
    if (!place.down.empty()) moves.push_back({MoveKind::kDirective, slot});
    if (!place.attached || place.ending) moves.push_back({MoveKind::kAttach, slot});
    if (crashes_ < scope_.crashes) moves.push_back({MoveKind::kCrash, slot});
    // The earlier timer fires first. Both are set when the session ends.
    const bool ending = place.attached && place.ending;
    if (orphans_ < scope_.orphans && (ending || (!place.attached && !place.timers.empty()))) {
      const bool rests = !ending && !place.timers.contains(worker::TimerId::kAlone);
      moves.push_back({.kind = MoveKind::kLonely,
                       .slot = slot,
                       .worker_timer = rests ? worker::TimerId::kOrphan : worker::TimerId::kAlone});
    }
  }
  if (coordinator_.CurrentView() != nullptr && coordinator_.PendingEpoch() == 0) {
    moves.push_back({MoveKind::kSuspicion});
  }
  for (const TimerId& timer : timers_) {
    if (timer.kind == TimerKind::kStart || timer.kind == TimerKind::kLinkWindow) continue;
    if (timer.kind == TimerKind::kReattach) continue;  // as the lease
    if (timer.kind == TimerKind::kLease && !MayLapse(timer.worker)) continue;
    Move move{MoveKind::kTimer};
    move.timer = timer;
    moves.push_back(move);
  }
  if (!Pending().empty()) moves.push_back({MoveKind::kGiveUp});
  if (may_restart()) moves.push_back({MoveKind::kRestart});
  if (switches_ < scope_.switches) moves.push_back({MoveKind::kSwitch});
  return moves;
}

// Members the open proposal waits for.
std::vector<Incarnation> World::Pending() const {
  std::vector<Incarnation> pending;
  const View* view = coordinator_.CurrentView();
  if (view == nullptr || coordinator_.PendingEpoch() == 0) return pending;
  for (const MemberInfo& info : coordinator_.Members()) {
    const Incarnation incarnation = info.member.incarnation;
    if (view->RankOf(incarnation) < 0) continue;
    const bool answered = info.status.answered_epoch == coordinator_.PendingEpoch();
    if ((!answered || !info.attached) && timers_.contains({TimerKind::kLease, incarnation})) {
      pending.push_back(incarnation);
    }
  }
  return pending;
}

bool World::MayLapse(Incarnation incarnation) const {
  const View* view = coordinator_.CurrentView();
  if (view == nullptr || view->RankOf(incarnation) < 0) return true;
  if (coordinator_.PendingEpoch() == 0) return view->members.size() == 1;
  const std::vector<Incarnation> pending = Pending();  // they lapse together
  return std::find(pending.begin(), pending.end(), incarnation) == pending.end();
}

std::string World::Describe(const Move& move) const {
  const std::string who = places_[move.slot].name;
  std::string text;
  switch (move.kind) {
    case MoveKind::kOp:
      text = who + " does " + sim::Describe(move.op);
      break;
    case MoveKind::kDirective:
      text = who + " receives " + sim::Describe(places_[move.slot].down.front().first);
      break;
    case MoveKind::kSuspicion:
      text = "the coordinator hears that a link broke";
      break;
    case MoveKind::kAttach:
      text = who + " attaches";
      break;
    case MoveKind::kTimer:
      text = "the coordinator's timer fires: " + sim::Describe(move.timer);
      break;
    case MoveKind::kLonely:
      text = who + (move.worker_timer == worker::TimerId::kAlone
                        ? " comes to rest for want of a coordinator"
                        : " stops for want of a coordinator");
      break;
    case MoveKind::kGiveUp:
      text = "the leases of all who have not answered run out";
      break;
    case MoveKind::kCrash:
      text = who + " crashes";
      break;
    case MoveKind::kRestart:
      text = "the coordinator restarts";
      break;
    case MoveKind::kSwitch:
      text = "another strategy is asked for";
      break;
  }
  if (move.torn >= 0) {
    absl::StrAppendFormat(&text, "; the coordinator crashes after %d records", move.torn);
  }
  return text;
}

}  // namespace muster::sim
