#include "base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace muster {
namespace {

constexpr uint32_t kReflectedPolynomial = 0x82F63B78;

using Table = std::array<uint32_t, 256>;

// Table k is what a byte does to the checksum when k more bytes follow it, so that eight bytes are
// looked up at once (M. Kounavis, F. Berry: A Systematic Approach to Building High Performance
// Software-based CRC Generators, ISCC 2005).
constexpr std::array<Table, 8> MakeTables() {
  std::array<Table, 8> tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kReflectedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = tables[0][before & 0xff] ^ (before >> 8);
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kTables = MakeTables();

// Little-endian, whatever the machine.
uint32_t Load32(const unsigned char* bytes) {
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

uint32_t ByTables(const unsigned char* data, size_t left, uint32_t crc) {
  for (; left >= 8; left -= 8, data += 8) {
    const uint32_t low = crc ^ Load32(data);
    const uint32_t high = Load32(data + 4);
    crc = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^ kTables[5][(low >> 16) & 0xff] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xff] ^ kTables[2][(high >> 8) & 0xff] ^
          kTables[1][(high >> 16) & 0xff] ^ kTables[0][high >> 24];
  }
  for (; left > 0; --left, ++data) crc = kTables[0][(crc ^ *data) & 0xff] ^ (crc >> 8);
  return crc;
}

#if defined(__x86_64__)
// Bytes of each of three runs that are worked on side by side: the instruction takes three cycles,
// and one can begin in each.
constexpr size_t kRun = 1024;

// What a run of zeros makes of a checksum. Linear, so it is put together from what it makes of each
// of the four bytes.
class RunOfZeros {
 public:
  __attribute__((target("sse4.2"))) RunOfZeros() {
    for (uint32_t k = 0; k < tables_.size(); ++k) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        uint64_t crc = byte << (8 * k);
        for (size_t i = 0; i < kRun; i += 8) crc = __builtin_ia32_crc32di(crc, 0);
        tables_[k][byte] = static_cast<uint32_t>(crc);
      }
    }
  }
  uint32_t After(uint64_t crc) const {
    return tables_[0][crc & 0xff] ^ tables_[1][(crc >> 8) & 0xff] ^ tables_[2][(crc >> 16) & 0xff] ^
           tables_[3][(crc >> 24) & 0xff];
  }

 private:
  std::array<Table, 4> tables_;
};

uint64_t Load64(const unsigned char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// SSE 4.2 has an instruction for this polynomial: a core's share of the memory's bandwidth where
// the tables give a gigabyte a second.
__attribute__((target("sse4.2"))) uint32_t ByInstruction(const unsigned char* data, size_t left,
                                                         uint32_t crc) {
  uint64_t wide = crc;
  if (left >= 3 * kRun) {
    static const RunOfZeros zeros;
    for (; left >= 3 * kRun; left -= 3 * kRun, data += 3 * kRun) {
      uint64_t second = 0;
      uint64_t third = 0;
      for (size_t i = 0; i < kRun; i += 8) {
        wide = __builtin_ia32_crc32di(wide, Load64(data + i));
        second = __builtin_ia32_crc32di(second, Load64(data + kRun + i));
        third = __builtin_ia32_crc32di(third, Load64(data + 2 * kRun + i));
      }
      // A checksum of two runs is that of the first, moved on over as many zeros, and the second's.
      wide = zeros.After(zeros.After(wide) ^ second) ^ third;
    }
  }
  for (; left >= 8; left -= 8, data += 8) wide = __builtin_ia32_crc32di(wide, Load64(data));
  crc = static_cast<uint32_t>(wide);
  for (; left > 0; --left, ++data) crc = __builtin_ia32_crc32qi(crc, *data);
  return crc;
}
#endif

using Method = uint32_t (*)(const unsigned char*, size_t, uint32_t);

// The fastest that this machine has.
Method ChooseMethod() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") != 0) return ByInstruction;
#endif
  return ByTables;
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes, uint32_t crc) {
  static const Method method = ChooseMethod();
  return ~method(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), ~crc);
}

uint32_t Crc32cPortable(absl::string_view bytes, uint32_t crc) {
  return ~ByTables(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), ~crc);
}

}  // namespace muster
