// The client library on real servers in this process.
#include "client/parameters/parameter_table.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/parameter_server/rpc/test_server.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Ramp(int64_t count, float factor) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = factor * static_cast<float>(i % 1000);
  return values;
}

TEST(ParameterTableTest, PushesMoreThanTheMessageLimitToServersThatShareATable) {
  TestServer servers[3];
  const std::vector<std::string> addresses = {servers[0].address(), servers[1].address(),
                                              servers[2].address()};
  constexpr int64_t kElements = (10 << 20) + 192;  // 40 MiB, and no multiple of anything large
  const auto table = OpenTable(addresses, DenseSpec(kElements), 0);
  ASSERT_EQ(table->element_count(), kElements);
  // Balanced to one unit.
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(table->RangeOf(i).count, kElements / 3.0, 64);
  const std::vector<float> gradient = Ramp(kElements, 1);
  std::vector<float> values(kElements);
  const auto pulled = table->PushPull({.step = 1}, gradient, 1, absl::MakeSpan(values));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->version, 1);
  EXPECT_EQ(pulled->newest, 1);
  EXPECT_EQ(values, Ramp(kElements, -1));
  const auto again = table->Push({.step = 1}, gradient);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->duplicate);
}

TEST(ParameterTableTest, AverageOverContributorsDoesNotDependOnTheirOrder) {
  std::vector<float> results[2];
  for (const bool reversed : {false, true}) {
    TestServer server;
    v1::TableSpec spec = DenseSpec(1000, 3);
    std::unique_ptr<ParameterTable> tables[3];
    for (int i = 0; i < 3; ++i) tables[i] = OpenTable({server.address()}, spec, i);
    for (int i = 0; i < 3; ++i) {
      const int index = reversed ? 2 - i : i;
      const auto gradient = Ramp(tables[0]->element_count(), 0.1f * static_cast<float>(index + 1));
      ASSERT_TRUE(tables[index]->Push({.step = 1, .micro_batch = index}, gradient).ok());
    }
    results[reversed].resize(tables[0]->element_count());
    ASSERT_TRUE(tables[1]->Pull(1, absl::MakeSpan(results[reversed])).ok());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NEAR(results[0][7], -0.2f * 7, 1e-5);
}

TEST(ParameterTableTest, AFastWorkerDoesNotChangeWhatASlowOnePulls) {
  TestServer server;
  const v1::TableSpec spec = DenseSpec(64, 2);
  const auto fast = OpenTable({server.address()}, spec, 0);
  const auto slow = OpenTable({server.address()}, spec, 1);
  const std::vector<float> one(64, 1.0f);
  ASSERT_TRUE(fast->Push({.step = 1, .micro_batch = 0}, one).ok());
  ASSERT_TRUE(slow->Push({.step = 1, .micro_batch = 1}, one).ok());
  ASSERT_TRUE(fast->Push({.step = 2, .micro_batch = 0}, one).ok());
  std::vector<float> values(64);
  const auto pulled = slow->Pull(1, absl::MakeSpan(values));
  ASSERT_TRUE(pulled.ok());
  EXPECT_EQ(pulled->version, 1);
  EXPECT_THAT(values, Each(-1.0f));
}

TEST(ParameterTableTest, BoundedStalenessHoldsTheFastWorkerUntilTheSlowOneIsGone) {
  TestServer server;
  v1::TableSpec spec = DenseSpec(64, 2);
  spec.set_consistency(v1::TableSpec::BOUNDED_STALENESS);
  spec.set_staleness(1);
  const auto fast = OpenTable({server.address()}, spec, 0, absl::Milliseconds(300));
  const auto slow = OpenTable({server.address()}, spec, 1);
  const std::vector<float> one(64, 1.0f);
  ASSERT_TRUE(fast->Push({.step = 1, .micro_batch = 0}, one).ok());
  ASSERT_TRUE(fast->Push({.step = 2, .micro_batch = 0}, one).ok());
  const auto waits = fast->Push({.step = 3, .micro_batch = 0}, one);
  EXPECT_TRUE(absl::IsDeadlineExceeded(waits.status())) << waits.status();
  ASSERT_TRUE(slow->Push({.step = 1, .micro_batch = 1}, one).ok());
  EXPECT_TRUE(fast->Push({.step = 3, .micro_batch = 0}, one).ok());
  EXPECT_FALSE(fast->Push({.step = 4, .micro_batch = 0}, one).ok());
  ASSERT_TRUE(slow->Detach().ok());
  EXPECT_TRUE(fast->Push({.step = 4, .micro_batch = 0}, one).ok());
}

TEST(ParameterTableTest, SaysWhatAPullHasWaitedFor) {
  TestServer server;
  const auto first = OpenTable({server.address()}, DenseSpec(64, 2), 0, absl::Milliseconds(300));
  const std::vector<float> one(64, 1.0f);
  std::vector<float> values(64);
  const absl::Status status =
      first->PushPull({.step = 1, .micro_batch = 0}, one, 1, absl::MakeSpan(values)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("push and pull of step 1 of table"),
                                                   HasSubstr("once all contributors have pushed")));
}

