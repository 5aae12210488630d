#include "client/doctor/host_checks.h"

#include <string>

#include "base/check.h"
#include "client/output/finding_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HostFacts Healthy() {
  HostFacts facts;
  facts.name = "node-1";
  facts.addresses = {"10.1.2.3"};
  facts.names_back = {{"10.1.2.3", "node-1"}};
  facts.interfaces = {
      {.name = "lo", .up = true, .loopback = true, .mtu = 65536, .addresses = {"127.0.0.1"}},
      {.name = "eth0", .up = true, .mtu = 9001, .addresses = {"10.1.2.3"}}};
  facts.open_files = 1 << 20;
  facts.locked_bytes = HostFacts::kUnlimited;
  facts.ephemeral_ports = 28000;
  facts.shm_bytes = int64_t{8} << 30;
  facts.shmem_enabled = "advise";
  facts.cores = 96;
  facts.memory_bytes = int64_t{1} << 40;
  facts.topology.numa_nodes = {{.number = 0}, {.number = 1}};
  facts.topology.shows_pci = true;
  facts.topology.cards = {{.name = "rdmap0", .place = {.numa_node = 0, .bridges = {1, 2}}},
                          {.name = "rdmap1", .place = {.numa_node = 1, .bridges = {5, 6}}}};
  facts.topology.gpus = {{.place = {.pci = "0000:21:00.0", .numa_node = 1, .bridges = {5, 6}}}};
  return facts;
}

Finding Of(const HostFacts& facts, const std::string& subject) {
  for (const Finding& finding : CheckHost(facts)) {
    if (finding.subject == subject) return finding;
  }
  MUSTER_CHECK(false) << "no finding about " << subject;
  return {};
}

TEST(HostChecksTest, AHealthyHostIsWell) {
  for (const Finding& finding : CheckHost(Healthy())) {
    EXPECT_EQ(finding.level, FindingLevel::kOk) << finding.subject << ": " << finding.found;
  }
}

TEST(HostChecksTest, ANameThatIsThisHostAloneIsAWarning) {
  HostFacts facts = Healthy();
  facts.addresses = {"127.0.1.1", "::1"};
  const Finding finding = Of(facts, "name");
  EXPECT_EQ(finding.level, FindingLevel::kWarning);
  EXPECT_THAT(finding.found, HasSubstr("127.0.1.1"));
  EXPECT_THAT(finding.advice, HasSubstr("--advertise"));
}

TEST(HostChecksTest, ANameThatIsAlsoLoopbackIsAWarning) {
  HostFacts facts = Healthy();
  facts.addresses = {"10.1.2.3", "127.0.1.1"};
  EXPECT_EQ(Of(facts, "name").level, FindingLevel::kWarning);
  EXPECT_THAT(Of(facts, "name").advice, HasSubstr("127.0.1.1"));
}

TEST(HostChecksTest, ANameWithoutAddressIsAWarning) {
  HostFacts facts = Healthy();
  facts.addresses.clear();
  EXPECT_EQ(Of(facts, "name").level, FindingLevel::kWarning);
  EXPECT_THAT(Of(facts, "name").found, HasSubstr("node-1"));
}

TEST(HostChecksTest, AnAddressWithoutNameIsANote) {
  HostFacts facts = Healthy();
  facts.names_back.clear();
  EXPECT_EQ(Of(facts, "name").level, FindingLevel::kNote);
}

TEST(HostChecksTest, TheWayToOtherHostsIsNotAVirtualOne) {
  HostFacts facts = Healthy();
  facts.interfaces.insert(facts.interfaces.begin(),
                          {.name = "docker0", .up = true, .addresses = {"172.17.0.1"}});
  const Finding one = Of(facts, "interfaces");
  EXPECT_EQ(one.level, FindingLevel::kOk);
  EXPECT_THAT(one.advice, HasSubstr("eth0:0"));
  facts.interfaces.push_back({.name = "eth1", .up = true, .addresses = {"10.2.0.1"}});
  EXPECT_EQ(Of(facts, "interfaces").level, FindingLevel::kNote);
  EXPECT_THAT(Of(facts, "interfaces").advice, Not(HasSubstr("docker0")));
}

