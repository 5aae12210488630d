// What a seed chooses: the size of the fleet, every time and limit, and how bad the weather is.
#ifndef MUSTER_TESTS_SIM_TUNABLES_H_
#define MUSTER_TESTS_SIM_TUNABLES_H_

#include <cstdint>
#include <optional>
#include <random>

#include "absl/time/time.h"
#include "server/core/options.h"
#include "server/core/persistent.h"

namespace muster::sim {

// Small, seeded, the same on every platform.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  int Between(int low, int high) {  // both included
    return low + static_cast<int>(Below(static_cast<uint64_t>(high - low + 1)));
  }
  bool Chance(double probability) {
    return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability;
  }
  absl::Duration Time(absl::Duration low, absl::Duration high) {
    const int64_t span = absl::ToInt64Microseconds(high - low);
    return low + absl::Microseconds(static_cast<int64_t>(Below(static_cast<uint64_t>(span) + 1)));
  }
  uint64_t Bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

struct Tunables {
  int workers = 3;       // at the start
  int servers = 0;       // parameter servers, likewise
  int hosts = 1;         // over which processes are spread
  int most_workers = 6;  // processes that ever live at once
  JobPlan plan;
  int jobs = 1;
  Step checkpoint_every = 0;
  // Of workers; servers have as much as they want.
  MemoryBudget memory;
  std::optional<StateSize> state_size;
  uint64_t link_seed = 0;
  CoordinatorOptions coordinator;

  // Network.
  absl::Duration latency_low, latency_high;
  double drop = 0, duplicate = 0, reorder = 0, spike = 0;
  absl::Duration spike_time;
  absl::Duration keepalive;  // a cut is noticed after this
  absl::Duration backoff_low, backoff_high;

  // Shell.
  absl::Duration work_low, work_high;  // each operation
  absl::Duration disk_low, disk_high;
  absl::Duration data_deadline;  // a collective that makes no progress fails after this

  // Faults: mean time between two of a kind; infinite: none.
  absl::Duration faults_until;
  absl::Duration crash, freeze, cut_control, cut_data, coordinator_crash, coordinator_freeze, join,
      drain, break_session;
  double torn = 0;    // a crash of the coordinator tears a call's actions apart
  double cancel = 0;  // the job is cancelled while it runs
  absl::Duration switch_strategy;
};

Strategy ChooseStrategy(Dice& dice);
Tunables ChooseTunables(Dice& dice);

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_TUNABLES_H_
