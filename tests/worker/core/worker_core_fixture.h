// A worker's core, and what it says in lines, for tests.
#ifndef MUSTER_TESTS_WORKER_CORE_WORKER_CORE_FIXTURE_H_
#define MUSTER_TESTS_WORKER_CORE_WORKER_CORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/describe.h"
#include "worker/core/worker_core.h"

namespace muster {

inline constexpr Incarnation kSelf{1};
inline constexpr Incarnation kPeer{2};

inline Member MakeMember(Incarnation incarnation) {
  Member member;
  member.incarnation = incarnation;
  return member;
}

// One core and what it says, a line each, without timers.
class WorkerCoreTest : public ::testing::Test {
 protected:
  WorkerCoreTest() : core_(Options()) {}

  static WorkerOptions Options() {
    WorkerOptions options;
    options.self = MakeMember(kSelf);
    return options;
  }

  std::vector<std::string> Feed(const worker::Event& event) {
    std::vector<std::string> lines;
    for (const worker::Action& action : core_.Handle(event, absl::UnixEpoch())) {
      if (std::holds_alternative<worker::SetTimer>(action) ||
          std::holds_alternative<worker::CancelTimer>(action)) {
        continue;
      }
      lines.push_back(sim::Describe(action));
    }
    return lines;
  }

  // The orders of one kind that come of a directive with this description beside it.
  template <typename Order>
  std::vector<Order> OrdersAfter(const Directive& directive, std::shared_ptr<const JobSpec> spec) {
    std::vector<Order> orders;
    for (const worker::Action& action : core_.Handle(
             worker::DirectiveReceived{directive, 1, std::move(spec)}, absl::UnixEpoch())) {
      if (const auto* order = std::get_if<Order>(&action)) orders.push_back(*order);
    }
    return orders;
  }

  std::vector<std::string> Tell(const Directive& directive, Term term = 1) {
    return Feed(worker::DirectiveReceived{directive, term});
  }

  static Propose MakePropose(Epoch epoch, std::optional<StateTag> sealed = std::nullopt) {
    Propose propose;
    propose.epoch = epoch;
    propose.job = "j";
    propose.sealed = sealed;
    return propose;
  }

  static Activate MakeActivate(Epoch epoch, StateTag resume) {
    Activate activate;
    activate.view.epoch = epoch;
    activate.view.job = "j";
    activate.view.members = {MakeMember(kSelf), MakeMember(kPeer)};
    activate.view.resume = resume;
    return activate;
  }

  static CommitRecord MakeRecord(Step step, Epoch epoch, bool pause = false) {
    CommitRecord record;
    record.step = step;
    record.epoch = epoch;
    record.pause = pause;
    return record;
  }

  // Running in view 1 from initial weights.
  void Start() {
    Feed(worker::SessionAttached{});
    Tell(MakePropose(1));
    Feed(worker::Quiesced{1});
    Activate activate = MakeActivate(1, {1, 0, 1});
    activate.fresh_start = FreshStart{};
    Tell(activate);
    Feed(worker::StateReady{1, {1, 0, 1}});
    Feed(worker::MeshConnected{1});
    ASSERT_EQ(core_.phase(), WorkerPhase::kRunning);
  }

  void Step(int64_t step, Epoch epoch, bool pause = false) {
    Feed(worker::StepPrepared{epoch, step});
    Feed(worker::RecordFormed{epoch, MakeRecord(step, epoch, pause)});
    Feed(worker::StepApplied{epoch, core_.Status().applied});
  }

  WorkerCore core_;
};

}  // namespace muster

#endif  // MUSTER_TESTS_WORKER_CORE_WORKER_CORE_FIXTURE_H_
