#include "collectives/transport/shm/shm_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

// Ranks within this process, which map each other as processes do.
struct Ranks {
  explicit Ranks(int count) {
    for (Rank r = 0; r < count; ++r) {
      groups.push_back(ShmGroup::Create(SharedArena::Create().value(), r, count,
                                        /*nonce=*/static_cast<uint64_t>(70 + r))
                           .value());
    }
    for (Rank r = 0; r < count; ++r) {
      for (Rank q = 0; q < count; ++q) {
        if (q == r) continue;
        EXPECT_TRUE(groups[r]->Map(q, groups[q]->location()).ok());
      }
      windows.push_back(std::make_unique<ShmWindow>(*groups[r]));
    }
  }
  std::vector<std::unique_ptr<ShmGroup>> groups;
  std::vector<std::unique_ptr<ShmWindow>> windows;
};

TEST(ShmWindowTest, AMeetIsOverWhenAllHaveArrivedAndShowsWhatTheyPublished) {
  for (int ranks : {1, 2, 3, 5}) {
    const Ranks all(ranks);
    const auto& windows = all.windows;
    for (int round = 0; round < 4; ++round) {
      for (Rank r = 0; r < ranks; ++r) {
        for (Rank q = 0; q < r; ++q) EXPECT_FALSE(windows[q]->TakeMet());
        WindowCall call;
        call.input = 100 * round + r;
        windows[r]->Publish(call);
        std::memset(windows[r]->Stage((r + 1) % ranks), round + r, 8);
        windows[r]->Arrive(/*token=*/9);
        EXPECT_EQ(windows[0]->Missing().size(), static_cast<size_t>(ranks - 1 - r));
      }
      for (Rank r = 0; r < ranks; ++r) {
        EXPECT_TRUE(windows[r]->TakeMet());
        EXPECT_FALSE(windows[r]->waiting());
        EXPECT_TRUE(windows[r]->Missing().empty());
        for (Rank q = 0; q < ranks; ++q) EXPECT_EQ(windows[r]->Published(q).input, 100 * round + q);
        EXPECT_EQ(*windows[r]->Stage(r), static_cast<std::byte>(round + (r + ranks - 1) % ranks));
      }
    }
  }
}

TEST(ShmWindowTest, APieceIsTakenOnceByWhoeverComesAndAllHearWhenAllAreFinished) {
  for (int ranks : {2, 3, 5}) {
    const Ranks all(ranks);
    std::vector<int64_t> counts;
    for (Rank r = 0; r < ranks; ++r) counts.push_back(2 * r);  // Rank 0 has none.
    for (int round = 0; round < 3; ++round) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, round " << round);
      const Rank late = ranks - 1 - round % 2;  // Comes when all is done.
      const Rank busy = (late + 1) % ranks;
      for (Rank r = 0; r < ranks; ++r) {
        if (r != late) all.windows[r]->OfferPieces(counts);
      }
      int64_t taken = 0;
      for (Rank owner = 0; owner < ranks; ++owner) {
        for (int64_t left = counts[owner]; left > 0;) {
          const Window::Pieces pieces = all.windows[busy]->TakePieces(owner, /*most=*/3);
          EXPECT_EQ(pieces.first, counts[owner] - left);
          EXPECT_EQ(pieces.count, std::min<int64_t>(left, 3));
          left -= pieces.count;
          taken += pieces.count;
        }
        for (Rank r = 0; r < ranks; ++r) {
          if (r == late) continue;
          EXPECT_EQ(all.windows[r]->TakePieces(owner, 9).count, 0);
        }
      }
      for (Rank r = 0; r < ranks; ++r) {
        if (r == late || r == busy) continue;
        all.windows[r]->FinishPieces(0, /*token=*/4);
        EXPECT_FALSE(all.windows[r]->TakeMetSoon());
        EXPECT_THAT(all.windows[r]->Missing(), testing::Contains(busy));
      }
      all.windows[busy]->FinishPieces(taken, /*token=*/4);
      all.windows[late]->OfferPieces(counts);
      EXPECT_EQ(all.windows[late]->TakePieces(late, 9).count, 0);
      all.windows[late]->FinishPieces(0, /*token=*/4);
      for (Rank r = 0; r < ranks; ++r) {
        EXPECT_TRUE(all.windows[r]->Missing().empty());
        EXPECT_TRUE(all.windows[r]->TakeMet());
      }
    }
  }
}

