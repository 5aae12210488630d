#include "collectives/schedule/window_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

// A place in memory: rank, buffer, half, element. In-place input and output are one.
using Place = std::tuple<Rank, WindowBuffer, int, int64_t>;
// What lies there: the ranks whose elements were reduced, in order, and of which element.
struct Value {
  std::vector<Rank> order;
  int64_t element = -1;
  bool operator==(const Value&) const = default;
};

// Runs a schedule on symbols, all ranks, and finds conflicts within an interval. The last interval
// of one collective and the first of the next count as one.
class SymbolicWindow {
 public:
  void Run(const std::vector<ScheduleRequest>& requests, WindowMode mode, int64_t half_elements,
           int number) {
    const ScheduleRequest& first = requests[0];
    requests_ = requests;
    FillInputs();
    std::vector<WindowSchedule> schedules;
    for (const ScheduleRequest& request : requests) {
      schedules.emplace_back(request, mode, half_elements, number % 2);
      ASSERT_EQ(schedules.back().intervals(), schedules[0].intervals());
    }
    for (int64_t i = 0; i < schedules[0].intervals(); ++i) {
      if (i > 0) NewInterval();
      for (Rank r = 0; r < first.size; ++r) {
        for (const WindowStep& step : schedules[r].Steps(i)) Apply(r, step, number);
      }
    }
    CheckOutputs();
    // What is left of caller's buffers is of no concern to the next collective.
    std::erase_if(memory_, [](const auto& entry) {
      return std::get<1>(entry.first) == WindowBuffer::kInput ||
             std::get<1>(entry.first) == WindowBuffer::kOutput;
    });
  }

 private:
  Place PlaceOf(const WindowSlice& slice, int64_t i) const {
    const ScheduleRequest& request = requests_[slice.rank];
    int64_t at = slice.offset + i;
    WindowBuffer buffer = slice.buffer;
    if (request.in_place && buffer == WindowBuffer::kInput) {
      // One memory: named by the larger one's elements, as output, or as input of a scatter.
      if (request.collective == Collective::kAllGather) at += Offset(request, slice.rank);
      if (request.collective != Collective::kReduceScatter) buffer = WindowBuffer::kOutput;
    } else if (request.in_place && buffer == WindowBuffer::kOutput &&
               request.collective == Collective::kReduceScatter) {
      at += Offset(request, slice.rank);
      buffer = WindowBuffer::kInput;
    }
    return {slice.rank, buffer, slice.half, at};
  }

  static int64_t Offset(const ScheduleRequest& request, Rank chunk) {
    return std::accumulate(request.counts.begin(), request.counts.begin() + chunk, int64_t{0});
  }

  void FillInputs() {
    for (Rank r = 0; r < requests_[0].size; ++r) {
      const ScheduleRequest& request = requests_[r];
      const bool has_input = request.collective != Collective::kBroadcast || r == request.root;
      for (int64_t i = 0; has_input && i < InputCount(request); ++i) {
        const int64_t element =
            i + (request.collective == Collective::kAllGather ? Offset(request, r) : 0);
        memory_[PlaceOf({r, WindowBuffer::kInput, 0, i}, 0)] = {{r}, element};
      }
    }
  }

  void NewInterval() {
    readers_.clear();
    writers_.clear();
  }

  void Apply(Rank rank, const WindowStep& step, int number) {
    ASSERT_GT(step.count, 0);
    for (int64_t i = 0; i < step.count; ++i) {
      Value value;
      for (const WindowSlice& source : step.sources) {
        const Place place = PlaceOf(source, i);
        const auto there = memory_.find(place);
        ASSERT_NE(there, memory_.end()) << "rank " << rank << " reads what nobody wrote";
        if (value.element >= 0) {
          ASSERT_EQ(value.element, there->second.element);
        }
        value.element = there->second.element;
        value.order.insert(value.order.end(), there->second.order.begin(),
                           there->second.order.end());
        readers_[place].insert(rank);
        const auto writer = writers_.find(place);
        ASSERT_TRUE(writer == writers_.end() || writer->second == rank)
            << "rank " << rank << " reads what rank " << writer->second << " writes, collective "
            << number;
      }
      for (const WindowSlice& target : step.targets) {
        const Place place = PlaceOf(target, i);
        for (Rank reader : readers_[place]) {
          ASSERT_EQ(reader, rank) << "rank " << rank << " writes what rank " << reader
                                  << " reads, collective " << number;
        }
        const auto [writer, fresh] = writers_.emplace(place, rank);
        ASSERT_EQ(writer->second, rank) << "two ranks write one place";
        memory_[place] = value;
      }
    }
  }

  void CheckOutputs() {
    const ScheduleRequest& first = requests_[0];
    for (Rank r = 0; r < first.size; ++r) {
      for (int64_t i = 0; i < OutputCount(requests_[r]); ++i) {
        Value expected;
        switch (first.collective) {
          case Collective::kAllReduce:
          case Collective::kReduceScatter: {
            Rank chunk = r;
            expected.element = i;
            if (first.collective == Collective::kReduceScatter) {
              expected.element += Offset(first, r);
            } else {
              const std::vector<int64_t> counts = ChunkCounts(first);
              chunk = 0;
              for (int64_t end = counts[0]; end <= i; end += counts[chunk]) ++chunk;
            }
            for (int k = 1; k <= first.size; ++k)
              expected.order.push_back((chunk + k) % first.size);
            break;
          }
          case Collective::kAllGather: {
            Rank chunk = 0;
            while (Offset(first, chunk) + first.counts[chunk] <= i) ++chunk;
            expected = {{chunk}, i};
            break;
          }
          default:
            expected = {{first.root}, i};
        }
        ASSERT_EQ(memory_[PlaceOf({r, WindowBuffer::kOutput, 0, i}, 0)], expected)
            << "rank " << r << " element " << i;
      }
    }
  }

