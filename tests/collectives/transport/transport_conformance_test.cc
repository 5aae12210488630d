// What every transport promises (transport.h), for all of them.
#include <atomic>
#include <cstring>
#include <numeric>

#include "base/random.h"
#include "collectives/transport/culprit.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes Pattern(size_t size, uint64_t seed) {
  const RandomStream random(seed, "pattern");
  Bytes bytes(size);
  uint64_t bits = 0;
  for (size_t i = 0; i < size; ++i) {
    if (i % 64 == 0) bits = random.Bits(i / 64);
    bytes[i] = static_cast<std::byte>(bits >> (i % 56));
  }
  return bytes;
}

// Polls until `count` operations have completed since it was made.
class Completions {
 public:
  explicit Completions(Transport& end) : end_(end) {}
  absl::Status Await(size_t count) {
    const absl::Time limit = absl::Now() + absl::Seconds(30);
    while (tokens.size() < count) {
      const absl::Status status = end_.Poll(limit, absl::Microseconds(20), &tokens);
      if (!status.ok()) return status;
      if (absl::Now() > limit) return absl::DeadlineExceededError("test");
    }
    return absl::OkStatus();
  }
  std::vector<uint64_t> tokens;

 private:
  Transport& end_;
};

// Checks the rules of PieceConsumer and keeps the bytes.
class Collector : public PieceConsumer {
 public:
  explicit Collector(int element_bytes) : element_bytes_(element_bytes) {}
  void Consume(uint64_t token, int64_t offset, absl::Span<const std::byte> piece) override {
    last_token = token;
    EXPECT_EQ(offset, static_cast<int64_t>(bytes.size()));
    EXPECT_FALSE(piece.empty());
    EXPECT_EQ(piece.size() % static_cast<size_t>(element_bytes_), 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data()) % static_cast<uintptr_t>(element_bytes_),
              0u);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  }
  Bytes bytes;
  uint64_t last_token = 0;

 private:
  const int element_bytes_;
};

class TransportConformanceTest : public testing::TestWithParam<MeshKind> {
 protected:
  TestMesh Make(int world_size, TransportLimits limits = {}) {
    return MakeMesh(GetParam(), world_size, limits);
  }
};

TEST_P(TransportConformanceTest, SaysWhoItIs) {
  for (int world_size : {1, 2, 5}) {
    TestMesh mesh = Make(world_size);
    for (Rank r = 0; r < world_size; ++r) {
      EXPECT_EQ(mesh.ends[r]->rank(), r);
      EXPECT_EQ(mesh.ends[r]->world_size(), world_size);
      EXPECT_EQ(mesh.ends[r]->local_world_size(), world_size);
      EXPECT_FALSE(mesh.ends[r]->failure().has_value());
    }
  }
}

TEST_P(TransportConformanceTest, EverySizeArrivesWholeInMemoryAndPieceByPiece) {
  TestMesh mesh = Make(2);
  const std::vector<size_t> sizes = {0,     8,      16,     24,      4096,   65528,
                                     65536, 262144, 262152, 1000000, 5 << 20};
  RunRanks(2, [&](Rank r) {
    Transport& end = *mesh.ends[r];
    uint64_t tag = 1;
    for (size_t size : sizes) {
      const Bytes sent = Pattern(size, size + static_cast<uint64_t>(r));
      const Bytes expected = Pattern(size, size + static_cast<uint64_t>(1 - r));
      Bytes got(size);
      Collector collector(8);
      Completions completions(end);
      end.PostReceive(1 - r, tag, absl::MakeSpan(got), 10);
      end.PostConsume(1 - r, tag + 1, static_cast<int64_t>(size), 8, &collector, 11);
      end.PostSend(1 - r, tag, sent, 12);
      end.PostSend(1 - r, tag + 1, sent, 13);
      ASSERT_TRUE(completions.Await(4).ok());
      std::sort(completions.tokens.begin(), completions.tokens.end());
      EXPECT_EQ(completions.tokens, (std::vector<uint64_t>{10, 11, 12, 13}));
      EXPECT_EQ(got, expected) << size;
      EXPECT_EQ(collector.bytes, expected) << size;
      tag += 2;
    }
  });
}

