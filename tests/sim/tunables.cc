#include "tests/sim/tunables.h"

#include <algorithm>

#include "base/control/state_memory.h"

namespace muster::sim {
namespace {

// None, or a mean time between faults.
absl::Duration Weather(Dice& dice, double chance, absl::Duration low, absl::Duration high) {
  return dice.Chance(chance) ? dice.Time(low, high) : absl::InfiniteDuration();
}

// The coordinator chooses, of strategies that differ by what members can hold and by what their
// links are. As long as there are enough workers something fits.
void ChooseByPolicy(Dice& dice, Tunables& t) {
  t.plan.automatic = dice.Chance(0.7);
  if (t.plan.automatic) t.plan.strategy = {.replicas = t.plan.strategy.replicas};
  for (StrategySwitch& change : t.plan.switches) {
    change.automatic = dice.Chance(0.5);
    if (change.automatic) change.strategy = {.replicas = t.plan.strategy.replicas};
  }
  t.state_size = StateSize{.elements = 1200,
                           .largest_block = 100,
                           .bucket = 300,
                           .slots = 2,
                           .parameter_bytes = 2,
                           .gradient_bytes = 2};
  if (dice.Chance(0.6)) {
    const Strategy fits{.stage = dice.Between(0, 3), .replicas = t.plan.strategy.replicas};
    t.memory.process_bytes =
        StateBytes(*t.state_size, fits, {.workers = t.plan.min_workers}, MemberRole::kWorker);
  }
  t.link_seed = dice.Bits();
  t.coordinator.strategy_steps = dice.Between(1, 10);
}

}  // namespace

Strategy ChooseStrategy(Dice& dice) {
  Strategy strategy;
  if (dice.Chance(0.25)) {
    strategy.sync = SyncPath::kParameterServer;
    strategy.servers = dice.Between(0, 3);
    strategy.mixed = strategy.servers > 0 && dice.Chance(0.5);
  } else {
    strategy.stage = dice.Chance(0.5) ? dice.Between(1, 3) : 0;
    if (strategy.stage > 0 && dice.Chance(0.4)) {
      strategy.group_size = dice.Between(0, 3);
      strategy.host_groups = strategy.group_size == 0;
    }
  }
  strategy.replicas = dice.Between(0, 2);
  return strategy;
}

Tunables ChooseTunables(Dice& dice) {
  using absl::Milliseconds;
  Tunables t;
  t.workers = dice.Between(1, 6);
  const int spare = dice.Between(0, 3);
  t.plan.min_workers = dice.Between(1, std::max(1, t.workers - 1));
  t.plan.start_workers = dice.Between(t.plan.min_workers, t.workers);
  t.plan.max_workers = t.workers + dice.Between(0, spare);
  t.servers = dice.Chance(0.3) ? dice.Between(1, 3) : 0;
  t.most_workers = t.workers + t.servers + spare;
  t.hosts = dice.Between(1, 3);
  t.plan.total_steps = dice.Between(3, dice.Chance(0.2) ? 200 : 60);
  t.jobs = dice.Chance(0.15) ? 2 : 1;
  t.checkpoint_every = dice.Chance(0.6) ? dice.Between(1, 6) : 0;

  CoordinatorOptions& c = t.coordinator;
  c.fleet_id = "sim";
  c.heartbeat = dice.Time(Milliseconds(10), Milliseconds(40));
  c.lease = c.heartbeat * dice.Between(4, 8);
  c.orphan_timeout = c.lease * dice.Between(2, 5);
  c.orphan_margin = c.lease * 2;
  c.reattach_grace = dice.Time(Milliseconds(1), Milliseconds(20));
  c.collect_window = dice.Time(Milliseconds(0), Milliseconds(5));
  c.pause_batch = dice.Time(Milliseconds(0), Milliseconds(50));
  c.learner_answer_timeout = dice.Time(Milliseconds(30), Milliseconds(300));
  t.plan.start_timeout = dice.Time(Milliseconds(50), Milliseconds(500));
  c.drain_checkpoint_timeout = dice.Time(Milliseconds(100), Milliseconds(600));
  c.retransmit_after = dice.Time(c.heartbeat, c.heartbeat * 4);
  c.link_fault_window = dice.Time(Milliseconds(200), Milliseconds(2000));
  c.max_remembered_evictions = dice.Between(4, 64);

  t.latency_low = absl::Microseconds(100);
  t.latency_high = dice.Time(Milliseconds(1), Milliseconds(5));
  t.drop = dice.Chance(0.5) ? 0.0 : 0.08 * static_cast<double>(dice.Below(100)) / 100;
  t.duplicate = dice.Chance(0.5) ? 0.0 : 0.05;
  t.reorder = dice.Chance(0.5) ? 0.0 : 0.1;
  t.spike = dice.Chance(0.5) ? 0.0 : 0.03;
  t.spike_time = dice.Time(Milliseconds(5), c.lease);
  t.keepalive = c.lease;
  t.backoff_low = Milliseconds(2);
  t.backoff_high = dice.Time(Milliseconds(5), Milliseconds(80));
  c.largest_backoff = t.backoff_high * 2;

  t.work_low = absl::Microseconds(100);
  t.work_high = dice.Time(Milliseconds(1), Milliseconds(12));
  t.disk_low = Milliseconds(1);
  t.disk_high = dice.Time(Milliseconds(2), Milliseconds(100));
  t.data_deadline = dice.Time(t.work_high * 6 + t.disk_high, t.work_high * 30 + t.disk_high);

  t.faults_until = dice.Time(Milliseconds(100), Milliseconds(4000));
  const absl::Duration often = Milliseconds(30);
  const absl::Duration seldom = Milliseconds(800);
  t.crash = Weather(dice, 0.6, often, seldom);
  t.freeze = Weather(dice, 0.4, often, seldom);
  t.cut_control = Weather(dice, 0.3, often, seldom);
  t.cut_data = Weather(dice, 0.3, often, seldom);
  t.coordinator_crash = Weather(dice, 0.35, often * 2, seldom);
  t.coordinator_freeze = Weather(dice, 0.2, often * 2, seldom);
  t.join = Weather(dice, 0.5, often, seldom);
  t.drain = Weather(dice, 0.35, often * 2, seldom);
  t.break_session = Weather(dice, 0.4, often, seldom);
  t.torn = dice.Chance(0.5) ? 0.5 : 0.0;
  t.cancel = dice.Chance(0.05) ? 1.0 : 0.0;
  t.switch_strategy = Weather(dice, 0.3, often, seldom);
  t.plan.strategy = ChooseStrategy(dice);
  if (dice.Chance(0.2)) {
    t.plan.switches.push_back(
        {dice.Between(1, static_cast<int>(t.plan.total_steps) - 1), ChooseStrategy(dice)});
  }
  t.plan.workers_hand_on = dice.Chance(0.3);
  if (dice.Chance(0.4)) ChooseByPolicy(dice, t);
  return t;
}

}  // namespace muster::sim
