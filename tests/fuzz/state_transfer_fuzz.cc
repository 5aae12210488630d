// State transfer between workers: the learner's request, and all that a source may answer.
#include <optional>

#include "base/check.h"
#include "base/crc32c.h"
#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/targets.h"
#include "worker/rpc/transfer_convert.h"
#include "worker/rpc/transfer_receiver.h"

namespace muster {
namespace {

using absl::StatusCode;

constexpr int32_t kArrays = 2;
constexpr int64_t kElements = 3;

FuzzOutcome RunLearnRequest(absl::string_view bytes) {
  const google::protobuf::LogSilencer silencer;
  v1::LearnRequest proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return FuzzOutcome::kRefused;
  }
  const absl::StatusOr<LearnRequest> request = FromProto(proto);
  if (!request.ok()) return Refused(request.status(), {StatusCode::kInvalidArgument});
  MUSTER_CHECK(ToProto(*request).SerializeAsString() ==
               ToProto(FromProto(ToProto(*request)).value()).SerializeAsString());
  return FuzzOutcome::kAccepted;
}

std::vector<std::string> LearnRequestSeeds() {
  return {ToProto(LearnRequest{.job = "job-1",
                               .fleet_id = "fleet",
                               .learner = Incarnation{1},
                               .source = Incarnation{2},
                               .layout_fingerprint = 3})
              .SerializeAsString()};
}

// Holds the receiver to the contract of StateSink.
class CheckingSink final : public StateSink {
 public:
  absl::Status OnHeader(const SnapshotHeader& header) override {
    MUSTER_CHECK(!next_step_.has_value());
    next_step_ = header.tag.step + 1;
    MUSTER_CHECK(header.update_count >= 0 && header.update_count <= header.tag.step);
    return absl::OkStatus();
  }
  absl::Status OnSnapshotChunk(int array, int64_t offset, absl::Span<const float> values) override {
    MUSTER_CHECK(next_step_.has_value() && !done_);
    MUSTER_CHECK(array == received_ / kElements && offset == received_ % kElements);
    received_ += static_cast<int64_t>(values.size());
    MUSTER_CHECK(offset + static_cast<int64_t>(values.size()) <= kElements);
    return absl::OkStatus();
  }
  absl::Status OnSnapshotDone() override {
    MUSTER_CHECK(!done_ && received_ == kArrays * kElements);
    done_ = true;
    return absl::OkStatus();
  }
  absl::Status OnStep(StepItem item) override {
    MUSTER_CHECK(done_ && item.record.step == next_step_ && item.tag.step == next_step_);
    MUSTER_CHECK(item.gradient != nullptr && item.gradient->size() == kElements);
    ++*next_step_;
    return absl::OkStatus();
  }
  absl::Status OnStable(const StateTag& stable) override {
    MUSTER_CHECK(done_ && stable.step >= 0);
    return absl::OkStatus();
  }
  void OnEnded(const absl::Status&) override { MUSTER_CHECK(false); }

 private:
  std::optional<Step> next_step_;
  int64_t received_ = 0;
  bool done_ = false;
};

// No fuzzer guesses a checksum. Every second one, by its last bit, is left as it came.
void RepairChecksums(v1::LearnResponse* response) {
  if (response->has_snapshot() && (response->snapshot().crc32c() & 1) == 0) {
    response->mutable_snapshot()->set_crc32c(Crc32c(response->snapshot().data()));
  }
  if (response->has_gradient() && (response->gradient().crc32c() & 1) == 0) {
    response->mutable_gradient()->set_crc32c(Crc32c(response->gradient().data()));
  }
}

// Messages, each after two bytes with its length.
FuzzOutcome RunStateTransfer(absl::string_view bytes) {
  const google::protobuf::LogSilencer silencer;
  StateLearnerOptions options;
  options.expected_array_count = kArrays;
  options.expected_array_elements = kElements;
  CheckingSink sink;
  TransferReceiver receiver(options, sink);
  while (bytes.size() >= 2) {
    const size_t length = static_cast<unsigned char>(bytes[0]) |
                          static_cast<size_t>(static_cast<unsigned char>(bytes[1])) << 8;
    const absl::string_view message = bytes.substr(2, length);
    bytes.remove_prefix(2 + message.size());
    v1::LearnResponse response;
    if (!response.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      return FuzzOutcome::kRefused;
    }
    RepairChecksums(&response);
    const absl::Status status = receiver.Take(response);
    if (!status.ok()) return Refused(status, {StatusCode::kDataLoss});
  }
  return FuzzOutcome::kAccepted;
}

void Add(const v1::LearnResponse& response, std::string* stream) {
  const std::string bytes = response.SerializeAsString();
  stream->push_back(static_cast<char>(bytes.size() & 0xff));
  stream->push_back(static_cast<char>(bytes.size() >> 8));
  *stream += bytes;
}

std::vector<std::string> StateTransferSeeds() {
  std::string stream;
  v1::LearnResponse response;
  const StateTag tag = {.branch = 1, .step = 10, .epoch = 2};
  *response.mutable_header() = ToProto(SnapshotHeader{
      .tag = tag, .update_count = 9, .array_count = kArrays, .array_elements = kElements});
  Add(response, &stream);
  const std::vector<float> values = {1, 2, 3};
  for (int32_t array = 0; array < kArrays; ++array) {
    // In two pieces.
    for (const auto& [offset, count] : {std::pair(0, 2), std::pair(2, 1)}) {
      v1::SnapshotChunk& chunk = *response.mutable_snapshot();
      chunk.set_array(array);
      chunk.set_offset(offset);
      chunk.set_data(EncodeElements(absl::MakeConstSpan(values).subspan(offset, count)));
      chunk.set_crc32c(Crc32c(chunk.data()));
      Add(response, &stream);
    }
  }
  const std::string snapshot = stream;
  v1::GradientChunk& gradient = *response.mutable_gradient();
  gradient.set_step(11);
  gradient.set_data(EncodeElements(values));
  gradient.set_crc32c(Crc32c(gradient.data()));
  Add(response, &stream);
  *response.mutable_record() = ToProto(StepItem{
      .record = {.step = 11, .epoch = 3, .loss_sum = 1, .samples = 4, .correct = 2, .finite = true},
      .tag = {.branch = 1, .step = 11, .epoch = 3},
      .stable = tag});
  Add(response, &stream);
  response.mutable_stable()->set_branch(1);
  response.mutable_stable()->set_step(11);
  response.mutable_stable()->set_epoch(3);
  Add(response, &stream);
  return {snapshot, stream};
}

}  // namespace

const FuzzTarget kLearnRequestTarget = {"learn_request", RunLearnRequest, LearnRequestSeeds, 1'024};
const FuzzTarget kStateTransferTarget = {"state_transfer", RunStateTransfer, StateTransferSeeds,
                                         4'096};

}  // namespace muster
