#include "worker/checkpoint/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_directory.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string File(std::string header, absl::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return absl::StrCat(bytes, header, data);
}

class SafetensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<SafetensorsReader> OpenBytes(const std::string& bytes) {
    WriteTestFile(path_, bytes);
    return SafetensorsReader::Open(files_, path_);
  }

  std::string Read(const SafetensorsReader& reader, const std::string& name) {
    const auto& tensor = reader.tensors().at(name);
    std::string bytes(static_cast<size_t>(tensor.bytes), '\0');
    EXPECT_TRUE(reader.Read(tensor, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  void ExpectRefused(const std::string& bytes, const std::string& part,
                     absl::StatusCode code = absl::StatusCode::kDataLoss) {
    const absl::Status status = OpenBytes(bytes).status();
    EXPECT_EQ(status.code(), code) << status << " for " << bytes;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }

  TemporaryDirectory directory_;
  PosixFileSystem files_;
  const std::string path_ = directory_.Path("t.safetensors");
};

TEST_F(SafetensorsTest, WritesTheBytesTheFormatSays) {
  auto writer = SafetensorsWriter::Create(
      files_, path_, {{"b", DType::kF32, {2, 1}}, {"a", DType::kU8, {}}}, {{"format", "pt"}});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Append("0123").ok());
  ASSERT_TRUE(writer->Append("4567x").ok());
  const auto result = writer->Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  const std::string bytes = ReadFile(files_, path_, 1 << 20).value();
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"data_offsets":[8,9],"dtype":"U8","shape":[]},)"
                       R"("b":{"data_offsets":[0,8],"dtype":"F32","shape":[2,1]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(bytes, File(header, "01234567x"));
  EXPECT_EQ(result->bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(result->sha256, Sha256Hex(bytes));
}

TEST_F(SafetensorsTest, ReadsBackEveryDType) {
  std::vector<SafetensorsEntry> entries;
  std::string data;
  for (const DType dtype : kAllDTypes) {
    entries.push_back({std::string(Name(dtype)), dtype, {3}});
    data.append(3 * SizeOf(dtype), static_cast<char>('a' + entries.size()));
  }
  entries.push_back({"empty", DType::kF32, {0, 7}});
  auto writer = SafetensorsWriter::Create(files_, path_, entries, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Append(data).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const auto reader = SafetensorsReader::Open(files_, path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->tensors().size(), entries.size());
  EXPECT_THAT(reader->metadata(), IsEmpty());
  char letter = 'a';
  for (const DType dtype : kAllDTypes) {
    const auto& tensor = reader->tensors().at(std::string(Name(dtype)));
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_THAT(tensor.shape, ElementsAre(3));
    EXPECT_EQ(Read(*reader, std::string(Name(dtype))), std::string(3 * SizeOf(dtype), ++letter));
  }
  EXPECT_THAT(reader->tensors().at("empty").shape, ElementsAre(0, 7));
}

TEST_F(SafetensorsTest, ReadsFilesOfOtherWriters) {
  // Tensors in another order than their offsets, metadata, no padding, white space.
  const auto reader = OpenBytes(
      File(R"({"y": {"dtype":"I32","shape":[1],"data_offsets":[2,6]}, "__metadata__": {"k":"v"},
               "x": {"shape":[2],"dtype":"U8","data_offsets":[0,2]}} )",
           "abcdef"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->metadata().at("k"), "v");
  EXPECT_EQ(Read(*reader, "x"), "ab");
  EXPECT_EQ(Read(*reader, "y"), "cdef");
  EXPECT_TRUE(OpenBytes(File("{}", "")).ok());
}