TEST(ShmWindowTest, WhoseOwnPiecesNobodyHasTakenIsMissing) {
  const Ranks all(2);
  all.windows[0]->OfferPieces({1, 1});
  EXPECT_EQ(all.windows[0]->TakePieces(0, 9).count, 1);
  all.windows[0]->FinishPieces(1, /*token=*/4);
  EXPECT_FALSE(all.windows[0]->TakeMet());
  EXPECT_EQ(all.windows[0]->Missing(), std::vector<Rank>{1});
}

TEST(ShmWindowTest, AMissingRankThatHasClosedIsNamed) {
  const Ranks all(3);
  EXPECT_FALSE(all.groups[1]->TakeOthersClosed());
  all.groups[0]->Shut();
  EXPECT_TRUE(all.groups[1]->TakeOthersClosed());
  EXPECT_FALSE(all.groups[1]->TakeOthersClosed());
  all.windows[1]->Arrive(/*token=*/1);
  EXPECT_EQ(all.windows[1]->ClosedWhileMissed(), std::optional<Rank>(0));
}

TEST(ShmGroupTest, WhoClosesWhileAnotherTouchesIsTainted) {
  const Ranks all(2);
  ASSERT_TRUE(all.groups[1]->BeginTouch());
  all.groups[0]->Shut();  // As if the other were frozen: it does not end its touch.
  EXPECT_TRUE(all.groups[0]->tainted());
  all.groups[1]->EndTouch();
  EXPECT_FALSE(all.groups[1]->BeginTouch());  // Too late.
  all.groups[1]->Shut();
  EXPECT_FALSE(all.groups[1]->tainted());
}

TEST(ShmGroupTest, WhoClosesWhenNobodyTouchesIsNotTainted) {
  const Ranks all(3);
  ASSERT_TRUE(all.groups[1]->BeginTouch());
  all.groups[1]->EndTouch();
  all.groups[0]->Shut();
  EXPECT_FALSE(all.groups[0]->tainted());
  EXPECT_EQ(all.groups[1]->AnyClosed(), std::optional<Rank>(0));
}

TEST(ShmGroupTest, ReadsMemoryThatIsNotShared) {
  const Ranks all(2);
  ASSERT_TRUE(all.groups[0]->TryToRead(1).ok());
  const std::vector<std::byte> source(100000, std::byte{7});
  std::vector<std::byte> copy(source.size());
  const auto address = reinterpret_cast<uintptr_t>(source.data());
  ASSERT_TRUE(all.groups[0]->Read(1, address, absl::MakeSpan(copy)).ok());
  EXPECT_EQ(copy, source);
  const absl::Status nowhere = all.groups[0]->Read(1, 64, absl::MakeSpan(copy));
  EXPECT_THAT(std::string(nowhere.message()),
              testing::HasSubstr(absl::StrCat("process ", getpid())));
}

TEST(ShmGroupTest, OnlyBuffersOfTheArenaHaveAPlaceAndTheOthersSeeThemThere) {
  auto arena = SharedArena::Create().value();
  auto group = ShmGroup::Create(arena, 0, 2, /*nonce=*/1).value();
  auto other = ShmGroup::Create(SharedArena::Create().value(), 1, 2, /*nonce=*/2).value();
  ASSERT_TRUE(other->Map(0, group->location()).ok());
  auto buffer = arena->Allocate(1000).value();
  const auto first = group->PlaceOf(buffer.data() + 999, 1);
  ASSERT_TRUE(buffer.Renew().ok());
  EXPECT_NE(group->PlaceOf(buffer.data() + 999, 1), first);
  buffer.data()[999] = std::byte{42};
  const auto place = group->PlaceOf(buffer.data() + 999, 1);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(*other->At(0, *place), std::byte{42});
  EXPECT_TRUE(other->Holds(0, *place, 1));
  EXPECT_FALSE(other->Holds(0, arena->capacity() - 3, 4));
  EXPECT_FALSE(other->Holds(0, -1, 4));
  int own = 0;
  EXPECT_FALSE(group->PlaceOf(&own, sizeof(own)).has_value());
  const std::byte* const freed = buffer.data() + 999;
  buffer = SharedBuffer();
  EXPECT_FALSE(group->PlaceOf(freed, 1).has_value());
}

