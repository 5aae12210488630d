// Collectives in shared memory: the three ways, in any succession, against the oracle.
#include <numeric>

#include "absl/strings/str_format.h"
#include "tests/collectives/engine/communicator_fixture.h"

namespace muster {
namespace {

// A buffer in a rank's arena, or in memory of its own.
class Buffer {
 public:
  Buffer(SharedArena& arena, bool registered, const Bytes& contents) {
    if (registered) {
      auto shared = arena.Allocate(static_cast<int64_t>(contents.size()) + 64);
      EXPECT_TRUE(shared.ok()) << shared.status();
      shared_ = *std::move(shared);
      data_ = shared_.data() + 64;
    } else {
      own_.resize(contents.size() + 1);
      data_ = own_.data();
    }
    if (!contents.empty()) std::memcpy(data_, contents.data(), contents.size());
  }
  std::byte* data() const { return data_; }

 private:
  SharedBuffer shared_;
  Bytes own_;
  std::byte* data_;
};

struct Setting {
  int world_size;
  bool small;  // everything goes the small way
};

class WindowCollectivesTest : public testing::TestWithParam<Setting> {
 protected:
  WindowCollectivesTest() {
    CommunicatorOptions options;
    options.segment_bytes = 2048;
    options.window_small_limit_bytes = GetParam().small ? 1 << 20 : 256;
    options.spin = absl::ZeroDuration();
    fleet_ = MakeFleet(MeshKind::kShm, size(), options);
  }
  int size() const { return GetParam().world_size; }
  SharedArena& arena(Rank r) { return *fleet_.mesh.arenas[r]; }

