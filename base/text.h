// Text for people: one line of well-formed UTF-8, whatever it was made of. Pure and thread-safe.
#ifndef MUSTER_BASE_TEXT_H_
#define MUSTER_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace muster {

// Bytes of the well-formed UTF-8 sequence at the start of `text`; 0 if there is none. Requires:
// `text` is not empty.
size_t Utf8SequenceLength(absl::string_view text);

// Valid UTF-8 of at most `most` bytes: control characters become spaces, what is not UTF-8 question
// marks, the rest is cut off.
std::string TextForPeople(absl::string_view text, size_t most);

// "512 B", "1.5 KiB", "98.25 MiB", "1.001 GiB".
std::string ByteText(int64_t bytes);

// The status with a message that is such a text, of at most 2,000 bytes. For errors that quote what
// came from outside.
absl::Status StatusForPeople(const absl::Status& status);

}  // namespace muster

#endif  // MUSTER_BASE_TEXT_H_