  std::vector<ScheduleRequest> requests_;
  std::map<Place, Value> memory_;
  std::map<Place, std::set<Rank>> readers_;
  std::map<Place, Rank> writers_;
};

std::vector<ScheduleRequest> Requests(Collective collective, int size, int64_t total, bool in_place,
                                      bool uneven) {
  std::vector<ScheduleRequest> requests;
  for (Rank r = 0; r < size; ++r) {
    ScheduleRequest request;
    request.collective = collective;
    request.algorithm = Algorithm::kWindow;
    request.rank = r;
    request.size = size;
    const bool chunks =
        collective == Collective::kReduceScatter || collective == Collective::kAllGather;
    if (chunks || (uneven && collective == Collective::kAllReduce)) {
      request.counts = EvenCounts(total, size);
      if (uneven) {
        std::fill(request.counts.begin(), request.counts.end(), 0);
        request.counts[size / 2] = total / 3;
        request.counts[size - 1] += total - total / 3;
      }
    } else if (collective != Collective::kBarrier) {
      request.count = total;
    }
    if (collective == Collective::kBroadcast) request.root = size / 2;
    // Ranks may differ in this.
    request.in_place =
        in_place && r % 3 != 1 && (collective != Collective::kBroadcast || r == request.root);
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(WindowScheduleTest, EveryCollectiveIsRightWithoutConflictsOneAfterTheOther) {
  for (int size : {1, 2, 3, 4, 9}) {
    const int64_t half = 64 * size;  // pieces of 64 elements where chunks are staged
    SymbolicWindow window;
    int number = 0;
    for (Collective collective :
         {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
          Collective::kBroadcast, Collective::kBarrier}) {
      for (int total : {0, 1, size - 1, size, size + 1, 64 * 3 * size + 5}) {
        for (bool in_place : {false, true}) {
          for (bool uneven : {false, true}) {
            for (WindowMode mode : {WindowMode::kSmall, WindowMode::kDirect, WindowMode::kStaged}) {
              SCOPED_TRACE(absl::StrCat(Name(collective), " of ", size, " ranks, ", total,
                                        " elements, mode ", static_cast<int>(mode), " in place ",
                                        in_place, " uneven ", uneven));
              const auto requests = Requests(collective, size, total, in_place, uneven);
              if (mode == WindowMode::kSmall && !WindowSchedule::FitsSmall(requests[0], half)) {
                continue;
              }
              window.Run(requests, mode, half, number++);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

// What the test above proves of the owners' steps then holds whoever does them.
TEST(WindowScheduleTest, ASharedStepIsItsOwnersWhoeverDoesIt) {
  for (int size : {1, 2, 3, 7}) {
    for (int total : {0, 1, size - 1, 5 * size + 3}) {
      for (bool uneven : {false, true}) {
        const auto requests = Requests(Collective::kAllReduce, size, total, false, uneven);
        for (Rank owner = 0; owner < size; ++owner) {
          const WindowSchedule own(requests[owner], WindowMode::kDirect, 64 * size, 0);
          const std::vector<WindowStep> steps = own.Steps(1);
          for (Rank r = 0; r < size; ++r) {
            const WindowStep shared =
                WindowSchedule(requests[r], WindowMode::kDirect, 64 * size, 0).SharedStep(owner);
            ASSERT_EQ(shared.count == 0, steps.empty());
            if (steps.empty()) continue;
            ASSERT_EQ(steps.size(), 1u);
            EXPECT_EQ(shared.sources, steps[0].sources);
            EXPECT_EQ(shared.targets, steps[0].targets);
            EXPECT_EQ(shared.count, steps[0].count);
            EXPECT_TRUE(shared.completes_sum && steps[0].completes_sum);
          }
        }
      }
    }
  }
}

TEST(WindowScheduleTest, SupportsWhatItHasSchedulesFor) {
  EXPECT_TRUE(WindowSchedule::Supports(Collective::kAllReduce));
  EXPECT_FALSE(WindowSchedule::Supports(Collective::kAllToAll));
}

TEST(WindowScheduleTest, SmallMeansThatTheStagedPartFitsAHalf) {
  ScheduleRequest request = Requests(Collective::kAllGather, 4, 4000, false, false)[0];
  EXPECT_TRUE(WindowSchedule::FitsSmall(request, 1000));  // its own chunk
  EXPECT_FALSE(WindowSchedule::FitsSmall(request, 999));
  request = Requests(Collective::kReduceScatter, 4, 4000, false, false)[0];
  EXPECT_FALSE(WindowSchedule::FitsSmall(request, 3999));  // all of its input
  EXPECT_TRUE(WindowSchedule::FitsSmall(request, 4000));
}

}  // namespace
}  // namespace muster
