#include "worker/runtime/worker_gauges.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(WorkerGaugesTest, ShowsThePathInForceAndWhoWasWaitedFor) {
  const auto endpoint = MetricsEndpoint::Start("127.0.0.1:0").value();
  WorkerGauges gauges(*endpoint);
  const auto scrape = [&] {
    return prometheus::TextSerializer().Serialize(endpoint->registry().Collect());
  };
  CommunicationPath path{.transport = "shm"};
  path.algorithms.push_back({.collective = "all-reduce", .algorithm = "window", .automatic = true});
  path.algorithms.push_back({.collective = "barrier", .algorithm = "ring"});
  gauges.Set(path);
  gauges.Set(path);
  const std::string series =
      R"(muster_worker_communication_path_info{asked="barrier:ring",automatic="all-reduce:window",)"
      R"(provider="",transport="shm"} 1)";
  EXPECT_THAT(scrape(), HasSubstr(series));
  gauges.Set(CommunicationPath{.transport = "ofi", .provider = "efa"});
  EXPECT_THAT(scrape(), Not(HasSubstr(R"(transport="shm")")));
  EXPECT_THAT(scrape(), HasSubstr(R"(provider="efa",transport="ofi"} 1)"));

  gauges.CountCheckpointFailure();
  EXPECT_THAT(scrape(), HasSubstr("muster_worker_checkpoint_failures_total 1"));

  gauges.SetWaiting(absl::Milliseconds(1'500));
  gauges.CountStraggler(2, absl::Milliseconds(1'500));
  gauges.CountStraggler(2, absl::Milliseconds(250));
  EXPECT_THAT(scrape(), HasSubstr("muster_worker_waiting_seconds 1.5"));
  EXPECT_THAT(scrape(), HasSubstr(R"(muster_worker_straggler_seconds_total{rank="2"} 1.75)"));
}

}  // namespace
}  // namespace muster
