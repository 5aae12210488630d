// Communicators over test meshes, and the oracle they are compared with.
#ifndef MUSTER_TESTS_COLLECTIVES_ENGINE_COMMUNICATOR_FIXTURE_H_
#define MUSTER_TESTS_COLLECTIVES_ENGINE_COMMUNICATOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/random.h"
#include "collectives/engine/communicator.h"
#include "collectives/reduce/reduce.h"
#include "collectives/schedule/schedule_request.h"
#include "tests/collectives/transport/mesh_fixture.h"

namespace muster {

using Bytes = std::vector<std::byte>;

struct TestFleet {
  TestMesh mesh;
  std::vector<std::unique_ptr<Communicator>> ranks;
};

inline TestFleet MakeFleet(MeshKind kind, int world_size, CommunicatorOptions options = {}) {
  TestFleet fleet;
  fleet.mesh = MakeMesh(kind, world_size);
  for (auto& end : fleet.mesh.ends) {
    auto communicator = Communicator::Create(std::move(end), options);
    EXPECT_TRUE(communicator.ok()) << communicator.status();
    fleet.ranks.push_back(*std::move(communicator));
  }
  return fleet;
}

// Small whole numbers' worth of random bits in the dtype, so that sums are finite but not exact in
// 16 bits.
inline Bytes RandomElements(DType dtype, int64_t count, uint64_t seed, Rank rank) {
  const RandomStream random(seed, "engine-test", static_cast<uint64_t>(rank));
  Bytes bytes(static_cast<size_t>(count) * SizeOf(dtype));
  for (int64_t i = 0; i < count; ++i) {
    std::byte* const at = bytes.data() + static_cast<size_t>(i) * SizeOf(dtype);
    const auto put = [at](auto value) { std::memcpy(at, &value, sizeof(value)); };
    const uint64_t bits = random.Bits(static_cast<uint64_t>(i));
    const float value = 4.0f * random.UniformFloat(static_cast<uint64_t>(i)) - 2.0f;
    switch (dtype) {
      case DType::kF32:
        put(value);
        break;
      case DType::kF64:
        put(static_cast<double>(value) * 1.1);
        break;
      case DType::kF16:  // Exponent 12 to 15 (of 31), any fraction and sign.
        put(static_cast<uint16_t>((bits & 0x83ff) | (((bits >> 20) % 4 + 12) << 10)));
        break;
      case DType::kBF16: {  // The upper half of a float.
        uint32_t word;
        std::memcpy(&word, &value, sizeof(word));
        put(static_cast<uint16_t>(word >> 16));
        break;
      }
      case DType::kI32:
        put(static_cast<int32_t>(bits));
        break;
      case DType::kI64:
        put(static_cast<int64_t>(bits));
        break;
      case DType::kU8:
        put(static_cast<uint8_t>(bits));
        break;
    }
  }
  return bytes;
}

// The reduction in canonical order: chunk c of `counts` sums ranks c+1, c+2, ..., c.
inline Bytes ReduceCanonically(DType dtype, ReduceOp op, const std::vector<Bytes>& inputs,
                               const std::vector<int64_t>& counts) {
  const int world_size = static_cast<int>(inputs.size());
  Bytes result(inputs[0].size());
  size_t offset = 0;
  for (int c = 0; c < world_size; ++c) {
    std::vector<const void*> sources;
    for (int i = 1; i <= world_size; ++i) {
      sources.push_back(inputs[static_cast<size_t>((c + i) % world_size)].data() + offset);
    }
    ReduceMany(dtype, op, result.data() + offset, sources, counts[static_cast<size_t>(c)],
               op == ReduceOp::kAverage ? world_size : 1);
    offset += static_cast<size_t>(counts[static_cast<size_t>(c)]) * SizeOf(dtype);
  }
  return result;
}

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_ENGINE_COMMUNICATOR_FIXTURE_H_
