// One state of a small fleet, and everything that may happen in it: the production cores, the
// modelled shells, and the channels between them. A copyable value, so that every order can be
// tried.
//
// What is modelled, and what is not:
//  - Time does not exist. Every timer that is set may fire at any moment: a lease may lapse
//  although
//    the worker lives (so any eviction may happen), and the coordinator may give up waiting for a
//    silent fleet although it still runs. The windows that only gather more of the same (further
//    deaths, further learners) close at once.
//  - Directives of one session arrive in order (a gRPC stream); a session's end may overtake those
//  that
//    were sent last. Of a worker's statuses the newest counts: a status in flight is replaced by a
//    newer one, or delivered before. The same for its suspicions.
//  - The coordinator may crash between any two events, and within one after any number of its
//  records
//    has become durable and before anything else of it is done.
//  - Applying is one with holding the record (what a crash between them loses is lost with the
//    process).
//  - A worker that was evicted joins again as a new incarnation, up to a limit.
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
  ProtocolRules rules;
};

enum class MoveKind : uint8_t {
  kOp,         // a worker's shell finishes something
  kDirective,  // a worker receives the oldest directive
  kStatus,     // the coordinator receives a worker's newest status
  kSuspicion,
  kClosed,   // the coordinator notices that a session ended
  kAttach,   // a worker opens a session
  kTimer,    // of the coordinator
  kCrash,    // of a worker
  kRestart,  // the coordinator crashes and starts again
};

struct Move {
  MoveKind kind = MoveKind::kOp;
  size_t slot = 0;
  Op op;
  coordinator::TimerId timer;
  int torn = -1;  // kStatus .. kTimer: crash after so many durable records; -1: no crash
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
  Digest digest() const;
  static std::string Describe(const Move& move);

 private:
  struct Place {
    std::optional<ModelWorker> worker;
    WorkerName name;
    Incarnation incarnation;
    uint64_t generation = 0;
    bool attached = false;
    bool ending = false;  // the coordinator has closed the session
    std::deque<std::pair<Directive, Term>> down;
    std::optional<WorkerStatus> status;
    std::optional<Suspicion> suspicion;
    bool closed = false;  // SessionClosed is on its way to the coordinator
    Incarnation closed_incarnation;
  };

  void StartWorker(size_t slot);
  void EndWorker(size_t slot);
  void ObeyWorker(size_t slot, worker::Actions actions);
  void Tell(const coordinator::Event& event, int torn);
  void Obey(coordinator::Actions actions);
  void Restart();
  void Look();
  bool IsTold(const Move& move) const;
  std::optional<size_t> SlotOf(Incarnation incarnation) const;
  void RunQuietly();

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
  int lapses_ = 0;
  bool job_over_ = false;
};

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_EXPLORER_WORLD_H_
