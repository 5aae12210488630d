// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected; RFC 3720 section 12.1). Pure, thread-safe.
#ifndef MUSTER_BASE_CRC32C_H_
#define MUSTER_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace muster {

// The checksum of `bytes`; to go on from a prefix, pass the prefix's checksum as `crc`.
uint32_t Crc32c(absl::string_view bytes, uint32_t crc = 0);

// The same without instructions that only some machines have; for tests.
uint32_t Crc32cPortable(absl::string_view bytes, uint32_t crc = 0);

}  // namespace muster

#endif  // MUSTER_BASE_CRC32C_H_