  TestFleet fleet_;
};

TEST_P(WindowCollectivesTest, AnySuccessionOfCallsMatchesTheOracle) {
  const RandomStream random(41, "succession", static_cast<uint64_t>(size()));
  for (uint64_t call = 0; call < 150; ++call) {
    uint64_t bits = random.Bits(call);
    const auto draw = [&bits](uint64_t below) {
      const uint64_t value = bits % below;
      bits /= below;
      return value;
    };
    const DType dtype = kAllDTypes[draw(std::size(kAllDTypes))];
    const ReduceOp op = kAllReduceOps[draw(std::size(kAllReduceOps))];
    const int64_t count =
        draw(8) == 0 ? static_cast<int64_t>(draw(3)) : static_cast<int64_t>(draw(6000));
    const uint64_t what = draw(6);
    const bool in_place = draw(2) == 0;
    const uint64_t registration = draw(3);  // none, all, some
    const bool by_messages = draw(6) == 0;
    const auto root = static_cast<Rank>(draw(static_cast<uint64_t>(size())));
    std::vector<int64_t> counts = EvenCounts(count, size());
    if (draw(2) == 0) std::swap(counts[0], counts[static_cast<size_t>(root)]);
    const std::string trace = absl::StrFormat(
        "call %d: %d %s %s %d in place %d registration %d messages %d root %d", call, what,
        Name(dtype), Name(op), count, in_place, registration, by_messages, root);
    SCOPED_TRACE(trace);
    const size_t element = SizeOf(dtype);
    std::vector<Bytes> inputs;
    for (Rank r = 0; r < size(); ++r) inputs.push_back(RandomElements(dtype, count, call, r));
    const Bytes reduced =
        ReduceCanonically(dtype, op, inputs, what == 0 ? EvenCounts(count, size()) : counts);
    RunRanks(size(), [&](Rank r) {
      const bool registered = registration == 1 || (registration == 2 && r % 2 == 0);
      CollectiveOptions options;
      options.caller_waits = r % 2 == 0;
      if (by_messages) options.algorithm = Algorithm::kDirect;
      Communicator& self = *fleet_.ranks[r];
      const auto bytes = static_cast<size_t>(count) * element;
      const size_t before =
          static_cast<size_t>(std::accumulate(counts.begin(), counts.begin() + r, int64_t{0})) *
          element;
      const size_t mine = static_cast<size_t>(counts[r]) * element;
      Buffer input(arena(r), registered, inputs[r]);
      Buffer output(arena(r), registered, Bytes(bytes, std::byte{0xee}));
      Work work;
      const std::byte* result = output.data();
      Bytes expected = reduced;
      switch (what) {
        case 0:
          if (in_place) result = input.data();
          work = self.AllReduce(input.data(), const_cast<std::byte*>(result), count, dtype, op,
                                options);
          break;
        case 5:
          if (in_place) result = input.data();
          work = self.AllReduceV(input.data(), const_cast<std::byte*>(result), counts, dtype, op,
                                 options);
          break;
        case 1:
          if (in_place) result = input.data() + before;
          work = self.ReduceScatter(input.data(), const_cast<std::byte*>(result), counts, dtype, op,
                                    options);
          expected.assign(reduced.begin() + static_cast<ptrdiff_t>(before),
                          reduced.begin() + static_cast<ptrdiff_t>(before + mine));
          break;
        case 2: {
          const std::byte* from = input.data() + before;
          if (in_place) {
            std::memcpy(output.data() + before, from, mine);
            from = output.data() + before;
          }
          work = self.AllGather(from, output.data(), counts, dtype, options);
          expected.clear();
          size_t at = 0;
          for (Rank q = 0; q < size(); ++q) {
            const size_t part = static_cast<size_t>(counts[q]) * element;
            expected.insert(expected.end(), inputs[q].begin() + static_cast<ptrdiff_t>(at),
                            inputs[q].begin() + static_cast<ptrdiff_t>(at + part));
            at += part;
          }
          break;
        }
        case 3:
          if (in_place && r == root) result = input.data();
          work = self.Broadcast(r == root ? input.data() : nullptr, const_cast<std::byte*>(result),
                                count, dtype, root, options);
          expected = inputs[root];
          break;
        default:
          work = self.Barrier(options);
          expected.clear();
      }
      ASSERT_TRUE(work.Wait().ok()) << trace << ": " << work.status();
      ASSERT_TRUE(expected.empty() || std::memcmp(result, expected.data(), expected.size()) == 0)
          << trace << " rank " << r;
    });
    if (HasFailure()) return;
  }
}

// Small calls go the way that the last of their kind could have gone.
TEST_P(WindowCollectivesTest, BuffersOfOneKindOfCallMayBeRegisteredNowAndThen) {
  const RandomStream random(43, "registration", static_cast<uint64_t>(size()));
  RunRanks(size(), [&](Rank r) {
    constexpr int64_t kCount = 50;
    const Bytes zeros(kCount * sizeof(int32_t));
    Buffer shared[] = {{arena(r), true, zeros}, {arena(r), true, zeros}};
    Buffer own[] = {{arena(r), false, zeros}, {arena(r), false, zeros}};
    for (uint64_t call = 0; call < 60; ++call) {
      const uint64_t bits = random.Bits(call);
      const Rank odd = static_cast<Rank>(bits / 8) % size();
      // For some calls all are registered, then one rank's are not, then none.
      const bool registered = bits % 8 < 4 || (bits % 8 < 6 && r != odd);
      const bool in_place = (bits >> (32 + r % 16)) % 2 == 0;
      Buffer* const buffers = registered ? shared : own;
      std::vector<int32_t> values(kCount);
      std::iota(values.begin(), values.end(), r + static_cast<int32_t>(call));
      std::memcpy(buffers[0].data(), values.data(), zeros.size());
      std::byte* const output = buffers[in_place ? 0 : 1].data();
      CollectiveOptions options;
      options.caller_waits = bits % 3 != 0;
      Work work = fleet_.ranks[r]->AllReduce(buffers[0].data(), output, kCount, DType::kI32,
                                             ReduceOp::kSum, options);
      ASSERT_TRUE(work.Wait().ok()) << work.status();
      std::memcpy(values.data(), output, zeros.size());
      for (int64_t i = 0; i < kCount; ++i) {
        const auto base = static_cast<int32_t>(call) + static_cast<int32_t>(i);
        ASSERT_EQ(values[static_cast<size_t>(i)], size() * base + size() * (size() - 1) / 2)
            << "call " << call << ", element " << i << ", rank " << r;
      }
    }
  });
}

TEST_P(WindowCollectivesTest, ManyIssuedAtOnce) {
  constexpr int kWorks = 60;
  RunRanks(size(), [&](Rank r) {
    std::vector<std::vector<int32_t>> data(kWorks);
    std::vector<Work> works;
    for (int w = 0; w < kWorks; ++w) {
      data[w].assign(static_cast<size_t>(1 + w * w), r + w);
      CollectiveOptions options;
      if (w % 7 == 3) options.algorithm = Algorithm::kRing;
      works.push_back(fleet_.ranks[r]->AllReduce(data[w].data(), data[w].data(),
                                                 static_cast<int64_t>(data[w].size()), DType::kI32,
                                                 ReduceOp::kSum, options));
    }
    for (int w = kWorks; w-- > 0;) {
      ASSERT_TRUE(works[w].Wait().ok()) << works[w].status();
      const int expected = size() * w + size() * (size() - 1) / 2;
      for (int value : data[w]) ASSERT_EQ(value, expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, WindowCollectivesTest,
                         testing::Values(Setting{1, false}, Setting{2, false}, Setting{3, false},
                                         Setting{5, false}, Setting{2, true}, Setting{4, true}),
                         [](const testing::TestParamInfo<Setting>& info) {
                           return absl::StrFormat("%dRanks%s", info.param.world_size,
                                                  info.param.small ? "Small" : "");
                         });

TEST(WindowAlgorithmTest, AskedForByNameWhereRanksShareNoMemoryIsRefused) {
  TestFleet fleet = MakeFleet(MeshKind::kInProcess, 2);
  RunRanks(2, [&](Rank r) {
    float value = 1;
    CollectiveOptions options;
    options.algorithm = Algorithm::kWindow;
    const absl::Status status =
        fleet.ranks[r]->AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, options).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("share memory"));
  });
}

}  // namespace
}  // namespace muster