TEST_P(TransportConformanceTest, OddSizesKeepElementsAligned) {
  // Messages of odd lengths between ones of 8-byte elements.
  TestMesh mesh = Make(2);
  RunRanks(2, [&](Rank r) {
    Transport& end = *mesh.ends[r];
    if (r == 0) {
      std::vector<Bytes> sent;
      for (size_t i = 1; i < 200; ++i) sent.push_back(Pattern(i % 2 == 0 ? 8 * i * i : i, i));
      for (size_t i = 0; i < sent.size(); ++i) end.PostSend(1, i + 1, sent[i], i);
      EXPECT_TRUE(Completions(end).Await(sent.size()).ok());
      std::vector<uint64_t> more;
      end.PostReceive(1, 999, {}, 1);
      EXPECT_TRUE(Completions(end).Await(1).ok());
    } else {
      std::vector<std::unique_ptr<Collector>> collectors;
      for (size_t i = 1; i < 200; ++i) {
        const int element = i % 2 == 0 ? 8 : 1;
        collectors.push_back(std::make_unique<Collector>(element));
        end.PostConsume(0, i, static_cast<int64_t>(i % 2 == 0 ? 8 * i * i : i), element,
                        collectors.back().get(), i);
      }
      ASSERT_TRUE(Completions(end).Await(199).ok());
      for (size_t i = 1; i < 200; ++i) {
        EXPECT_EQ(collectors[i - 1]->bytes, Pattern(i % 2 == 0 ? 8 * i * i : i, i));
        EXPECT_EQ(collectors[i - 1]->last_token, i);
      }
      end.PostSend(0, 999, {}, 1);
      EXPECT_TRUE(Completions(end).Await(1).ok());
    }
  });
}

TEST_P(TransportConformanceTest, ManySmallMessagesPostedInAnyOrder) {
  constexpr int kMessages = 300;
  constexpr int kRanks = 4;
  TestMesh mesh = Make(kRanks);
  RunRanks(kRanks, [&](Rank r) {
    Transport& end = *mesh.ends[r];
    const RandomStream random(5, "order", static_cast<uint64_t>(r));
    std::vector<uint64_t> sent(kMessages), got(kMessages * kRanks, 0);
    std::vector<int> order(kMessages);
    std::iota(order.begin(), order.end(), 0);
    for (int i = kMessages - 1; i > 0; --i) {
      std::swap(order[i],
                order[random.Below(static_cast<uint64_t>(i), static_cast<uint64_t>(i + 1))]);
    }
    for (int i = 0; i < kMessages; ++i) sent[i] = static_cast<uint64_t>(r * 1000 + i);
    Completions completions(end);
    for (Rank peer = 0; peer < kRanks; ++peer) {
      if (peer == r) continue;
      for (int i = 0; i < kMessages; ++i) {
        end.PostSend(peer, static_cast<uint64_t>(i),
                     absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&sent[i]), 8), 0);
      }
    }
    for (int i : order) {
      for (Rank peer = 0; peer < kRanks; ++peer) {
        if (peer == r) continue;
        auto* to = reinterpret_cast<std::byte*>(&got[peer * kMessages + i]);
        end.PostReceive(peer, static_cast<uint64_t>(i), absl::MakeSpan(to, 8), 1);
      }
    }
    ASSERT_TRUE(completions.Await(2 * kMessages * (kRanks - 1)).ok());
    for (Rank peer = 0; peer < kRanks; ++peer) {
      for (int i = 0; i < kMessages && peer != r; ++i) {
        ASSERT_EQ(got[peer * kMessages + i], static_cast<uint64_t>(peer * 1000 + i));
      }
    }
  });
}

TEST_P(TransportConformanceTest, BigSendsBothWaysBetweenAllDoNotDeadlock) {
  constexpr int kRanks = 3;
  constexpr size_t kBytes = 6 << 20;
  TestMesh mesh = Make(kRanks);
  RunRanks(kRanks, [&](Rank r) {
    Transport& end = *mesh.ends[r];
    const Bytes sent = Pattern(kBytes, static_cast<uint64_t>(r));
    std::vector<Bytes> got(kRanks, Bytes(kBytes));
    for (Rank peer = 0; peer < kRanks; ++peer) {
      if (peer != r) end.PostSend(peer, 1, sent, 0);
    }
    for (Rank peer = 0; peer < kRanks; ++peer) {
      if (peer != r) end.PostReceive(peer, 1, absl::MakeSpan(got[peer]), 1);
    }
    ASSERT_TRUE(Completions(end).Await(4).ok());
    for (Rank peer = 0; peer < kRanks; ++peer) {
      if (peer == r) continue;
      EXPECT_EQ(got[peer], Pattern(kBytes, static_cast<uint64_t>(peer)));
    }
  });
}

TEST_P(TransportConformanceTest, ASenderIsHeldBackUntilTheReceiveIsPosted) {
  TestMesh mesh = Make(2);
  const Bytes sent(24 << 20);  // More than the kernel buffers.
  std::vector<uint64_t> completed;
  mesh.ends[0]->PostSend(1, 5, sent, 1);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(mesh.ends[0]->Poll(absl::Now() + absl::Milliseconds(1), {}, &completed).ok());
    ASSERT_TRUE(mesh.ends[1]->Poll(absl::Now() + absl::Milliseconds(1), {}, &completed).ok());
  }
  EXPECT_TRUE(completed.empty());
  std::thread receiver([&] {
    Bytes got(sent.size());
    mesh.ends[1]->PostReceive(0, 5, absl::MakeSpan(got), 2);
    EXPECT_TRUE(Completions(*mesh.ends[1]).Await(1).ok());
  });
  EXPECT_TRUE(Completions(*mesh.ends[0]).Await(1).ok());
  receiver.join();
}

