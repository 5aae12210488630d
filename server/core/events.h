// What goes into the coordinator's core and what comes out of it. Plain values.
//
// Contract of the shell (server/rpc):
//  - Events are handled one at a time. The actions of one call are obeyed in order, before the next
//    event is handled; a Persist is durable before any action behind it is obeyed.
//  - Timers: SetTimer replaces the timer of the same id. TimerFired is delivered only for a timer
//  that
//    is still set at that moment, which unsets it; never for one that was cancelled or replaced.
//  - Sessions: a second stream of the same incarnation replaces the first. SessionClosed is
//  reported
//    only when the newest stream of an incarnation ends, also when the core asked for it.
//  - SendDirective to an incarnation without an open stream is dropped without a word: everything
//  is
//    level-triggered. The shell adds the term (CoordinatorCore::term()) to each directive.
//  - CloseSession comes after the directives it should let through.
#ifndef MUSTER_SERVER_CORE_EVENTS_H_
#define MUSTER_SERVER_CORE_EVENTS_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/control/messages.h"
#include "server/core/persistent.h"

namespace muster::coordinator {

enum class TimerKind : uint8_t {
  kLease = 1,            // of a worker: silence
  kReattach = 2,         // of a worker: its session broke while it is waited for
  kCollect = 3,          // further deaths, before deciding
  kLearnerAnswer = 4,    // learners asked by the proposal in progress
  kPauseBatch = 5,       // further learners, before pausing
  kStart = 6,            // workers for the first view
  kOrphan = 7,           // every member is silent
  kDrainCheckpoint = 8,  // of the last member
  kLinkWindow = 9,       // forget link faults
};

struct TimerId {
  TimerKind kind = TimerKind::kLease;
  Incarnation worker;  // kLease, kReattach
  auto operator<=>(const TimerId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const TimerId& id) {
    return H::combine(std::move(h), id.kind, id.worker);
  }
};

// ---- events ----------------------------------------------------------------------------------

// A stream opened with this Hello. An incarnation already known re-attaches.
struct SessionOpened {
  Hello hello;
};
struct SessionClosed {
  Incarnation worker;
};
struct StatusReceived {
  Incarnation worker;
  WorkerStatus status;
};
struct SuspicionReceived {
  Incarnation reporter;
  Suspicion suspicion;
};
// The plan is checked by the shell; its id must be new unless request_id is known, in which case
// the event changes nothing (ask CoordinatorCore::FindRequest for the job).
struct JobSubmitted {
  JobPlan plan;
  std::string request_id;
};
struct JobCancelled {
  JobId job;
  std::string reason;
};
// Views from the next one on have this strategy, and the next one is due, or the coordinator
// chooses from now on. Changes nothing if the job has ended.
struct StrategyRequested {
  JobId job;
  Strategy strategy;
  bool automatic = false;
};
struct TimerFired {
  TimerId id;
};

using Event = std::variant<SessionOpened, SessionClosed, StatusReceived, SuspicionReceived,
                           JobSubmitted, JobCancelled, StrategyRequested, TimerFired>;

// ---- actions ---------------------------------------------------------------------------------

struct Persist {
  PersistentRecord record;
};
struct SendDirective {
  Incarnation to;
  Directive directive;
};
struct CloseSession {
  Incarnation worker;
  std::string reason;
};
struct SetTimer {
  TimerId id;
  absl::Time at;
};
struct CancelTimer {
  TimerId id;
};
struct JobChanged {
  JobId job;
  JobState state = JobState::kQueued;
  std::string reason;  // one line for the user; may be empty
};

// A change of view. It is reported when decided, again when every member is in it, and again when
// its first step is known to be applied: a report replaces the former one of the same epoch.
struct ViewChangeReport {
  JobId job;
  Epoch epoch = 0;
  ViewChangeCause cause = ViewChangeCause::kStart;
  // Who died, joined, left or drained. Empty with kLeave: a link broke, and everybody stayed; empty
  // with kJoin: whoever was to join did not get ready.
  std::vector<WorkerName> workers;
  std::vector<Member> members;  // in force afterwards, in rank order
  StateTag resume;
  // Set where the members make the state anew, of a checkpoint or of initial weights.
  std::optional<FreshStart> fresh_start;
  bool hold = false;
  std::string reason;                            // why this state, for the log
  absl::Time started_at = absl::InfinitePast();  // the death was noticed, the join was possible
  absl::Time decided_at = absl::InfinitePast();
  absl::Time activated_at = absl::InfinitePast();   // InfinitePast: not yet
  absl::Time first_step_at = absl::InfinitePast();  // InfinitePast: not yet
};
struct ViewChanged {
  ViewChangeReport report;
};

enum class Severity : uint8_t { kInfo = 1, kWarning = 2, kError = 3 };
struct Log {
  Severity severity = Severity::kInfo;
  std::string text;
};

using Action = std::variant<Persist, SendDirective, CloseSession, SetTimer, CancelTimer, JobChanged,
                            ViewChanged, Log>;
using Actions = std::vector<Action>;

}  // namespace muster::coordinator

#endif  // MUSTER_SERVER_CORE_EVENTS_H_
