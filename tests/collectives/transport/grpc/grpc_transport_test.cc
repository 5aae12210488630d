// What is particular to gRPC: forming meshes, fencing, strangers at the service, and that memory is
// let go of whatever the peer does.
#include "collectives/transport/grpc/grpc_transport.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <optional>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/random.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/grpc/grpc_rendezvous.h"
#include "collectives/transport/grpc/grpc_wire.h"
#include "collectives/transport/tcp_handshake.h"
#include "tests/collectives/transport/mesh_fixture.h"
#include "tests/wait_until.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }
std::string Text(const absl::Status& status) { return std::string(status.message()); }

// A call by a stranger: a hello, a message, and what the server says in the end.
class StrangersCall : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  StrangersCall(const std::string& address, const std::string& method,
                const std::optional<std::string>& hello, const std::string& message)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        stub_(channel_) {
    if (hello.has_value()) context_.AddMetadata(kHelloKey, *hello);
    const grpc::Slice slice(message);
    outgoing_ = grpc::ByteBuffer(&slice, 1);
    stub_.PrepareBidiStreamingCall(&context_, method, {}, this);
    StartRead(&incoming_);
    StartWrite(&outgoing_);
    StartCall();
  }
  grpc::Status Await() {
    done_.WaitForNotification();
    return status_;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    done_.Notify();
  }
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer outgoing_, incoming_;
  grpc::Status status_;
  absl::Notification done_;
};