TEST_P(TransportConformanceTest, WakeEndsAPollAndWakeWatcherAWatch) {
  TestMesh mesh = Make(2);
  std::thread poller([&] {
    std::vector<uint64_t> completed;
    EXPECT_TRUE(mesh.ends[0]->Poll(absl::InfiniteFuture(), {}, &completed).ok());
    EXPECT_TRUE(completed.empty());
  });
  std::thread watcher([&] { mesh.ends[1]->Watch(absl::InfiniteFuture()); });
  LetTimePass(absl::Milliseconds(2), "lets the drivers block first, most often");
  mesh.ends[0]->Wake();
  mesh.ends[1]->WakeWatcher();
  poller.join();
  watcher.join();
}

TEST_P(TransportConformanceTest, CloseGetsABlockedDriverOut) {
  TestMesh mesh = Make(2);
  Bytes memory(1000);
  mesh.ends[0]->PostReceive(1, 1, absl::MakeSpan(memory), 1);
  std::thread poller([&] {
    std::vector<uint64_t> completed;
    EXPECT_TRUE(absl::IsAborted(mesh.ends[0]->Poll(absl::InfiniteFuture(), {}, &completed)));
  });
  LetTimePass(absl::Milliseconds(2), "lets the drivers block first, most often");
  mesh.ends[0]->Close(absl::AbortedError("stop"), std::nullopt);
  memory = {};
  poller.join();
}

TEST_P(TransportConformanceTest, APollThatBeginsAsTheMeshClosesFails) {
  for (int round = 0; round < 20; ++round) {
    TestMesh mesh = Make(1);
    std::thread poller([&] {
      std::vector<uint64_t> completed;
      EXPECT_TRUE(absl::IsAborted(mesh.ends[0]->Poll(absl::InfiniteFuture(), {}, &completed)));
    });
    mesh.ends[0]->Close(absl::AbortedError("stop"), std::nullopt);
    poller.join();
  }
}

TEST_P(TransportConformanceTest, AnAbortReachesDriversAndWatchersOfAllPeers) {
  TestMesh mesh = Make(4);
  RunRanks(4, [&](Rank r) {
    if (r == 2) {
      LetTimePass(absl::Milliseconds(2), "lets the drivers block first, most often");
      mesh.ends[2]->Close(absl::UnavailableError("rank 3 is gone"), 3);
      return;
    }
    if (r == 1) mesh.ends[r]->Watch(absl::InfiniteFuture());
    std::vector<uint64_t> completed;
    const absl::Status status = mesh.ends[r]->Poll(absl::InfiniteFuture(), {}, &completed);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 aborted: rank 3 is gone"));
    EXPECT_EQ(mesh.ends[r]->failure()->culprit, std::optional<Rank>(3));
    EXPECT_EQ(CulpritOf(status), std::optional<Rank>(3));
  });
}

TEST_P(TransportConformanceTest, APeerThatLeftFailsOnlyWhoWaitsForIt) {
  TestMesh mesh = Make(3);
  std::array<std::byte, 8> memory;
  mesh.ends[0]->PostStandingReceive(1, 9, absl::MakeSpan(memory), 9);
  mesh.ends[1]->Close(absl::OkStatus(), std::nullopt);
  std::vector<uint64_t> completed;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(mesh.ends[0]->Poll(absl::Now() + absl::Milliseconds(1), {}, &completed).ok());
  }
  mesh.ends[0]->Expect(1, 1);
  const absl::Status status = mesh.ends[0]->Poll(absl::InfiniteFuture(), {}, &completed);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(CulpritOf(status), std::optional<Rank>(1));
}

TEST_P(TransportConformanceTest, MessagesTakenBeforeAGoodbyeStillArrive) {
  for (int round = 0; round < 20; ++round) {
    TestMesh mesh = Make(2);
    RunRanks(2, [&](Rank r) {
      const Bytes sent = Pattern(50000, 3);
      if (r == 0) {
        mesh.ends[0]->PostSend(1, 1, sent, 1);
        ASSERT_TRUE(Completions(*mesh.ends[0]).Await(1).ok());
        mesh.ends[0].reset();
      } else {
        Bytes got(sent.size());
        mesh.ends[1]->PostReceive(0, 1, absl::MakeSpan(got), 1);
        ASSERT_TRUE(Completions(*mesh.ends[1]).Await(1).ok());
        EXPECT_EQ(got, sent);
      }
    });
  }
}

