#include "proto/rpc/payload_frame.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "muster/v1/parameter_server.pb.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

grpc::ByteBuffer InPieces(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.substr(at, piece));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string ToText(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

std::string ReadAll(Payload& payload) {
  std::string text(static_cast<size_t>(payload.size()), '\0');
  payload.Read({reinterpret_cast<std::byte*>(text.data()), text.size()});
  return text;
}

v1::TransferRequest Head() {
  v1::TransferRequest head;
  head.mutable_push()->set_table("t");
  head.mutable_push()->set_step(7);
  head.add_rows(3);
  head.add_rows(-1);
  return head;
}

TEST(PayloadFrameTest, EncodesAsProtobufDoes) {
  v1::TransferRequest whole = Head();
  whole.set_data("some payload");
  const grpc::Slice slices[] = {grpc::Slice("some "), grpc::Slice("payload")};
  v1::TransferRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(ToText(EncodeFrame(Head(), slices))));
  EXPECT_EQ(parsed.SerializeAsString(), whole.SerializeAsString());
}

TEST(PayloadFrameTest, DecodesWhatProtobufEncodesInPiecesOfAnySize) {
  v1::TransferRequest whole = Head();
  whole.set_data(std::string(300, 'x') + "end");
  const std::string bytes = whole.SerializeAsString();
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, bytes.size()}) {
    v1::TransferRequest head;
    Payload payload;
    ASSERT_TRUE(DecodeFrame(InPieces(bytes, piece), &head, &payload).ok());
    EXPECT_EQ(head.SerializeAsString(), Head().SerializeAsString());
    EXPECT_EQ(ReadAll(payload), whole.data());
    EXPECT_EQ(payload.size(), 0);
  }
}

TEST(PayloadFrameTest, TakesFieldsInAnyOrder) {
  v1::TransferRequest data_only;
  data_only.set_data("first");
  v1::TransferRequest head;
  Payload payload;
  const std::string bytes = data_only.SerializeAsString() + Head().SerializeAsString();
  ASSERT_TRUE(DecodeFrame(InPieces(bytes, 3), &head, &payload).ok());
  EXPECT_EQ(head.push().step(), 7);
  EXPECT_EQ(ReadAll(payload), "first");
}

TEST(PayloadFrameTest, RefusesWhatIsCutShortAnywhere) {
  v1::TransferRequest whole = Head();
  whole.set_data("payload");
  const std::string bytes = whole.SerializeAsString();
  const std::string head_bytes = Head().SerializeAsString();
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    v1::TransferRequest expected;
    v1::TransferRequest head;
    Payload payload;
    const absl::Status status = DecodeFrame(InPieces(bytes.substr(0, cut), 5), &head, &payload);
    // Protobuf's own parser says where a cut leaves a whole message.
    EXPECT_EQ(status.ok(), expected.ParseFromString(bytes.substr(0, cut))) << cut;
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  }
}

TEST(PayloadFrameTest, RefusesDataTwice) {
  v1::TransferRequest once;
  once.set_data("x");
  v1::TransferRequest head;
  Payload payload;
  const std::string bytes = once.SerializeAsString() + once.SerializeAsString();
  const absl::Status status = DecodeFrame(InPieces(bytes, 100), &head, &payload);
  EXPECT_THAT(std::string(status.message()), HasSubstr("twice"));
}

TEST(PayloadFrameTest, DoesNotCopyAndKeepsTheOwnerUntilTheBufferIsGone) {
  auto owner = std::make_shared<std::string>(1 << 16, 'm');
  const std::weak_ptr<std::string> alive = owner;
  const auto memory =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(owner->data()), owner->size());
  auto slice = std::make_unique<grpc::Slice>(SliceOver(memory, owner));
  auto buffer =
      std::make_unique<grpc::ByteBuffer>(EncodeFrame(v1::TransferResponse(), {slice.get(), 1}));
  owner.reset();
  slice.reset();
  ASSERT_FALSE(alive.expired());
  v1::TransferResponse head;
  auto payload = std::make_unique<Payload>();
  ASSERT_TRUE(DecodeFrame(*buffer, &head, payload.get()).ok());
  ASSERT_EQ(payload->Pieces().size(), 1u);
  EXPECT_EQ(payload->Pieces().front().data(), memory.data());
  buffer.reset();
  ASSERT_FALSE(alive.expired());
  payload.reset();
  EXPECT_TRUE(alive.expired());
}

}  // namespace
}  // namespace muster
