#include "collectives/topology/host_topology.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/topology/read_topology.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What hwloc exports of a host with two NUMA nodes of two cores, each with a host bridge and two
// PCI switches below it; in each switch a GPU and an EFA card.
std::string HostXml() {
  int next = 100;
  const auto numbered = [&next](absl::string_view type) {
    return absl::StrCat("<object type=\"", std::string(type), "\" gp_index=\"", next++, "\" ");
  };
  std::string xml =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?><!DOCTYPE topology SYSTEM \"hwloc2.dtd\">"
      "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0xf\" "
      "complete_cpuset=\"0xf\" allowed_cpuset=\"0xf\" nodeset=\"0x3\" complete_nodeset=\"0x3\" "
      "allowed_nodeset=\"0x3\" gp_index=\"1\">";
  for (int node = 0; node < 2; ++node) {
    const std::string sets = absl::StrFormat(
        "cpuset=\"0x%x\" complete_cpuset=\"0x%x\" nodeset=\"0x%x\" "
        "complete_nodeset=\"0x%x\" ",
        3 << (2 * node), 3 << (2 * node), 1 << node, 1 << node);
    absl::StrAppend(&xml, numbered("Package"), sets, "os_index=\"", node, "\">");
    absl::StrAppend(&xml, numbered("NUMANode"), sets, "os_index=\"", node,
                    "\" local_memory=\"1073741824\"/>");
    for (int core = 2 * node; core < 2 * node + 2; ++core) {
      const std::string own = absl::StrFormat(
          "cpuset=\"0x%x\" complete_cpuset=\"0x%x\" nodeset=\"0x%x\" "
          "complete_nodeset=\"0x%x\" os_index=\"%d\"",
          1 << core, 1 << core, 1 << node, 1 << node, core);
      absl::StrAppend(&xml, numbered("Core"), own, ">", numbered("PU"), own, "/></object>");
    }
    absl::StrAppend(
        &xml, numbered("Bridge"),
        absl::StrFormat("bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[%x0-%xf]\">", node + 1,
                        node + 1));
    for (int board = 0; board < 2; ++board) {
      const int bus = 16 * (node + 1) + 4 * board;
      absl::StrAppend(
          &xml, numbered("Bridge"),
          absl::StrFormat("bridge_type=\"1-1\" depth=\"1\" bridge_pci=\"0000:[%x-%x]\" "
                          "pci_busid=\"0000:%x:0%d.0\" pci_type=\"0604 [1234:5678] [0000:0000] "
                          "00\">",
                          bus + 1, bus + 2, 16 * (node + 1), board + 1));
      absl::StrAppend(&xml, numbered("PCIDev"),
                      absl::StrFormat("pci_busid=\"0000:%x:00.0\" pci_type=\"0302 [10de:20b0] "
                                      "[10de:144e] a1\"/>",
                                      bus + 1));
      absl::StrAppend(&xml, numbered("PCIDev"),
                      absl::StrFormat("pci_busid=\"0000:%x:00.0\" pci_type=\"0200 [1d0f:efa0] "
                                      "[1d0f:efa0] 00\">",
                                      bus + 2),
                      numbered("OSDev"),
                      absl::StrFormat("name=\"rdmap%ds0\" osdev_type=\"3\"/></object>", bus + 2));
      absl::StrAppend(&xml, "</object>");
    }
    absl::StrAppend(&xml, "</object></object>");
  }
  return absl::StrCat(xml, "</object></topology>");
}

HostTopology Host() {
  absl::StatusOr<HostTopology> host = TopologyFromXml(HostXml());
  EXPECT_TRUE(host.ok()) << host.status();
  return host.ok() ? *std::move(host) : HostTopology();
}

std::vector<DevicePlace> CardPlaces(const HostTopology& host) {
  std::vector<DevicePlace> places;
  for (const NetworkCard& card : host.cards) places.push_back(card.place);
  return places;
}

