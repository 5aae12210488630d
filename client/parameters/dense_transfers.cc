#include "client/parameters/dense_transfers.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/float16.h"
#include "base/status_macros.h"
#include "proto/rpc/bulk.h"

namespace muster {
namespace {

absl::Span<const std::byte> BytesOf(absl::Span<const float> values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)};
}

uint16_t Narrow(float value, DType type) {
  return type == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
}
float Widen(uint16_t value, DType type) {
  return type == DType::kF16 ? F16ToF32(value) : BF16ToF32(value);
}

absl::Status Unexpected(const char* what) {
  return absl::InternalError(absl::StrFormat("the server's answer is no %s", what));
}

}  // namespace

v1::ElementType ToProto(DType type) {
  switch (type) {
    case DType::kF16:
      return v1::ELEMENT_TYPE_F16;
    case DType::kBF16:
      return v1::ELEMENT_TYPE_BF16;
    case DType::kF32:
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      break;
  }
  MUSTER_CHECK(type == DType::kF32) << "values travel as f32, f16 or bf16";
  return v1::ELEMENT_TYPE_F32;
}

void ReadValues(Payload& payload, DType type, absl::Span<float> values) {
  if (type == DType::kF32) {
    payload.Read({reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)});
    return;
  }
  std::vector<uint16_t> narrow(values.size());
  payload.Read({reinterpret_cast<std::byte*>(narrow.data()), narrow.size() * sizeof(uint16_t)});
  for (size_t i = 0; i < values.size(); ++i) values[i] = Widen(narrow[i], type);
}

grpc::Slice ValuesSlice(absl::Span<const float> values, DType type) {
  if (type == DType::kF32) return grpc::Slice(values.data(), values.size() * sizeof(float));
  const auto narrow = std::make_shared<std::vector<uint16_t>>(values.size());
  for (size_t i = 0; i < values.size(); ++i) (*narrow)[i] = Narrow(values[i], type);
  return SliceOver(
      {reinterpret_cast<const std::byte*>(narrow->data()), narrow->size() * sizeof(uint16_t)},
      narrow);
}

TransferCall::Ends PushEnds(const v1::TransferRequest& head, absl::Span<const float> values,
                            DType type, const MemoryLoan& loan, v1::Pushed* answer) {
  struct State {
    v1::TransferRequest head;
    absl::Span<const float> left;
    bool begun = false;
    bool acknowledged = false;
  };
  const auto state = std::make_shared<State>(State{.head = head, .left = values});
  TransferCall::Ends ends;
  ends.source = [state, type, &loan]() -> std::optional<grpc::ByteBuffer> {
    if (state->left.empty()) return std::nullopt;
    const size_t count =
        std::min<size_t>(state->left.size(), kBulkChunkBytes / static_cast<int64_t>(SizeOf(type)));
    const absl::Span<const float> chunk = state->left.first(count);
    state->left.remove_prefix(count);
    const grpc::Slice slice =
        type == DType::kF32 ? loan.Lend(BytesOf(chunk)) : ValuesSlice(chunk, type);
    if (std::exchange(state->begun, true)) state->head.clear_push();
    return EncodeFrame(state->head, {&slice, 1});
  };
  ends.sink = [state, answer](const grpc::ByteBuffer& message) -> absl::Status {
    v1::TransferResponse response;
    Payload payload;
    MUSTER_RETURN_IF_ERROR(DecodeFrame(message, &response, &payload));
    if (!response.has_pushed() || state->acknowledged) return Unexpected("acknowledgement");
    *answer = response.pushed();
    state->acknowledged = true;
    return absl::OkStatus();
  };
  ends.complete = [state] {
    return state->acknowledged ? absl::OkStatus() : Unexpected("acknowledgement: it ended early");
  };
  return ends;
}

void PulledVersions::Add(int64_t version, bool first) {
  oldest = first ? version : std::min(oldest, version);
  newest = first ? version : std::max(newest, version);
}

TransferCall::Ends PullEnds(const v1::TransferRequest& head, absl::Span<float> values, DType type,
                            PulledVersions* versions) {
  struct State {
    absl::Span<float> left;
    bool asked = false;
    bool first = true;
  };
  const auto state = std::make_shared<State>(State{.left = values});
  TransferCall::Ends ends;
  ends.source = [state, head]() -> std::optional<grpc::ByteBuffer> {
    if (std::exchange(state->asked, true)) return std::nullopt;
    return EncodeFrame(head, {});
  };
  ends.sink = [state, type, versions](const grpc::ByteBuffer& message) -> absl::Status {
    v1::TransferResponse response;
    Payload payload;
    MUSTER_RETURN_IF_ERROR(DecodeFrame(message, &response, &payload));
    const auto element_bytes = static_cast<int64_t>(SizeOf(type));
    const int64_t count = payload.size() / element_bytes;
    const auto left = static_cast<int64_t>(state->left.size());
    if (!response.has_pulled() || payload.size() % element_bytes != 0 || count > left ||
        response.pulled().left() != left - count) {
      return Unexpected("part of this pull");
    }
    versions->Add(response.pulled().version(), std::exchange(state->first, false));
    ReadValues(payload, type, state->left.first(static_cast<size_t>(count)));
    state->left.remove_prefix(static_cast<size_t>(count));
    return absl::OkStatus();
  };
  ends.complete = [state] {
    return state->left.empty() && !state->first ? absl::OkStatus()
                                                : Unexpected("whole pull: it ended early");
  };
  return ends;
}

}  // namespace muster
