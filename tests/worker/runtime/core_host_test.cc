#include "worker/runtime/core_host.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "base/control/messages.h"

namespace muster {
namespace {

class CoreHostTest : public ::testing::Test {
 protected:
  CoreHostTest() : host_(Options()) {
    host_.Dispatch(worker::SessionAttached{});
    host_.Dispatch(worker::DirectiveReceived{Evicted{"silent", /*permanent=*/false}, 1});
  }

  static WorkerOptions Options() {
    WorkerOptions options;
    options.self.incarnation = Incarnation{1};
    return options;
  }

  // Runs until the core leaves for good, and says why.
  std::string RunToExit() {
    std::string reason;
    host_.Run([&](const worker::Action& action) {
      if (std::holds_alternative<worker::Rejoin>(action)) host_.Replace(Incarnation{2});
      if (const auto* exit = std::get_if<worker::Exit>(&action)) {
        reason = exit->reason;
        host_.Stop();
      }
    });
    return reason;
  }

  CoreHost host_;
};

TEST_F(CoreHostTest, ADrainAskedForBetweenTwoIncarnationsHolds) {
  host_.Dispatch(worker::DrainRequested{});  // the old core has left, the new one is not there
  EXPECT_EQ(RunToExit(), "drained; there was no coordinator to ask");
  EXPECT_EQ(host_.self(), Incarnation{2});
}

TEST_F(CoreHostTest, ADrainOutlivesEveryIncarnation) {
  host_.Replace(Incarnation{2});
  host_.Dispatch(worker::SessionAttached{});
  host_.Dispatch(worker::DrainRequested{});
  host_.Replace(Incarnation{3});
  EXPECT_EQ(RunToExit(), "drained; there was no coordinator to ask");
  EXPECT_EQ(host_.self(), Incarnation{3});
}

}  // namespace
}  // namespace muster
