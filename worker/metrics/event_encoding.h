// The protobuf wire format of the few fields of TensorFlow's Event message that TensorBoard needs
// for scalars (tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto), and the
// TFRecord framing. Encoded by hand: three fields do not justify a generated message. Pure.
#ifndef MUSTER_WORKER_METRICS_EVENT_ENCODING_H_
#define MUSTER_WORKER_METRICS_EVENT_ENCODING_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace muster {

struct Scalar {
  absl::string_view tag;  // "train/loss"
  float value = 0;
};

// Event{wall_time, file_version}: the first record of every file. `wall_time` is in seconds since
// 1970.
std::string EncodeFileVersionEvent(double wall_time);

// Event{wall_time, step, summary{value{tag, simple_value}...}}.
std::string EncodeScalarEvent(double wall_time, int64_t step, absl::Span<const Scalar> scalars);

// Little-endian 64-bit length, masked CRC-32C of the length, data, masked CRC-32C of the data.
std::string EncodeTfRecord(absl::string_view data);

}  // namespace muster

#endif  // MUSTER_WORKER_METRICS_EVENT_ENCODING_H_