class GrpcTransportTest : public testing::Test {
 protected:
  GrpcTransportTest() {
    for (uint64_t i = 0; i < 2; ++i) {
      listeners_.push_back(*GrpcListener::Serve());
      spec_.members.push_back({Incarnation{i + 1}, listeners_.back()->address()});
    }
    spec_.token = "fleet/job";
    spec_.epoch = 5;
  }
  absl::StatusOr<std::unique_ptr<Transport>> Connect(Rank rank, MeshSpec spec,
                                                     absl::Time deadline = Soon()) {
    spec.rank = rank;
    return GrpcTransport::Connect(*listeners_[rank], spec, deadline);
  }
  std::vector<std::unique_ptr<Transport>> Form(const MeshSpec& spec) {
    std::vector<std::unique_ptr<Transport>> ends(2);
    RunRanks(2, [&](Rank r) {
      auto end = Connect(r, spec);
      EXPECT_TRUE(end.ok()) << end.status();
      if (end.ok()) ends[r] = *std::move(end);
    });
    return ends;
  }
  // A hello of rank 1 to rank 0, as `change` makes it.
  std::string HelloTo0(const std::function<void(TcpHello&)>& change = [](TcpHello&) {}) {
    TcpHello hello = {.token_hash = StableHash(spec_.token),
                      .epoch = spec_.epoch,
                      .from = spec_.members[1].incarnation,
                      .to = spec_.members[0].incarnation,
                      .from_rank = 1,
                      .to_rank = 0,
                      .world_size = 2,
                      .channel = 1,
                      .channels = 1};
    change(hello);
    const auto bytes = EncodeHello(hello);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  grpc::Status Call(const std::string& method, const std::optional<std::string>& hello) {
    return StrangersCall(spec_.members[0].address, method, hello, "payload").Await();
  }

  std::vector<std::unique_ptr<GrpcListener>> listeners_;
  MeshSpec spec_;
};

TEST_F(GrpcTransportTest, APortInUseIsNamed) {
  const auto taken = GrpcListener::Serve(listeners_[0]->address());
  EXPECT_TRUE(absl::IsUnavailable(taken.status()));
  EXPECT_THAT(Text(taken.status()), HasSubstr(listeners_[0]->address()));
}

TEST_F(GrpcTransportTest, EpochsOnlyRise) {
  Form(spec_);
  EXPECT_TRUE(absl::IsFailedPrecondition(Connect(0, spec_).status()));
  MeshSpec older = spec_;
  older.epoch = 4;
  EXPECT_TRUE(absl::IsFailedPrecondition(Connect(0, older).status()));
  MeshSpec newer = spec_;
  newer.epoch = 6;
  Form(newer);
}

TEST_F(GrpcTransportTest, AMemberLeftBehindInAnOlderEpochIsRefused) {
  MeshSpec newer = spec_;
  newer.epoch = 6;
  std::thread waiting([&] {
    auto end = Connect(0, newer, absl::Now() + absl::Seconds(1));
    EXPECT_TRUE(absl::IsDeadlineExceeded(end.status())) << end.status();
    EXPECT_THAT(Text(end.status()), HasSubstr("rank 1"));
    EXPECT_EQ(CulpritOf(end.status()), std::optional<Rank>(1));
  });
  ASSERT_TRUE(WaitUntil([&] {
    return Call(kMeshMethod, HelloTo0([](TcpHello& h) { h.epoch = 5; }))
               .error_message()
               .find("epoch 5 is over") != std::string::npos;
  }));
  const auto stale = Connect(1, spec_);
  EXPECT_TRUE(absl::IsFailedPrecondition(stale.status())) << stale.status();
  EXPECT_THAT(Text(stale.status()), HasSubstr("epoch 5 is over"));
  EXPECT_EQ(CulpritOf(stale.status()), std::optional<Rank>(0));
  waiting.join();
}

TEST_F(GrpcTransportTest, AnEarlyDialerWaitsUntilThisProcessIsReady) {
  std::thread early([&] {
    auto end = Connect(1, spec_);
    EXPECT_TRUE(end.ok()) << end.status();
  });
  LetTimePass(absl::Milliseconds(50), "lets the dialer come first, most often");
  auto end = Connect(0, spec_);
  EXPECT_TRUE(end.ok()) << end.status();
  early.join();
}

TEST_F(GrpcTransportTest, StrangersAreRefusedWithTheReasonAndDoNoHarm) {
  std::thread forming([&] {
    auto end = Connect(0, spec_);
    EXPECT_TRUE(end.ok()) << end.status();
  });
  struct Case {
    grpc::StatusCode code;
    const char* text;
    std::function<void(TcpHello&)> change;
  };
  using enum grpc::StatusCode;
  const std::vector<Case> cases = {
      {FAILED_PRECONDITION, "incarnation", [](TcpHello& h) { h.to = Incarnation{99}; }},
      {FAILED_PRECONDITION, "incarnation", [](TcpHello& h) { h.from = Incarnation{99}; }},
      {FAILED_PRECONDITION, "channels", [](TcpHello& h) { h.channels = 2; }},
      {FAILED_PRECONDITION, "of 3", [](TcpHello& h) { h.world_size = 3; }},
      {INVALID_ARGUMENT, "channel 0", [](TcpHello& h) { h.channel = 0; }},
      {INVALID_ARGUMENT, "impossible", [](TcpHello& h) { h.to_rank = 1; }},
      {FAILED_PRECONDITION, "epoch 4 is over", [](TcpHello& h) { h.epoch = 4; }},
  };
  for (const Case& stranger : cases) {
    // Until the epoch is being formed here such a call waits; so the first may.
    const grpc::Status status = Call(kMeshMethod, HelloTo0(stranger.change));
    EXPECT_EQ(status.error_code(), stranger.code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(stranger.text));
  }
  EXPECT_EQ(Call(kMeshMethod, std::nullopt).error_code(), INVALID_ARGUMENT);
  EXPECT_EQ(Call(kMeshMethod, std::string(80, 'x')).error_code(), INVALID_ARGUMENT);
  EXPECT_EQ(Call(kMeshMethod, std::string("short")).error_code(), INVALID_ARGUMENT);
  EXPECT_EQ(Call("/muster.v1.Mesh/Other", HelloTo0()).error_code(), UNIMPLEMENTED);
  // One of another token may be for a job to come: it waits.
  StrangersCall parked(spec_.members[0].address, kMeshMethod,
                       HelloTo0([](TcpHello& h) { h.token_hash = 1; }), "payload");
  auto end = Connect(1, spec_);
  EXPECT_TRUE(end.ok()) << end.status();
  forming.join();
  parked.Cancel();
  EXPECT_EQ(parked.Await().error_code(), CANCELLED);
}

TEST_F(GrpcTransportTest, GarbageInAWelcomeCallIsAFailureThatNamesTheRank) {
  // Rank 1 takes rank 0's call, and something else makes its own.
  GrpcRendezvous& rank1 = listeners_[1]->rendezvous();
  const auto signal = std::make_shared<GrpcSignal>();
  MeshPlan plan = {.token_hash = StableHash(spec_.token), .epoch = 5, .rank = 1, .both_dial = true};
  for (const MeshMember& member : spec_.members) plan.incarnations.push_back(member.incarnation);
  ASSERT_TRUE(rank1.Begin(std::move(plan), signal).ok());
  StrangersCall impostor(spec_.members[0].address, kMeshMethod, HelloTo0(), std::string(99, 'g'));
  {
    auto end = Connect(0, spec_);
    ASSERT_TRUE(end.ok()) << end.status();
    std::vector<uint64_t> completed;
    const absl::Status status = (*end)->Poll(absl::InfiniteFuture(), {}, &completed);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 1"), HasSubstr("no frame header")));
    const auto arrivals = rank1.Take();
    ASSERT_TRUE(arrivals.ok());
    for (const GrpcArrival& arrival : *arrivals) arrival.call->Leave(grpc::Status::OK);
  }
  rank1.End();
  impostor.Cancel();
  impostor.Await();
}

TEST_F(GrpcTransportTest, NobodyListensIsSaidAtOnce) {
  const std::string address = listeners_[0]->address();
  listeners_[0].reset();
  const auto end = Connect(1, spec_);
  EXPECT_TRUE(absl::IsUnavailable(end.status())) << end.status();
  EXPECT_THAT(Text(end.status()), AllOf(HasSubstr("rank 0"), HasSubstr(address)));
}

TEST_F(GrpcTransportTest, CancelThroughEndsAConnectInProgress) {
  std::thread waiting([&] {
    const auto end = Connect(0, spec_);
    EXPECT_TRUE(absl::IsCancelled(end.status())) << end.status();
  });
  LetTimePass(absl::Milliseconds(20), "lets it begin first, most often");
  listeners_[0]->CancelThrough(5);
  waiting.join();
}

TEST_F(GrpcTransportTest, CloseLetsGoOfMemoryThatThePeerDoesNotRead) {
  for (const absl::Status& reason : {absl::OkStatus(), absl::AbortedError("stop")}) {
    auto ends = Form(spec_);
    ++spec_.epoch;
    std::vector<std::byte> memory(64 << 20);
    ends[0]->PostSend(1, 1, memory, 1);
    std::vector<uint64_t> completed;
    ASSERT_TRUE(ends[0]->Poll(absl::Now() + absl::Milliseconds(50), {}, &completed).ok());
    EXPECT_TRUE(completed.empty());
    ends[0]->Close(reason, std::nullopt);
    memory = {};
    if (reason.ok()) continue;
    const absl::Status status = ends[1]->Poll(absl::InfiniteFuture(), {}, &completed);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(Text(status), HasSubstr("rank 0 aborted: stop"));
  }
}

}  // namespace
}  // namespace muster
