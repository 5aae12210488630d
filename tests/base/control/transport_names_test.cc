#include "base/control/transport_names.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(TransportNamesTest, EverySpellingIsUnderstood) {
  for (const char* word : {"shm", "shared-memory", "shared_memory", "SHM", "Shared_Memory"}) {
    EXPECT_EQ(ParseTransport(word), SyncTransport::kSharedMemory) << word;
    EXPECT_EQ(MeshNameOf(word), "shm") << word;
  }
  for (const char* word : {"libfabric", "ofi", "OFI"}) {
    EXPECT_EQ(ParseTransport(word), SyncTransport::kLibfabric) << word;
    EXPECT_EQ(MeshNameOf(word), "ofi") << word;
  }
  EXPECT_EQ(ParseTransport("TCP"), SyncTransport::kTcp);
  EXPECT_EQ(MeshNameOf("TCP"), "tcp");
  EXPECT_EQ(ParseTransport("gRPC"), SyncTransport::kGrpc);
  EXPECT_EQ(MeshNameOf("gRPC"), "grpc");
  EXPECT_EQ(ParseTransport("auto"), SyncTransport::kAutomatic);
}

// A mesh over several hosts is shown as shm+tcp, and comes of itself.
TEST(TransportNamesTest, OtherWordsStandForNone) {
  for (const char* word : {"", "pigeon", "shm+tcp", "inproc", "shared memory", "tcp "}) {
    EXPECT_EQ(ParseTransport(word), std::nullopt) << word;
    EXPECT_EQ(MeshNameOf(word), word);
  }
  EXPECT_EQ(MeshNameOf("auto"), "auto");
}

// What is shown of a strategy can be asked for.
TEST(TransportNamesTest, NamesAreUnderstood) {
  for (const SyncTransport each :
       {SyncTransport::kAutomatic, SyncTransport::kTcp, SyncTransport::kSharedMemory,
        SyncTransport::kLibfabric, SyncTransport::kGrpc}) {
    EXPECT_EQ(ParseTransport(Name(each)), each);
  }
}

}  // namespace
}  // namespace muster
