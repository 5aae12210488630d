// Between a table's snapshot and the messages it travels in. Pure; thread-safe where constant.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_CONVERT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_CONVERT_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "muster/v1/parameter_server.pb.h"
#include "server/parameter_server/core/table_snapshot.h"

namespace muster {

// Cuts a snapshot into messages. Thread-compatible.
class SnapshotWriter {
 public:
  // `header` must outlive the object.
  SnapshotWriter(const SnapshotHeader& header, v1::TableSpec spec)
      : snapshot_(header), spec_(std::move(spec)) {}

  // Gives `count` elements of an array, from `offset` on.
  using Read =
      absl::FunctionRef<absl::StatusOr<grpc::Slice>(int array, int64_t offset, int64_t count)>;
  // Nothing after the last one. Calls `read` once at most; its errors are returned.
  absl::StatusOr<std::optional<grpc::ByteBuffer>> Next(Read read);

 private:
  grpc::ByteBuffer Header();

  const SnapshotHeader& snapshot_;
  v1::TableSpec spec_;
  bool begun_ = false;
  size_t rows_ = 0;  // written
  int array_ = 0;
  int64_t element_ = 0;  // of the array
};

// Puts a snapshot's header together, and reads its arrays, from its messages. Thread-compatible.
class SnapshotReader {
 public:
  // From the first message. INVALID_ARGUMENT names what is wrong.
  static absl::StatusOr<SnapshotReader> Create(const grpc::ByteBuffer& first);

  const std::string& table() const { return header_.spec.name; }

  struct Part {
    int array = 0;
    int64_t offset = 0;
    std::vector<float> values;  // none: it brought rows
  };
  // INVALID_ARGUMENT: out of order, too much, or a checksum that is wrong.
  absl::StatusOr<Part> Read(const grpc::ByteBuffer& message);
  // Complete before the first part with values. INVALID_ARGUMENT: rows are missing.
  absl::StatusOr<SnapshotHeader> Header() const;
  // INVALID_ARGUMENT if anything is missing.
  absl::Status CheckComplete() const;

 private:
  SnapshotReader() = default;
  SnapshotHeader header_;
  int64_t row_count_ = 0;
  std::vector<int64_t> read_;  // elements, by array
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_CONVERT_H_