TEST(ParameterTableTest, MergesRowsThatComeTwiceOverTwoServers) {
  TestServer servers[2];
  const auto table = OpenTable({servers[0].address(), servers[1].address()}, SparseSpec(10, 2), 0);
  ASSERT_EQ(table->element_count(), 10);
  const std::vector<int64_t> rows = {9, 1, 9, 4};
  ASSERT_TRUE(table->PushRows({.step = 1}, rows, {1, 2, 3, 4, 5, 6, 7, 8}).ok());
  std::vector<float> values(8);
  const std::vector<int64_t> asked = {4, 9, 0, 1};
  const auto pulled = table->PullRows(1, asked, absl::MakeSpan(values));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_THAT(values, ElementsAre(-7, -8, -6, -8, 0, 0, -3, -4));
  EXPECT_EQ(table->PushRows({.step = 2}, {10}, {1, 2}).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(ParameterTableTest, ClipsByTheNormOverAllServers) {
  std::vector<float> results[2];
  for (const int count : {1, 2}) {
    TestServer servers[2];
    v1::TableSpec spec = DenseSpec(1024, 2);
    spec.set_clip_norm(0.5);
    spec.set_commit(v1::TableSpec::EXTERNAL);
    std::vector<std::string> addresses;
    for (int i = 0; i < count; ++i) addresses.push_back(servers[i].address());
    const auto first = OpenTable(addresses, spec, 0);
    const auto second = OpenTable(addresses, spec, 1);
    const std::vector<float> gradient = Ramp(1024, 0.01f);
    std::thread other([&] {
      std::vector<float> values(1024);
      const auto pulled =
          second->PushPull({.step = 1, .micro_batch = 1}, gradient, 1, absl::MakeSpan(values));
      EXPECT_TRUE(pulled.ok()) << pulled.status();
    });
    results[count - 1].resize(1024);
    const auto pulled = first->PushPull({.step = 1, .micro_batch = 0}, gradient, 1,
                                        absl::MakeSpan(results[count - 1]));
    other.join();
    ASSERT_TRUE(pulled.ok()) << pulled.status();
  }
  EXPECT_EQ(results[0], results[1]);
  double squares = 0;
  for (const float value : results[0]) squares += double{value} * value;
  EXPECT_NEAR(std::sqrt(squares), 0.5, 1e-5);

  TestServer servers[2];
  v1::TableSpec spec = DenseSpec(1024);
  spec.set_clip_norm(0.5);
  const auto refused = TryOpen({servers[0].address(), servers[1].address()}, spec, 0);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("EXTERNAL"));
}

TEST(ParameterTableTest, HalfPrecisionOnTheWireRoundsOnce) {
  TestServer server;
  ParameterTableOptions options;
  options.servers = {server.address()};
  options.spec = DenseSpec(64);
  options.contributor = 0;
  options.wire_type = DType::kBF16;
  const auto table = ParameterTable::Open(options);
  ASSERT_TRUE(table.ok()) << table.status();
  std::vector<float> values(64);
  ASSERT_TRUE((*table)
                  ->PushPull({.step = 1}, std::vector<float>(64, 1.001f), 1, absl::MakeSpan(values))
                  .ok());
  EXPECT_THAT(values, Each(-1.0f));
}

TEST(ParameterTableTest, AnAssignedValueIsWhereTrainingBegins) {
  TestServer server;
  const auto table = OpenTable({server.address()}, DenseSpec(64), 0);
  ASSERT_TRUE(table->Assign(Ramp(64, 2)).ok());
  std::vector<float> values(64);
  ASSERT_TRUE(table->Pull(0, absl::MakeSpan(values)).ok());
  EXPECT_EQ(values, Ramp(64, 2));
  EXPECT_EQ(table->Assign(values).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ParameterTableTest, ContinuesFromASnapshotAndStillCountsOnce) {
  v1::TableSpec spec = DenseSpec(700'000);
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(0.5);
  const std::vector<float> gradient = Ramp(700'032, 0.001f);
  std::vector<v1::TableSnapshotPart> parts;
  std::vector<float> expected(700'032);
  {
    TestServer server;
    const auto table = OpenTable({server.address()}, spec, 0);
    ASSERT_EQ(table->element_count(), 700'032);
    ASSERT_TRUE(table->Push({.step = 1}, gradient).ok());
    ASSERT_TRUE(table
                    ->Snapshot(0,
                               [&](const v1::TableSnapshotPart& part) {
                                 parts.push_back(part);
                                 return absl::OkStatus();
                               })
                    .ok());
    ASSERT_TRUE(table->PushPull({.step = 2}, gradient, 2, absl::MakeSpan(expected)).ok());
  }
  TestServer server;
  const auto table = OpenTable({server.address()}, spec, 0);
  const auto restore = [&](std::vector<v1::TableSnapshotPart> from) {
    size_t next = 0;
    return table->Restore(0, [&]() -> std::optional<v1::TableSnapshotPart> {
      return next < from.size() ? std::optional(from[next++]) : std::nullopt;
    });
  };
  auto torn = parts;
  torn.pop_back();
  EXPECT_EQ(restore(torn).code(), absl::StatusCode::kInvalidArgument);
  {
    TestServer fresh;
    const auto copy = OpenTable({fresh.address()}, spec, 0);
    size_t next = 0;
    const absl::Status restored = copy->Restore(0, [&]() -> std::optional<v1::TableSnapshotPart> {
      return next < parts.size() ? std::optional(parts[next++]) : std::nullopt;
    });
    ASSERT_TRUE(restored.ok()) << restored;
    const auto again = copy->Push({.step = 1}, gradient);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(again->duplicate);
    std::vector<float> values(700'032);
    ASSERT_TRUE(copy->PushPull({.step = 2}, gradient, 2, absl::MakeSpan(values)).ok());
    EXPECT_EQ(values, expected);
  }
}

TEST(ParameterTableTest, AReplacedContributorIsToldSo) {
  TestServer server;
  const auto old = OpenTable({server.address()}, DenseSpec(64), 0);
  const auto fresh = OpenTable({server.address()}, DenseSpec(64), 0);
  const std::vector<float> one(64, 1.0f);
  EXPECT_EQ(old->Push({.step = 1}, one).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(fresh->Push({.step = 1}, one).ok());
  const auto next = OpenTable({server.address()}, DenseSpec(64), 0)->NextStep(0);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(*next, 2);
}

TEST(ParameterTableTest, AttachesOnlyWithTheSameSpecification) {
  TestServer server;
  const auto table = OpenTable({server.address()}, DenseSpec(64), 0);
  v1::TableSpec other = DenseSpec(64);
  other.mutable_learning_rate()->set_peak(0.5);
  const auto refused = TryOpen({server.address()}, other, std::nullopt);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition) << refused.status();
}

TEST(ParameterTableTest, AServerThatDiesDuringAPullIsAnErrorThatNamesIt) {
  auto server = std::make_unique<TestServer>();
  const std::string address = server->address();
  const auto table = OpenTable({address}, DenseSpec(64, 2), 0, absl::Seconds(2));
  std::vector<float> values(64);
  std::thread killer([&] {
    EXPECT_TRUE(WaitUntil([&] { return server->server().peak_in_flight_bytes() > 0; }));
    server->server().Shutdown(absl::ZeroDuration());
  });
  const auto pulled = table->Pull(1, absl::MakeSpan(values));
  killer.join();
  EXPECT_FALSE(pulled.ok());
  EXPECT_THAT(std::string(pulled.status().message()), HasSubstr(address));
}

TEST(ParameterTableTest, ShutdownEndsCallsThatWait) {
  TestServer server;
  const auto table = OpenTable({server.address()}, DenseSpec(64, 2), 0);
  std::thread stopper([&] {
    EXPECT_TRUE(WaitUntil([&] { return server.server().peak_in_flight_bytes() > 0; }));
    table->Shutdown();
  });
  std::vector<float> values(64);
  EXPECT_EQ(table->Pull(1, absl::MakeSpan(values)).status().code(), absl::StatusCode::kCancelled);
  stopper.join();
}

TEST(ParameterTableTest, OneHundredAndThirtyContributors) {
  constexpr int kContributors = 130;
  TestServer server;
  const v1::TableSpec spec = DenseSpec(256, kContributors);
  std::vector<std::unique_ptr<ParameterTable>> tables;
  for (int i = 0; i < kContributors; ++i) {
    tables.push_back(OpenTable({server.address()}, spec, i));
    ASSERT_NE(tables.back(), nullptr);
  }
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kContributors; ++i) {
    threads.emplace_back([&, i] {
      const std::vector<float> gradient(256, static_cast<float>(i));
      std::vector<float> values(256);
      const auto pulled =
          tables[i]->PushPull({.step = 1, .micro_batch = i}, gradient, 1, absl::MakeSpan(values));
      EXPECT_TRUE(pulled.ok()) << pulled.status();
      if (values.back() == -129.0f / 2) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kContributors);
}

}  // namespace
}  // namespace muster
