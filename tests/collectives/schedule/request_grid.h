// Requests for tests: every collective, algorithm, shape and in-place use for a world size.
#ifndef MUSTER_TESTS_COLLECTIVES_SCHEDULE_REQUEST_GRID_H_
#define MUSTER_TESTS_COLLECTIVES_SCHEDULE_REQUEST_GRID_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/schedule/make_schedule.h"
#include "collectives/schedule/schedule_request.h"

namespace muster {

inline constexpr Algorithm kAlgorithms[] = {Algorithm::kRing, Algorithm::kDirect};

// Which ranks work in place.
enum class InPlace { kNone, kAll, kOddRanks };

struct World {
  std::vector<ScheduleRequest> requests;  // by rank
  std::string text;
};

inline World MakeWorld(ScheduleRequest request, InPlace in_place) {
  World world;
  world.text = absl::StrCat(
      Name(request.collective), " ", Name(request.algorithm), " ranks ", request.size, " count ",
      request.count, " counts ", absl::StrJoin(request.counts, ","), " root ", request.root,
      " in place ", static_cast<int>(in_place), " half ", request.half_precision);
  for (request.rank = 0; request.rank < request.size; ++request.rank) {
    request.in_place =
        in_place == InPlace::kAll || (in_place == InPlace::kOddRanks && request.rank % 2 == 1);
    world.requests.push_back(request);
  }
  return world;
}

// Calls visit(World) for everything of `size` ranks.
template <typename Visitor>
void ForEachWorld(int size, Visitor visit) {
  const auto visit_in_place = [&](const ScheduleRequest& request) {
    for (const InPlace in_place : {InPlace::kNone, InPlace::kAll, InPlace::kOddRanks}) {
      visit(MakeWorld(request, in_place));
    }
  };
  const std::vector<int64_t> totals = {0, 1, size - 1, size, size + 1, 101};
  for (const Algorithm algorithm : kAlgorithms) {
    ScheduleRequest request = {.algorithm = algorithm, .size = size};
    request.collective = Collective::kBarrier;
    visit_in_place(request);
    for (const int64_t total : totals) {
      request.count = total;
      request.collective = Collective::kBroadcast;
      for (request.root = 0; request.root < size; ++request.root) visit_in_place(request);
      request.root = 0;
      for (const bool half : {false, true}) {
        request.half_precision = half;
        request.collective = Collective::kAllReduce;
        request.count = total;
        visit_in_place(request);
        request.count = 0;
        // Even chunks, uneven ones with holes, and everything on one rank.
        std::vector<int64_t> uneven(size), lopsided(size);
        for (int i = 0; i < size; ++i) uneven[i] = (i * total + 3 * i) % 5;
        lopsided[total % size] = total;
        for (const auto& counts : {EvenCounts(total, size), uneven, lopsided}) {
          request.counts = counts;
          for (const Collective collective : {Collective::kReduceScatter, Collective::kAllGather}) {
            request.collective = collective;
            visit_in_place(request);
          }
        }
        request.counts.clear();
      }
      request.half_precision = false;
    }
    request.count = 0;
  }
}

inline std::vector<Schedule> MakeSchedules(const World& world) {
  std::vector<Schedule> schedules;
  for (const ScheduleRequest& request : world.requests) {
    schedules.push_back(MakeSchedule(request).value());
  }
  return schedules;
}

}  // namespace muster

#endif  // MUSTER_TESTS_COLLECTIVES_SCHEDULE_REQUEST_GRID_H_
