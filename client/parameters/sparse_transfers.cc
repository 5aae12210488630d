#include "client/parameters/sparse_transfers.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "proto/rpc/bulk.h"

namespace muster {
namespace {

// Rows of one message with their values (at most 10 bytes of row number each); of one pull request,
// whose answer a server limits to 64 MiB.
size_t RowsInMessage(int64_t width, DType type) {
  const int64_t row_bytes = width * static_cast<int64_t>(SizeOf(type)) + 10;
  return static_cast<size_t>(std::max<int64_t>(1, kBulkChunkBytes / row_bytes));
}
size_t RowsInPull(int64_t width) {
  constexpr int64_t kAnswerBytes = int64_t{32} << 20;
  constexpr int64_t kRequestRows = kBulkChunkBytes / 10;
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(float));
  return static_cast<size_t>(std::clamp<int64_t>(kAnswerBytes / row_bytes, 1, kRequestRows));
}

absl::Status Unexpected() {
  return absl::InternalError("the server's answer is none to this push or pull of rows");
}

}  // namespace

std::vector<size_t> PlacesIn(absl::Span<const int64_t> rows, Range part) {
  std::vector<size_t> places;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (part.offset <= rows[i] && rows[i] < part.end()) places.push_back(i);
  }
  return places;
}

TransferCall::Ends PushRowsEnds(const v1::Push& push, const SparseValues& from, DType type,
                                v1::Pushed* answer) {
  struct State {
    v1::Push push;
    SparseValues from;
    bool begun = false;
    bool acknowledged = false;
  };
  const size_t at_once = RowsInMessage(from.width, type);
  const size_t chunks = std::max<size_t>(1, (from.places.size() + at_once - 1) / at_once);
  const auto state = std::make_shared<State>(State{.push = push, .from = from});
  state->push.set_chunks(static_cast<int32_t>(chunks));
  TransferCall::Ends ends;
  ends.source = [state, type, at_once]() -> std::optional<grpc::ByteBuffer> {
    SparseValues& left = state->from;
    const bool first = !std::exchange(state->begun, true);
    if (left.places.empty() && !first) return std::nullopt;
    v1::TransferRequest head;
    if (first) *head.mutable_push() = state->push;
    const size_t count = std::min(at_once, left.places.size());
    std::vector<float> values;
    values.reserve(count * static_cast<size_t>(left.width));
    for (size_t i = 0; i < count; ++i) {
      const size_t place = left.places[i];
      head.add_rows(left.rows[place]);
      const auto row = left.values.subspan(place * left.width, left.width);
      values.insert(values.end(), row.begin(), row.end());
    }
    left.places.remove_prefix(count);
    const grpc::Slice slice = ValuesSlice(values, type);
    return EncodeFrame(head, {&slice, 1});
  };
  ends.sink = [state, answer](const grpc::ByteBuffer& message) -> absl::Status {
    v1::TransferResponse response;
    Payload payload;
    MUSTER_RETURN_IF_ERROR(DecodeFrame(message, &response, &payload));
    if (!response.has_pushed() || state->acknowledged) return Unexpected();
    *answer = response.pushed();
    state->acknowledged = true;
    return absl::OkStatus();
  };
  ends.complete = [state] { return state->acknowledged ? absl::OkStatus() : Unexpected(); };
  return ends;
}

TransferCall::Ends PullRowsEnds(const v1::Pull& pull, const SparseTarget& to, DType type,
                                PulledVersions* versions) {
  struct State {
    absl::Span<const size_t> unasked;
    absl::Span<const size_t> unfilled;
    bool first = true;
  };
  const auto state = std::make_shared<State>(State{.unasked = to.places, .unfilled = to.places});
  TransferCall::Ends ends;
  ends.source = [state, pull, to]() -> std::optional<grpc::ByteBuffer> {
    if (state->unasked.empty()) return std::nullopt;
    v1::TransferRequest head;
    *head.mutable_pull() = pull;
    const size_t count = std::min(RowsInPull(to.width), state->unasked.size());
    for (size_t i = 0; i < count; ++i) head.mutable_pull()->add_rows(to.rows[state->unasked[i]]);
    state->unasked.remove_prefix(count);
    return EncodeFrame(head, {});
  };
  ends.sink = [state, to, type, versions](const grpc::ByteBuffer& message) -> absl::Status {
    v1::TransferResponse response;
    Payload payload;
    MUSTER_RETURN_IF_ERROR(DecodeFrame(message, &response, &payload));
    const int64_t row_bytes = to.width * static_cast<int64_t>(SizeOf(type));
    if (!response.has_pulled() || payload.size() % row_bytes != 0 ||
        payload.size() / row_bytes > static_cast<int64_t>(state->unfilled.size())) {
      return Unexpected();
    }
    versions->Add(response.pulled().version(), std::exchange(state->first, false));
    while (payload.size() > 0) {
      ReadValues(payload, type, to.values.subspan(state->unfilled.front() * to.width, to.width));
      state->unfilled.remove_prefix(1);
    }
    return absl::OkStatus();
  };
  ends.complete = [state] { return state->unfilled.empty() ? absl::OkStatus() : Unexpected(); };
  return ends;
}

}  // namespace muster
