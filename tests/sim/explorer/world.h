// One state of a small fleet, and everything that may happen in it: the production cores, the
// modelled shells, and the channels between them. A copyable value, so that every order can be
// tried.
//
// What is covered, and why what is left out adds nothing:
//  - Time does not exist: a timer that is set may fire at any moment. A lease may lapse although
//  the
//    worker lives, so any eviction may happen; the coordinator may give up a silent fleet although
//    it still runs. The windows that only gather more of the same (further deaths, further
//    learners) close at once.
//  - A suspicion may come from any member at any moment in which no proposal is open, whether a
//  link
//    broke or not; so broken links need no model of their own. Leases of members lapse only while a
//    proposal is open or the view has one member: otherwise the lapse would open one, which a
//    suspicion does as well. Those of members that have not answered lapse together, and that
//    decides: a lapse before the last answer that counts is the same as one after it.
//  - Directives of one session arrive in order (a gRPC stream), each as late as it likes; its end
//  may
//    overtake those sent last. Statuses arrive at once or, when the session is ending, never: a
//    status that comes late is like a worker that acts late.
//  - The coordinator notices a crash at once: a worker that is dead unnoticed is one that does
//  nothing.
//    A crashed or evicted worker may join again as a new incarnation, up to a limit.
//  - What an evicted worker can still do it does at once, then its process ends (rule 2: nobody
//  that
//    stays depends on it).
//  - What a worker without a session does in time (come to rest with the others, then stop) it may
//  do
//    at any moment, if the scope asks for it.
//  - The coordinator may crash between any two moves, and within one after any number of its
//  records
//    has become durable and nothing was said.
//  - Operations of a shell happen at once where their moment makes no difference to any core: the
//  end
//    of quiescing (rule 1 lets nothing happen between a proposal and its answer; without the rule
//    it may happen at any moment), of rolling forward and applying (the record counts as applied
//    before), of connecting and of final work (a member that has not connected answers like one
//    that has not prepared).
#ifndef MUSTER_TESTS_SIM_EXPLORER_WORLD_H_
#define MUSTER_TESTS_SIM_EXPLORER_WORLD_H_

#include <compare>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/coordinator_core.h"
#include "tests/sim/model_worker.h"

namespace muster::sim {

struct Scope {
  int members = 3;  // in the first view
  int joiners = 0;  // attached, not in it
  Step steps = 2;
  Epoch epochs = 3;
  int crashes = 1;  // of workers
  int coordinator_restarts = 1;
  int rejoins = 1;  // new incarnations
  int lapses = 3;   // leases that run out
  int orphans = 0;  // timers of workers without a coordinator that fire
  int stage = 0;    // above 0: the state is in shards
  int replicas = 1;
  int group_size = 0;  // hybrid sharding; 0: none
  int servers = 0;     // the state is on these, beside the members
  int switches = 0;    // between stage 0 and 1, or to servers and from them
  // The coordinator chooses, and servers are used if that is faster; `tight`: workers have memory
  // for stage 1 and up with `members` of them, and for what servers leave to them.
  bool automatic = false;
  bool tight = false;
  ProtocolRules rules;
};

enum class MoveKind : uint8_t {
  kOp,         // a worker's shell finishes something
  kDirective,  // a worker receives the oldest directive
  kSuspicion,  // the coordinator hears that some link broke
  kAttach,     // a worker opens a session
  kTimer,      // of the coordinator
  kLonely,     // a timer of a worker without a session
  kGiveUp,     // the leases of all members that have not answered
  kCrash,      // of a worker
  kRestart,    // the coordinator crashes and starts again
  kSwitch,     // another strategy is asked for
};

struct Move {
  MoveKind kind = MoveKind::kOp;
  size_t slot = 0;
  Op op;
  coordinator::TimerId timer;
  worker::TimerId worker_timer = worker::TimerId::kAlone;
  int torn = -1;  // the coordinator crashes in it, after so many durable records; -1: it does not
};

class World : public Fleet {
 public:
  // The first view is formed without incident; all its members are about to compute step 1.
  explicit World(const Scope& scope);

  const ModelWorker* Find(Incarnation incarnation) const override;
  // All that may happen next.
  std::vector<Move> Moves() const;
  void Make(const Move& move);
  // The scope ends here: a proposal lies beyond the last epoch.
  bool beyond_scope() const { return coordinator_.persistent().epoch > scope_.epochs; }
  bool job_over() const { return job_over_; }
  // The most records that one event of the last move wrote: it can be torn between them.
  int records_of_move() const { return records_of_move_; }
  bool may_restart() const { return restarts_ < scope_.coordinator_restarts; }
  Digest digest() const;
  // Requires: one of Moves().
  std::string Describe(const Move& move) const;

 private:
  struct Place {
    std::optional<ModelWorker> worker;
    WorkerName name;
    MemberRole role = MemberRole::kWorker;
    Incarnation incarnation;
    uint64_t generation = 0;
    bool attached = false;
    bool ending = false;  // the coordinator has closed the session
    std::deque<std::pair<Directive, Term>> down;
    std::set<worker::TimerId> timers;  // set, but for heartbeats
  };

  void StartWorker(size_t slot);
  void EndWorker(size_t slot);
  void EndSession(size_t slot);
  void FireWorkerTimer(size_t slot, worker::TimerId id);
  bool DoOpOfEvicted(size_t slot);
  void StartAgain(size_t slot);
  void ObeyWorker(size_t slot, worker::Actions actions);
  void Tell(const coordinator::Event& event);
  void Obey(coordinator::Actions actions);
  void Restart();
  void Look();
  void RetireEvicted();
  std::vector<Incarnation> Pending() const;
  bool MayLapse(Incarnation incarnation) const;
  std::optional<size_t> SlotOf(Incarnation incarnation) const;
  void RunQuietly();
  bool IsEager(const Op& op) const;
  void DoEagerOps();
  void Prune();

  Scope scope_;
  ModelOptions model_;
  CoordinatorOptions options_;
  CoordinatorCore coordinator_;
  PersistentState stored_;
  std::set<coordinator::TimerId> timers_;
  std::vector<Place> places_;
  int crashes_ = 0;
  int restarts_ = 0;
  int rejoins_ = 0;
  int orphans_ = 0;
  int switches_ = 0;
  bool job_over_ = false;
  int torn_ = -1;  // of the move being made
  int records_of_move_ = 0;
};

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_EXPLORER_WORLD_H_