TEST(HostTopologyTest, AnExportTellsNodesCoresCardsAndGpus) {
  const HostTopology host = Host();
  EXPECT_EQ(host.cores, 4);
  EXPECT_EQ(host.hardware_threads, 4);
  EXPECT_TRUE(host.shows_pci);
  EXPECT_EQ(host.numa_nodes,
            (std::vector<NumaNode>{{0, int64_t{1} << 30, 2}, {1, int64_t{1} << 30, 2}}));
  ASSERT_EQ(host.gpus.size(), 4u);
  EXPECT_EQ(host.gpus[0].place.pci, "0000:11:00.0");
  EXPECT_EQ(host.gpus[3].place.pci, "0000:25:00.0");
  EXPECT_EQ(host.gpus[3].place.numa_node, 1);
  ASSERT_EQ(host.cards.size(), 4u);
  EXPECT_EQ(host.cards[0].name, "rdmap18s0");
  EXPECT_TRUE(host.cards[0].rdma);
  EXPECT_EQ(host.cards[0].place.numa_node, 0);
  EXPECT_EQ(host.cards[0].place.bridges.size(), 2u);
}

TEST(HostTopologyTest, WhatIsNoExportIsRefused) {
  EXPECT_EQ(TopologyFromXml("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TopologyFromXml("<topology>").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(HostTopologyTest, TheCardInTheGpusSwitchIsTheNearest) {
  const HostTopology host = Host();
  const std::vector<DevicePlace> cards = CardPlaces(host);
  // The one in its switch, the other of its host bridge, then those of the other node.
  EXPECT_THAT(NearestFirst(cards, host.gpus[1].place), ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(NearestFirst(cards, host.gpus[2].place), ElementsAre(2, 3, 0, 1));
  EXPECT_EQ(NearnessOf(cards[1], host.gpus[1].place), Nearness::kSameSwitch);
  EXPECT_EQ(NearnessOf(cards[0], host.gpus[1].place), Nearness::kSameHostBridge);
  EXPECT_EQ(NearnessOf(cards[2], host.gpus[1].place), Nearness::kOtherNumaNode);
  EXPECT_EQ(NearnessOf(cards[2], cards[2]), Nearness::kSameDevice);
}

TEST(HostTopologyTest, ABoundProcessIsNearTheCardsOfItsNode) {
  const HostTopology host = Host();
  const DevicePlace process{.numa_node = 1};
  EXPECT_THAT(NearestFirst(CardPlaces(host), process), ElementsAre(2, 3, 0, 1));
  EXPECT_EQ(NearnessOf(process, host.cards[3].place), Nearness::kSameNumaNode);
}

TEST(HostTopologyTest, WhereNothingIsKnownTheOrderStays) {
  const std::vector<DevicePlace> places(3);
  EXPECT_THAT(NearestFirst(places, DevicePlace()), ElementsAre(0, 1, 2));
  EXPECT_EQ(NearnessOf(places[0], places[1]), Nearness::kUnknown);
  EXPECT_THAT(NearestFirst({}, DevicePlace()), ElementsAre());
}

TEST(HostTopologyTest, ADeviceIsFoundByAddressOrByItsDomainsName) {
  const HostTopology host = Host();
  EXPECT_EQ(PlaceOf(host, "0000:15:00.0", ""), host.gpus[1].place);
  EXPECT_EQ(PlaceOf(host, "0000:16:00.0", ""), host.cards[1].place);
  EXPECT_EQ(PlaceOf(host, "", "rdmap22s0-rdm"), host.cards[1].place);
  EXPECT_EQ(PlaceOf(host, "", "rdmap22s0"), host.cards[1].place);
  EXPECT_EQ(PlaceOf(host, "", "rdmap22s01"), DevicePlace());
  EXPECT_EQ(PlaceOf(host, "0000:99:00.0", "eth9"), (DevicePlace{.pci = "0000:99:00.0"}));
}

TEST(HostTopologyTest, ACardIsDescribedByWhatIsKnown) {
  NetworkCard card{.name = "eth0"};
  EXPECT_EQ(Describe(card), "eth0");
  card.bits_per_second = 100'000'000'000;
  card.place = {.pci = "0000:00:03.0", .numa_node = 1};
  EXPECT_EQ(Describe(card), "eth0 100 Gbit/s on NUMA node 1 (0000:00:03.0)");
}

TEST(ReadTopologyTest, ThisHostHasCoresAndMemory) {
  const absl::StatusOr<HostTopology> host = ReadHostTopology();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_GE(host->cores, 1);
  EXPECT_GE(host->hardware_threads, host->cores);
  ASSERT_FALSE(host->numa_nodes.empty());
  for (const NetworkCard& card : host->cards) {
    EXPECT_FALSE(card.name.empty());
    EXPECT_NE(card.name, "lo");
  }
}

}  // namespace
}  // namespace muster
