// A whole fleet in virtual time: production cores, a modelled network, disk and trainer, and
// faults, all drawn from one seed. The same seed gives the same run, event for event.
//
// Not thread-safe; one object runs one seed.
#ifndef MUSTER_TESTS_SIM_SIMULATION_H_
#define MUSTER_TESTS_SIM_SIMULATION_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/core/coordinator_core.h"
#include "tests/sim/model_worker.h"
#include "tests/sim/tunables.h"

namespace muster::sim {

struct Outcome {
  uint64_t seed = 0;
  std::string failure;  // empty: every invariant held
  int64_t events = 0;
  int view_changes = 0;
  int view_changes_after_faults = 0;
  int faults = 0;
  int moves = 0;                     // view changes that move ranges
  int choices = 0;                   // other strategies that the policy put in force
  int grouped = 0;                   // view changes after which several groups hold everything
  int scattered = 0;                 // times that too few shards were left
  int restarts_from_checkpoint = 0;  // branches beyond the first
  int64_t kept = 0;                  // states kept by workers without a coordinator
  int64_t kept_sealed = 0;           // of them, as checkpoints to resume from
  absl::Duration virtual_time;
  size_t most_table_entries = 0;
};

class Simulation : public Fleet {
 public:
  // `trace`: called with one line per event; empty to be fast.
  Simulation(uint64_t seed, ProtocolRules rules,
             std::function<void(const std::string&)> trace = nullptr);
  Outcome Run();

  const ModelWorker* Find(Incarnation incarnation) const override;

 private:
  using Task = std::function<void()>;
  // A worker process, or the place of one that died.
  struct Process {
    std::optional<ModelWorker> worker;
    WorkerName name;
    MemberRole role = MemberRole::kWorker;
    Incarnation incarnation;
    bool frozen = false;
    bool drained = false;  // ended with exit 0
    uint64_t session = 0;  // 0: none
    uint64_t connect_attempt = 0;
    absl::Time cut_until = absl::InfinitePast();  // from the coordinator
    std::map<worker::TimerId, uint64_t> timers;
    std::set<Op> planned;
    std::vector<Task> waiting;                     // until it thaws
    absl::Time down_after = absl::InfinitePast();  // order of the session's directives
    absl::Time up_after = absl::InfinitePast();
    // Watches the data plane's deadline.
    uint64_t mesh_mark = 0;
    absl::Time mesh_moved = absl::InfinitePast();
  };

  // ---- simulation.cc: time, processes
  void Submit(int number);
  void At(absl::Time time, Task task);
  void After(absl::Duration delay, Task task) { At(now_ + delay, std::move(task)); }
  void Trace(absl::string_view who, const std::string& what);
  void StartProcess(size_t slot);
  void KillProcess(size_t slot);
  void OnProcess(size_t slot, Incarnation incarnation, Task task);
  void FeedWorker(size_t slot, const worker::Event& event);
  void ObeyWorker(size_t slot, worker::Actions actions);
  void PlanOps();
  void RunOp(size_t slot, Incarnation incarnation, const Op& op);
  void WatchMeshes();
  std::optional<Rank> Laggard(const Process& process) const;
  bool CanConnect(const Process& process) const;
  void CheckBounds();
  void CheckEnd(const JobEnded& record);

  // ---- simulation_network.cc: sessions, messages, the coordinator's process
  void Connect(size_t slot);
  void Reconnect(size_t slot);
  void SendUp(size_t slot, coordinator::Event event);
  void SendDown(size_t slot, const Directive& directive, Term term);
  void LoseSession(size_t slot, uint64_t session, bool tell_coordinator);
  absl::Duration Latency();
  void FeedCoordinator(const coordinator::Event& event);
  void ObeyCoordinator(coordinator::Actions actions);
  void ObeyOne(const coordinator::Action& action);
  void StartCoordinator();
  void CrashCoordinator();
  std::optional<size_t> SlotOf(Incarnation incarnation) const;

  // ---- simulation_faults.cc
  void PlanFaults();
  void Repeat(absl::Duration mean, std::function<void()> fault);
  void EndFaults();
  std::optional<size_t> AnyLiving();
  size_t Living() const;
  void Freeze(size_t slot, absl::Duration time);
  void Thaw(size_t slot);
  void KeepEnoughWorkers();

  const uint64_t seed_;
  const ProtocolRules rules_;
  const std::function<void(const std::string&)> trace_;
  Dice dice_;
  Tunables tunables_;
  Outcome outcome_;

  absl::Time now_;
  uint64_t next_number_ = 1;
  std::map<std::pair<absl::Time, uint64_t>, Task> queue_;

  std::vector<Process> processes_;
  uint64_t next_incarnation_ = 1;
  std::map<std::pair<size_t, size_t>, absl::Time> data_cuts_;

  std::optional<CoordinatorCore> coordinator_;
  bool coordinator_frozen_ = false;
  std::vector<coordinator::Event> coordinator_waiting_;
  uint64_t coordinator_life_ = 0;  // number of the process
  PersistentState stored_;
  std::map<Incarnation, uint64_t> sessions_;  // the coordinator's ends
  std::map<coordinator::TimerId, uint64_t> coordinator_timers_;

  bool faults_over_ = false;
  int jobs_ended_ = 0;
  uint64_t highest_branch_ = 0;
};

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_SIMULATION_H_
