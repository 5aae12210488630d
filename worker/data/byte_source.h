// A file's contents as a stream of bytes, decompressed where the file is gzip (RFC 1952).
//
// Thread-compatible. Errors name the file: DATA_LOSS for corrupt or truncated gzip, or bytes after
// its end that are not another gzip member.
#ifndef MUSTER_WORKER_DATA_BYTE_SOURCE_H_
#define MUSTER_WORKER_DATA_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file.h"

namespace muster {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `out` and returns the number of bytes: fewer than asked only at the end of the contents.
  virtual absl::StatusOr<size_t> Read(absl::Span<char> out) = 0;

  // The most bytes that the whole contents can have, judged by the size of the file.
  virtual int64_t size_bound() const = 0;

  // "the file" or "the decompressed file", for messages.
  virtual const char* description() const = 0;
};

// Tells gzip apart by its first two bytes.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(FileSystem& files,
                                                           const std::string& path);

}  // namespace muster

#endif  // MUSTER_WORKER_DATA_BYTE_SOURCE_H_
