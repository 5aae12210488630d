#include "collectives/model/link_model.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

LinkModel Full() {
  LinkModel model;
  model.transport = "shm";
  model.ranks = 4;
  model.latency_seconds = 1.25e-5;
  model.message_seconds = 2e-6;
  model.wire = {{65536, 4e-10}, {1048576, 8e-10}};
  model.one_way = {{65536, 3e-10}, {1048576, 4e-10}};
  model.reduce = {{65536, 1e-10}};
  model.meet_seconds = 4e-7;
  model.shared = {{4096, 2e-11}, {1 << 24, 5e-11}};
  model.factors = {{Collective::kAllReduce, Algorithm::kRing, 1024, 1.5},
                   {Collective::kAllReduce, Algorithm::kRing, 65536, 1.1},
                   {Collective::kAllReduce, Algorithm::kWindow, 1024, 0.75}};
  return model;
}

TEST(LinkModelTest, ItsTextSaysAllOfIt) {
  const auto read = LinkModelFromText(ToText(Full()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Full());
  EXPECT_EQ(ToText(*read), ToText(Full()));
}

TEST(LinkModelTest, NumbersAreRoundedOnceAndForAll) {
  LinkModel model = Full();
  model.latency_seconds = 1.0 / 3;
  const auto read = LinkModelFromText(ToText(model));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->latency_seconds, 0.333333);
  EXPECT_EQ(ToText(*read), ToText(model));
}

TEST(LinkModelTest, WhatNoMeasurementYieldsIsRefused) {
  const std::string good = ToText(Full());
  const auto with = [&](const char* from, const char* to) {
    const std::string text = absl::StrReplaceAll(good, {{from, to}});
    EXPECT_NE(text, good) << from;
    return LinkModelFromText(text).status();
  };
  EXPECT_THAT(std::string(with("latency 1.25e-05", "latency -1").message()),
              HasSubstr("line 4: expected a number, not below 0, got \"-1\""));
  for (const auto& [from, to] : {std::pair("muster-link-model 1", "muster-link-model 2"),
                                 {"latency 1.25e-05", "latency nan"},
                                 {"latency 1.25e-05", "latency inf"},
                                 {"latency 1.25e-05", "latency"},
                                 {"ranks 4", "ranks 0"},
                                 {"ranks 4", "ranks 5000"},
                                 {"wire 1048576", "wire 65536"},
                                 {"wire 1048576", "wire x"},
                                 {"one-way 1048576", "one-way 1"},
                                 {"factor all-reduce ring 1024", "factor all-reduce rang 1024"},
                                 {"factor all-reduce ring 1024", "factor no ring 1024"},
                                 {"ring 65536", "ring 1024"},
                                 {"65536 1.1", "65536 0"},
                                 {"transport shm\n", ""},
                                 {"meet", "treffen"}}) {
    EXPECT_EQ(with(from, to).code(), absl::StatusCode::kInvalidArgument) << from << " to " << to;
  }
  EXPECT_EQ(LinkModelFromText("").status().code(), absl::StatusCode::kInvalidArgument);
  std::string endless = good;
  for (int i = 1; i < 5000; ++i) absl::StrAppend(&endless, "reduce ", 65536 + i, " 1\n");
  EXPECT_THAT(std::string(LinkModelFromText(endless).status().message()), HasSubstr("too many"));
}

TEST(LinkModelTest, RatesChangeEvenlyWithTheLogarithmOfTheSize) {
  const LinkModel model = Full();
  EXPECT_EQ(RateOf(model.wire, 1), 4e-10);
  EXPECT_EQ(RateOf(model.wire, 65536), 4e-10);
  EXPECT_DOUBLE_EQ(RateOf(model.wire, 262144), 6e-10);  // halfway from 2^16 to 2^20
  EXPECT_EQ(RateOf(model.wire, int64_t{1} << 40), 8e-10);
  EXPECT_EQ(RateOf(model.reduce, 123), 1e-10);
  EXPECT_EQ(RateOf({}, 1024), 0);
}

TEST(LinkModelTest, FactorsAreThoseOfTheAlgorithm) {
  const LinkModel model = Full();
  EXPECT_EQ(FactorOf(model, Collective::kAllReduce, Algorithm::kRing, 1024), 1.5);
  EXPECT_DOUBLE_EQ(FactorOf(model, Collective::kAllReduce, Algorithm::kRing, 8192), 1.3);
  EXPECT_EQ(FactorOf(model, Collective::kAllReduce, Algorithm::kWindow, 1 << 20), 0.75);
  EXPECT_EQ(FactorOf(model, Collective::kAllReduce, Algorithm::kStar, 1024), 1);
  // Halves of an all-reduce share what was measured of the whole; others do not.
  EXPECT_EQ(FactorOf(model, Collective::kReduceScatter, Algorithm::kRing, 1024), 1.5);
  EXPECT_EQ(FactorOf(model, Collective::kBroadcast, Algorithm::kRing, 1024), 1);
}

}  // namespace
}  // namespace muster
