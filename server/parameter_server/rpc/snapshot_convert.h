// Between a table's snapshot and the messages it travels in. Pure; thread-safe where constant.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_CONVERT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_SNAPSHOT_CONVERT_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "muster/v1/parameter_server.pb.h"
#include "server/parameter_server/core/table_snapshot.h"

namespace muster {

// Cuts a snapshot into messages. Thread-compatible.
class SnapshotWriter {
 public:
  SnapshotWriter(std::shared_ptr<const TableSnapshot> snapshot, v1::TableSpec spec)
      : snapshot_(std::move(snapshot)), spec_(std::move(spec)) {}

  // Nothing after the last one.
  std::optional<grpc::ByteBuffer> Next();

 private:
  grpc::ByteBuffer Header();

  const std::shared_ptr<const TableSnapshot> snapshot_;
  v1::TableSpec spec_;
  bool begun_ = false;
  size_t rows_ = 0;  // written
  size_t array_ = 0;
  size_t element_ = 0;  // of the array
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