TEST_P(TransportConformanceTest, AMessageOfAnotherLengthIsAFailure) {
  const std::pair<size_t, size_t> lengths[] = {
      {100, 104}, {100, 300000}, {300000, 104}, {300000, 400000}};
  for (const auto& [sends, expects] : lengths) {
    for (const bool receive_first : {false, true}) {
      TestMesh mesh = Make(2);
      const Bytes sent(sends);
      Bytes got(expects);
      const auto send = [&] { mesh.ends[0]->PostSend(1, 1, sent, 1); };
      const auto receive = [&] { mesh.ends[1]->PostReceive(0, 1, absl::MakeSpan(got), 1); };
      const Rank first = receive_first ? 1 : 0;
      receive_first ? receive() : send();
      std::vector<uint64_t> completed;
      ASSERT_TRUE(mesh.ends[first]->Poll(absl::Now() + absl::Milliseconds(1), {}, &completed).ok());
      std::thread other([&] {
        if (receive_first) send();
        Completions(*mesh.ends[0]).Await(2).IgnoreError();  // Until rank 1 has failed.
      });
      if (!receive_first) receive();
      const absl::Status status = Completions(*mesh.ends[1]).Await(1);
      EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat(sends, " bytes where ", expects)));
      mesh.ends[1]->Close(status, std::nullopt);
      other.join();
    }
  }
}

TEST_P(TransportConformanceTest, APeerThatSendsNothingKeepsNobodyWaiting) {
  constexpr size_t kBytes = 700000;  // Of each message.
  constexpr int kMessages = 20;      // Of each peer.
  TestMesh mesh = Make(3);
  std::atomic<bool> second_is_there{false};
  RunRanks(3, [&](Rank r) {
    Transport& end = *mesh.ends[r];
    Completions completions(end);
    if (r == 0) {
      std::vector<Collector> collectors(2 * kMessages, Collector(8));
      for (Rank peer : {1, 2}) {
        for (int i = 0; i < kMessages; ++i) {
          end.PostConsume(peer, static_cast<uint64_t>(i), kBytes, 8,
                          &collectors[static_cast<size_t>((peer - 1) * kMessages + i)],
                          static_cast<uint64_t>(peer));
        }
      }
      ASSERT_TRUE(completions.Await(kMessages).ok());
      EXPECT_EQ(std::count(completions.tokens.begin(), completions.tokens.end(), 2u), kMessages);
      second_is_there = true;
      ASSERT_TRUE(completions.Await(2 * kMessages).ok());
      for (size_t i = 0; i < collectors.size(); ++i) {
        const uint64_t peer = 1 + i / kMessages;
        EXPECT_EQ(collectors[i].bytes, Pattern(kBytes, 100 * peer + i % kMessages));
      }
      return;
    }
    if (r == 1) {
      ASSERT_TRUE(WaitUntil([&] { return second_is_there.load(); }));
    }
    std::vector<Bytes> sent;
    for (size_t i = 0; i < kMessages; ++i) {
      sent.push_back(Pattern(kBytes, 100 * static_cast<uint64_t>(r) + i));
    }
    for (size_t i = 0; i < kMessages; ++i) end.PostSend(0, i, sent[i], i);
    ASSERT_TRUE(completions.Await(kMessages).ok());
  });
}

TEST_P(TransportConformanceTest, ATagIsFreeAgainOnceItsMessageHasArrived) {
  constexpr size_t kBytes = 300000;
  TestMesh mesh = Make(2);
  RunRanks(2, [&](Rank r) {
    Transport& end = *mesh.ends[r];
    Completions completions(end);
    for (uint64_t round = 0; round < 50; ++round) {
      const Bytes sent = Pattern(kBytes, 2 * round + static_cast<uint64_t>(r));
      Bytes got(kBytes);
      end.PostReceive(1 - r, 7, absl::MakeSpan(got), 1);
      // Rank 1 answers: then rank 0 knows that its message has arrived.
      if (r == 1) {
        while (std::count(completions.tokens.begin(), completions.tokens.end(), 1u) <=
               static_cast<int64_t>(round)) {
          ASSERT_TRUE(completions.Await(completions.tokens.size() + 1).ok());
        }
      }
      end.PostSend(1 - r, 7, sent, 2);
      ASSERT_TRUE(completions.Await(2 * (round + 1)).ok());
      ASSERT_EQ(got, Pattern(kBytes, 2 * round + static_cast<uint64_t>(1 - r))) << round;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportConformanceTest, testing::ValuesIn(kAllMeshKinds),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace muster
