#include "collectives/tuner/model_cache.h"

#include <string>

#include "absl/strings/str_format.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

MeshIdentity Identity() {
  return {.transport = "tcp", .hosts = {"b", "a", "b"}, .software_version = "1.2.3"};
}

LinkModel Model() {
  LinkModel model;
  model.transport = "tcp";
  model.ranks = 3;
  model.latency_seconds = 1e-5;
  model.wire = {{1024, 1e-9}};
  model.reduce = {{1024, 1e-10}};
  return model;
}

class ModelCacheTest : public testing::Test {
 protected:
  std::string directory() const { return JoinPath(temporary_.path(), "deep/cache"); }
  std::string path() const { return ModelPath(directory(), Identity()); }
  std::string Contents() { return ReadFile(files_, path(), 1 << 20).value(); }
  absl::Status Load() { return LoadModel(files_, directory(), Identity()).status(); }

  const TemporaryDirectory temporary_;
  PosixFileSystem files_;
};

TEST_F(ModelCacheTest, WhatWasStoredIsLoaded) {
  EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(StoreModel(files_, directory(), Identity(), Model()).ok());
  const auto loaded = LoadModel(files_, directory(), Identity());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, Model());
}

TEST_F(ModelCacheTest, HostsCountByTheirRanksInAnyOrder) {
  MeshIdentity other = Identity();
  other.hosts = {"a", "b", "b"};
  EXPECT_EQ(ModelPath("d", other), ModelPath("d", Identity()));
  other.hosts = {"a", "a", "b"};
  EXPECT_NE(ModelPath("d", other), ModelPath("d", Identity()));
}

TEST_F(ModelCacheTest, AnotherMeshIsAnotherFile) {
  for (const auto& change : std::vector<void (*)(MeshIdentity&)>{
           [](MeshIdentity& i) { i.transport = "shm"; },
           [](MeshIdentity& i) { i.hosts.push_back("b"); },
           [](MeshIdentity& i) { i.provider = "efa"; }, [](MeshIdentity& i) { i.any_order = true; },
           [](MeshIdentity& i) { i.software_version = "1.2.4"; }}) {
    MeshIdentity other = Identity();
    change(other);
    EXPECT_NE(ModelPath("d", other), ModelPath("d", Identity())) << Describe(other);
  }
}

TEST_F(ModelCacheTest, ADamagedFileIsDataLossWhereverTheDamage) {
  ASSERT_TRUE(StoreModel(files_, directory(), Identity(), Model()).ok());
  const std::string good = Contents();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = bad[i] == 'x' ? 'y' : 'x';
    WriteTestFile(path(), bad);
    EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss) << "byte " << i;
  }
  for (const size_t length : {size_t{0}, size_t{1}, good.find('\n') + 1, good.size() - 1}) {
    WriteTestFile(path(), good.substr(0, length));
    EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss) << length << " bytes";
    EXPECT_THAT(std::string(Load().message()), HasSubstr(path()));
  }
}

TEST_F(ModelCacheTest, AModelOfAnotherMeshIsDataLoss) {
  LinkModel other = Model();
  other.ranks = 4;
  ASSERT_TRUE(StoreModel(files_, directory(), Identity(), other).ok());
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ModelCacheTest, AModelThatWasNotMeasuredIsNeitherKeptNorTaken) {
  for (const auto& change : std::vector<void (*)(LinkModel&)>{
           [](LinkModel& m) { m.latency_seconds = 0; }, [](LinkModel& m) { m.wire.clear(); },
           [](LinkModel& m) { m.wire[0].seconds_per_byte = 0; },
           [](LinkModel& m) {
             m.one_way = {{1024, 0}};
           },
           [](LinkModel& m) { m.reduce.clear(); },
           [](LinkModel& m) {
             m.shared = {{1024, 1e-9}};
           },
           [](LinkModel& m) {
             m.meet_seconds = 1e-6, m.shared = {{1024, 0}};
           }}) {
    LinkModel model = Model();
    change(model);
    const absl::Status stored = StoreModel(files_, directory(), Identity(), model);
    EXPECT_EQ(stored.code(), absl::StatusCode::kFailedPrecondition) << ToText(model);
    EXPECT_EQ(Load().code(), absl::StatusCode::kNotFound);
  }
  // As an earlier version kept one.
  ASSERT_TRUE(StoreModel(files_, directory(), Identity(), Model()).ok());
  LinkModel zero = Model();
  zero.latency_seconds = 0;
  const std::string text = ToText(zero);
  WriteTestFile(path(), absl::StrFormat("mesh %s\nchecksum %016x\n%s", Describe(Identity()),
                                        StableHash(text), text));
  EXPECT_EQ(Load().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Load().message()), HasSubstr("latency of 3 ranks"));
}

TEST_F(ModelCacheTest, ADirectoryThatCannotBeIsAnError) {
  ASSERT_TRUE(ReplaceFileAtomically(files_, JoinPath(temporary_.path(), "deep"), "a file").ok());
  EXPECT_FALSE(StoreModel(files_, directory(), Identity(), Model()).ok());
}

}  // namespace
}  // namespace muster
