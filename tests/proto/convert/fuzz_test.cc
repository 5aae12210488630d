// Bytes from anywhere must end in a value or in INVALID_ARGUMENT, and what is accepted must be
// stable: encoding and decoding it again gives the same value.
#include <random>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "proto/convert/control.h"
#include "proto/convert/job.h"
#include "tests/proto/convert/random_messages.h"
#include "tests/proto/convert/valid_job.h"

namespace muster {
namespace {

// Flips, inserts, removes and repeats a few bytes.
std::string Mutate(std::string bytes, std::mt19937_64& random) {
  for (uint64_t n = 1 + random() % 4; n > 0; --n) {
    const size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 4) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes.insert(at, 1, static_cast<char>(random()));
        break;
      case 2:
        if (!bytes.empty()) bytes.erase(at, 1 + random() % 3);
        break;
      default:
        bytes.insert(at, bytes.substr(at, random() % 20));
        break;
    }
  }
  return bytes;
}

// protobuf writes a line for each string that is not UTF-8; here they come by the thousand.
class ConvertFuzz : public ::testing::Test {
 protected:
  google::protobuf::LogSilencer silencer_;
};

TEST_F(ConvertFuzz, WorkerMessages) {
  std::mt19937_64 random(3);
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    const std::string bytes = ToProto(RandomWorkerMessage(random)).SerializeAsString();
    v1::SessionRequest request;
    if (!request.ParseFromString(Mutate(bytes, random))) continue;
    const absl::StatusOr<WorkerMessage> message = FromProto(request);
    if (!message.ok()) {
      ++refused;
      EXPECT_EQ(message.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++accepted;
    // Compared as bytes: a mutated number may be NaN, which equals nothing.
    const absl::StatusOr<WorkerMessage> again = FromProto(ToProto(*message));
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(ToProto(*again).SerializeAsString(), ToProto(*message).SerializeAsString());
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST_F(ConvertFuzz, Directives) {
  std::mt19937_64 random(4);
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    v1::SessionResponse valid = ToProto(1, RandomDirective(random));
    if (i % 3 == 0) *valid.mutable_job() = ValidJob();
    v1::SessionResponse response;
    if (!response.ParseFromString(Mutate(valid.SerializeAsString(), random))) continue;
    const absl::StatusOr<DirectiveMessage> message = FromProto(response);
    if (!message.ok()) {
      ++refused;
      EXPECT_EQ(message.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++accepted;
    v1::SessionResponse encoded = ToProto(message->term, message->directive);
    if (response.has_job()) *encoded.mutable_job() = response.job();
    const absl::StatusOr<DirectiveMessage> again = FromProto(encoded);
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(ToProto(again->term, again->directive).SerializeAsString(),
              ToProto(message->term, message->directive).SerializeAsString());
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST_F(ConvertFuzz, JobDescriptions) {
  std::mt19937_64 random(5);
  const std::string valid = ValidJob().SerializeAsString();
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    v1::JobDescription job;
    if (!job.ParseFromString(Mutate(valid, random))) continue;
    const absl::StatusOr<JobSpec> spec = JobSpecFromProto(job);
    if (!spec.ok()) {
      ++refused;
      EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++accepted;
    // What everybody relies on without looking again.
    EXPECT_GE(spec->training.micro_batch, 1);
    EXPECT_EQ(spec->training.global_batch % spec->training.micro_batch, 0);
    EXPECT_TRUE(spec->training.learning_rate.peak > 0);
    EXPECT_LE(spec->workers.min, spec->workers.start);
    EXPECT_LE(spec->workers.start, spec->workers.max);
    EXPECT_LE(spec->workers.max, 1'024);
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace muster
