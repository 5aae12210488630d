// Little-endian integers in byte buffers. The caller guarantees the bounds.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_WIRE_H_
#define MUSTER_COLLECTIVES_TRANSPORT_WIRE_H_

#include <bit>
#include <cstddef>
#include <cstring>

namespace muster {

static_assert(std::endian::native == std::endian::little,
              "wire structures are written in native order; a big-endian port must swap here");

template <typename T>
std::byte* PutInteger(std::byte* out, T value) {
  std::memcpy(out, &value, sizeof(T));
  return out + sizeof(T);
}

template <typename T>
const std::byte* GetInteger(const std::byte* in, T* value) {
  std::memcpy(value, in, sizeof(T));
  return in + sizeof(T);
}

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_WIRE_H_
