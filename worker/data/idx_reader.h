// Reads an image classification set from two IDX files, plain or gzip (told apart by content, not
// by name).
//
// IDX: two zero bytes, a type byte (0x08: unsigned byte), the number of dimensions, each dimension
// as a big-endian 32-bit number, then the data in row-major order. Images have the dimensions
// (count, rows, columns), labels (count).
//
// Reading is strict, and every error names the file, what was expected and what came:
//   NOT_FOUND          a file is missing
//   DATA_LOSS          truncated header or data, bytes after the end, corrupt gzip
//   INVALID_ARGUMENT   not an IDX file of this kind, a dimension of zero, other counts of images
//   and
//                      labels, a label out of range
//   RESOURCE_EXHAUSTED the header asks for more than `max_bytes`
// Memory is bounded: nothing is allocated before the header's claim is checked against `max_bytes`
// and against what a file of this size can hold.
#ifndef MUSTER_WORKER_DATA_IDX_READER_H_
#define MUSTER_WORKER_DATA_IDX_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "worker/data/dataset.h"

namespace muster {

struct IdxOptions {
  int32_t class_count = 10;  // 1 .. 256
  Normalization normalization;
  int64_t max_bytes = int64_t{8} << 30;  // of decoded data, for each file
};

// The feature shape is (1, rows, columns).
absl::StatusOr<Dataset> ReadIdxDataset(FileSystem& files, const std::string& images_path,
                                       const std::string& labels_path, const IdxOptions& options);

// The shape of the same data set by the header of its images alone, for whoever needs no samples.
absl::StatusOr<DatasetShape> ReadIdxShape(FileSystem& files, const std::string& images_path,
                                          const IdxOptions& options);

}  // namespace muster

#endif  // MUSTER_WORKER_DATA_IDX_READER_H_