TEST(HostChecksTest, WithoutAWayToOtherHostsItSaysSo) {
  HostFacts facts = Healthy();
  facts.interfaces[1].up = false;
  EXPECT_EQ(Of(facts, "interfaces").level, FindingLevel::kWarning);
  EXPECT_THAT(Of(facts, "interfaces").found, HasSubstr("only loopback"));
}

TEST(HostChecksTest, LimitsThatAreTooLow) {
  HostFacts facts = Healthy();
  facts.open_files = 1024;
  facts.ephemeral_ports = 100;
  facts.shm_bytes = 64 << 20;
  facts.shmem_enabled = "never";
  EXPECT_EQ(Of(facts, "open files").level, FindingLevel::kWarning);
  EXPECT_THAT(Of(facts, "open files").found, HasSubstr("1024"));
  EXPECT_EQ(Of(facts, "ports").level, FindingLevel::kWarning);
  EXPECT_EQ(Of(facts, "/dev/shm").level, FindingLevel::kNote);
  EXPECT_THAT(Of(facts, "/dev/shm").found, HasSubstr("64 MiB"));
  EXPECT_EQ(Of(facts, "huge pages").level, FindingLevel::kNote);
  facts.shm_bytes = -1;
  EXPECT_THAT(Of(facts, "/dev/shm").found, HasSubstr("none"));
}

TEST(HostChecksTest, LockedMemoryIsAnErrorOnlyWhereEfaNeedsIt) {
  HostFacts facts = Healthy();
  facts.locked_bytes = 8 << 20;
  EXPECT_EQ(Of(facts, "locked memory").level, FindingLevel::kNote);
  facts.efa_devices = 4;
  EXPECT_EQ(Of(facts, "locked memory").level, FindingLevel::kError);
  EXPECT_THAT(Of(facts, "locked memory").advice, HasSubstr("LimitMEMLOCK"));
  EXPECT_THAT(Of(facts, "devices").found, HasSubstr("4 EFA"));
}

TEST(HostChecksTest, EachGpuIsShownWithItsNearestCard) {
  const Finding finding = Of(Healthy(), "topology");
  EXPECT_EQ(finding.level, FindingLevel::kOk);
  EXPECT_THAT(finding.found, HasSubstr("2 NUMA nodes"));
  EXPECT_THAT(finding.found, HasSubstr("GPU 0000:21:00.0 nearest to rdmap1 (same PCI switch)"));
}

TEST(HostChecksTest, AContainerThatHidesPciIsANote) {
  HostFacts facts = Healthy();
  facts.topology = {.numa_nodes = {{.number = 0}}, .cards = {{.name = "eth0"}}};
  const Finding finding = Of(facts, "topology");
  EXPECT_EQ(finding.level, FindingLevel::kNote);
  EXPECT_THAT(finding.found, HasSubstr("1 NUMA node; eth0; no PCI devices are visible"));
}

TEST(HostFactsTest, ThisHostHasANameCoresMemoryAndLoopback) {
  const HostFacts facts = ReadHostFacts();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.cores, 1);
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_GT(facts.open_files, 0);
  EXPECT_FALSE(facts.interfaces.empty());
  EXPECT_GE(facts.topology.cores, 1);
}

TEST(FindingTextTest, TextAndJson) {
  const Finding finding{FindingLevel::kWarning, "name", "n\xff", "mend it"};
  const std::vector<std::string> lines = FindingLines(finding);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("warning"));
  EXPECT_THAT(lines[1], HasSubstr("mend it"));
  const auto json = nlohmann::json::parse(FindingJson(finding));
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["advice"], "mend it");
  EXPECT_EQ(FindingLines({FindingLevel::kOk, "name", "fine", ""}).size(), 1u);
}

}  // namespace
}  // namespace muster
