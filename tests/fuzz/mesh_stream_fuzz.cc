// The stream of messages that a peer's gRPC call carries, into receives that wait for some of them.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "collectives/transport/grpc/frame_reader.h"
#include "tests/fuzz/targets.h"

namespace muster {
namespace {

using absl::StatusCode;

constexpr TransportLimits kLimits = {.eager_bytes = 32, .unexpected_bytes = 64};

class Collector : public PieceConsumer {
 public:
  void Consume(uint64_t, int64_t offset, absl::Span<const std::byte> piece) override {
    MUSTER_CHECK(offset == static_cast<int64_t>(bytes.size()) && piece.size() % 8 == 0);
    MUSTER_CHECK(reinterpret_cast<uintptr_t>(piece.data()) % 8 == 0);
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  }
  std::vector<std::byte> bytes;
};

// What came of a stream.
struct Result {
  bool refused = false;
  size_t taken = 0;
  std::vector<uint64_t> completed;
  std::vector<std::byte> whole;
  std::vector<std::byte> consumed;
  bool operator==(const Result&) const = default;
};

// The stream arrives in pieces of `cut` bytes. Receives wait for messages 1 (40 bytes) and 2 (48,
// piece by piece).
Result ReadAll(absl::string_view text, size_t cut) {
  absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(text.data()), text.size());
  ReceiveTable table(kLimits);
  StagingBuffer staging;
  FrameReader reader(&table, &staging);
  Result result;
  Collector collector;
  result.whole.resize(40);
  (void)table.Post(PendingReceive::Into(1, absl::MakeSpan(result.whole), false, 1));
  (void)table.Post(PendingReceive::Through(2, 48, 8, &collector, 2));
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(cut, bytes.size()));
    const absl::StatusOr<size_t> taken = reader.Take(piece, &result.completed);
    MUSTER_CHECK(table.early_bytes() <= kLimits.unexpected_bytes);
    if (!taken.ok()) {
      Refused(taken.status(), {StatusCode::kInvalidArgument});
      return {.refused = true};
    }
    MUSTER_CHECK(*taken <= piece.size());
    result.taken += *taken;
    bytes.remove_prefix(*taken);
    if (*taken < piece.size()) break;  // It waits for a receive that nobody posts.
  }
  result.consumed = std::move(collector.bytes);
  return result;
}

FuzzOutcome RunStream(absl::string_view bytes) {
  const Result at_once = ReadAll(bytes, std::max<size_t>(bytes.size(), 1));
  const Result in_bytes = ReadAll(bytes, 1);
  MUSTER_CHECK(at_once.refused == in_bytes.refused);
  MUSTER_CHECK(at_once.completed == in_bytes.completed && at_once.taken == in_bytes.taken);
  MUSTER_CHECK(at_once.whole == in_bytes.whole && at_once.consumed == in_bytes.consumed);
  return at_once.refused ? FuzzOutcome::kRefused : FuzzOutcome::kAccepted;
}

std::string Frame(uint64_t tag, size_t size) {
  const auto header = EncodeDataHeader({tag, static_cast<int64_t>(size)});
  std::string frame(reinterpret_cast<const char*>(header.data()), header.size());
  for (size_t i = 0; i < size; ++i) frame.push_back(static_cast<char>('a' + i % 26));
  return frame;
}

std::vector<std::string> StreamSeeds() {
  return {Frame(1, 40), Frame(3, 20) + Frame(2, 48) + Frame(1, 40), Frame(5, 0) + Frame(6, 30),
          Frame(7, 33) + Frame(1, 40)};
}

}  // namespace

const FuzzTarget kMeshStreamTarget = {"mesh_stream", RunStream, StreamSeeds, 1'024};

}  // namespace muster