TEST_F(SafetensorsTest, WriterRefusesWhatCannotBeRead) {
  const auto code = [&](std::vector<SafetensorsEntry> entries) {
    return SafetensorsWriter::Create(files_, path_, entries, {}).status().code();
  };
  EXPECT_EQ(code({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"__metadata__", DType::kF32, {1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", DType::kF32, {-1}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", DType::kF32, {int64_t{1} << 61}}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"\xff", DType::kF32, {1}}}), absl::StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsTest, TruncatedFilesAreRefused) {
  const std::string whole = File(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "ab");
  ASSERT_TRUE(OpenBytes(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(OpenBytes(whole.substr(0, size)).status().code(), absl::StatusCode::kDataLoss)
        << size;
  }
  ExpectRefused(whole + "c", "the file has");
}

TEST_F(SafetensorsTest, BadHeadersAreRefused) {
  const auto tensor = [](const std::string& entry) { return "{\"x\":" + entry + "}"; };
  ExpectRefused(File("", ""), "'{'");
  ExpectRefused(File("[]", ""), "'{'");
  ExpectRefused(File(" {}", ""), "'{'");
  ExpectRefused(File("{", ""), "JSON");
  ExpectRefused(File("{} x", ""), "JSON");
  ExpectRefused(File("{\"\xff\":1}", ""), "JSON");
  ExpectRefused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), "at most");
  ExpectRefused(File(tensor("7"), ""), "expected a JSON object");
  ExpectRefused(File(tensor("{}"), ""), "dtype");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":[1]})"), "a"), "exactly");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0,1],"z":0})"), "a"),
                "exactly");
  ExpectRefused(File(tensor(R"({"dtype":"Q9","shape":[1],"data_offsets":[0,1]})"), "a"), "Q9",
                absl::StatusCode::kInvalidArgument);
  ExpectRefused(File(tensor(R"({"dtype":8,"shape":[1],"data_offsets":[0,1]})"), "a"), "dtype");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})"), "a"), "shape");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})"), "a"), "shape");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})"), "a"), "shape");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[1,0]})"), "a"),
                "data_offsets");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0]})"), "a"),
                "data_offsets");
  ExpectRefused(File(tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,1]})"), "a"), "need 4");
  ExpectRefused(
      File(tensor(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), ""),
      "too large");
  ExpectRefused(File(tensor(R"({"dtype":"U8","shape":[9223372036854775807],)"
                            R"("data_offsets":[0,9223372036854775807]})"),
                     ""),
                "data_offsets");
  ExpectRefused(File(R"({"__metadata__":{"k":1}})", ""), "metadata");
}

TEST_F(SafetensorsTest, OverlapsGapsAndRepetitionsAreRefused) {
  const auto two = [](const char* a, const char* b) {
    return File(absl::StrCat(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)", a,
                             R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)", b, "}}"),
                "wxyz");
  };
  ASSERT_TRUE(OpenBytes(two("[0,2]", "[2,4]")).ok());
  ASSERT_TRUE(OpenBytes(two("[2,4]", "[0,2]")).ok());
  ExpectRefused(two("[0,2]", "[0,2]"), "overlap");
  ExpectRefused(two("[0,2]", "[1,3]"), "overlap");
  ExpectRefused(two("[1,3]", "[3,5]"), "gap");
  ExpectRefused(File(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                     R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                     "w"),
                "repeated");
}

TEST_F(SafetensorsTest, SurvivesRandomDamage) {
  const std::string whole = File(R"({"x":{"dtype":"F16","shape":[3,2],"data_offsets":[0,12]},)"
                                 R"("y":{"dtype":"U8","shape":[4],"data_offsets":[12,16]}})",
                                 "0123456789abcdef");
  const RandomStream random(1, "damage");
  uint64_t draw = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bytes = whole;
    for (uint64_t changes = random.Below(draw++, 4); changes > 0; --changes) {
      const uint64_t at = random.Below(draw++, bytes.size());
      bytes[at] = static_cast<char>(random.Below(draw++, 256));
    }
    if (random.Below(draw++, 4) == 0) bytes.resize(random.Below(draw++, bytes.size() + 1));
    const auto reader = OpenBytes(bytes);
    if (!reader.ok()) continue;
    int64_t total = 0;
    for (const auto& [name, tensor] : reader->tensors()) {
      total += static_cast<int64_t>(Read(*reader, name).size());
    }
    EXPECT_LE(total, static_cast<int64_t>(bytes.size()) - 8);
  }
}

}  // namespace
}  // namespace muster