int64_t FaultsOfTouching(std::byte* at, int64_t bytes) {
  rusage before = {}, after = {};
  getrusage(RUSAGE_THREAD, &before);
  for (int64_t i = 0; i < bytes; i += SharedArena::kAlignment) {
    auto* const byte = reinterpret_cast<volatile unsigned char*>(at + i);
    *byte = *byte;
  }
  getrusage(RUSAGE_THREAD, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(ShmGroupTest, MappedPagesDoNotFault) {
  constexpr int64_t kBytes = 4 << 20;
  std::shared_ptr<SharedArena> arena = SharedArena::Create().value();
  auto group = ShmGroup::Create(arena, 0, 2, /*nonce=*/1).value();
  auto other = ShmGroup::Create(SharedArena::Create().value(), 1, 2, /*nonce=*/2).value();
  ASSERT_TRUE(other->Map(0, group->location()).ok());
  auto buffer = arena->Allocate(kBytes).value();
  std::memset(buffer.data(), 42, kBytes);
  const int64_t place = group->PlaceOf(buffer.data(), kBytes).value();
  // In parts, each once.
  EXPECT_EQ(other->MapPages(0, place, kBytes, 2 << 20), 2 << 20);
  EXPECT_EQ(other->MapPages(0, place, kBytes, kBytes), 2 << 20);
  EXPECT_EQ(other->MapPages(0, place, kBytes, kBytes), 0);
  EXPECT_EQ(other->MapPages(0, place + 5000, 10, kBytes), 0);
  EXPECT_EQ(buffer.data()[kBytes - 1], std::byte{42});
  // Nor is there anything to do for the own, or for what no rank has.
  EXPECT_EQ(group->MapPages(0, place, kBytes, kBytes), 0);
  EXPECT_EQ(other->MapPages(0, -1, kBytes, kBytes), 0);
  EXPECT_EQ(other->MapPages(0, arena->capacity(), kBytes, kBytes), 0);
#ifdef MADV_POPULATE_WRITE
  if (madvise(buffer.data(), SharedArena::kAlignment, MADV_POPULATE_WRITE) != 0) {
    GTEST_SKIP() << "the kernel is too old";
  }
  // None, but for those of a sanitizer's own memory.
  EXPECT_LT(FaultsOfTouching(other->At(0, place), kBytes), kBytes / SharedArena::kAlignment / 4);
#endif
}

TEST(RangeSetTest, HoldsWhatWasAddedInAsFewRangesAsCanBe) {
  RangeSet set;
  std::vector<bool> is_in(64);
  uint32_t random = 1;
  for (int round = 0; round < 200; ++round) {
    if (round % 20 == 0) {
      set = RangeSet();
      is_in.assign(64, false);
    }
    random = random * 1664525 + 1013904223;
    const int64_t begin = (random >> 8) % 60;
    const int64_t end = begin + (random >> 20) % 5;
    set.Add(begin, end);
    for (int64_t i = begin; i < end; ++i) is_in[i] = true;
    int64_t runs = 0;
    for (int64_t i = 0; i < 64; ++i) {
      runs += is_in[i] && (i == 0 || !is_in[i - 1]) ? 1 : 0;
      EXPECT_TRUE(set.Covers(i, i));
      for (int64_t j = i + 1; j <= 64; ++j) {
        const bool all =
            std::find(is_in.begin() + i, is_in.begin() + j, false) == is_in.begin() + j;
        EXPECT_EQ(set.Covers(i, j), all) << i << " " << j;
      }
    }
    EXPECT_EQ(set.ranges(), runs);
  }
}

TEST(ShmGroupTest, ARankThatHasEndedIsToldFromOneThatCannotBeMapped) {
  auto group = ShmGroup::Create(SharedArena::Create().value(), 0, 2, /*nonce=*/5).value();
  ShmGroup::Location location = group->location();
  location.fd = 1 << 20;
  EXPECT_TRUE(absl::IsUnavailable(group->Map(1, location)));
  EXPECT_FALSE(group->HasEnded(1));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(0);
  for (const bool reaped : {false, true}) {
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | (reaped ? 0 : WNOWAIT)), 0);
    location.pid = child;
    EXPECT_TRUE(absl::IsUnavailable(group->Map(1, location)));
    EXPECT_TRUE(group->HasEnded(1)) << reaped;
  }
}

TEST(ShmGroupTest, AnAddressOfAnotherProcessIsRefused) {
  auto arena = SharedArena::Create();
  ASSERT_TRUE(arena.ok());
  auto group = ShmGroup::Create(*arena, 0, 2, /*nonce=*/5);
  ASSERT_TRUE(group.ok());
  ShmGroup::Location location = (*group)->location();
  location.nonce = 6;
  const absl::Status wrong = (*group)->Map(1, location);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(wrong.message()), testing::HasSubstr("another process"));
  location.fd = 1 << 20;
  EXPECT_THAT(std::string((*group)->Map(1, location).message()),
              testing::HasSubstr("must share host"));
  location.area = -4096;
  EXPECT_THAT(std::string((*group)->Map(1, location).message()), testing::HasSubstr("wrongly"));
}

}  // namespace
}  // namespace muster
