#include "collectives/transport/shm/shm_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace muster {
namespace {

// Windows of ranks within this process, which map each other as processes do.
std::vector<std::unique_ptr<ShmWindow>> MakeWindows(int ranks) {
  std::vector<std::unique_ptr<ShmWindow>> windows;
  for (Rank r = 0; r < ranks; ++r) {
    windows.push_back(ShmWindow::Create(SharedArena::Create().value(), r, ranks,
                                        /*nonce=*/static_cast<uint64_t>(70 + r))
                          .value());
  }
  for (Rank r = 0; r < ranks; ++r) {
    for (Rank q = 0; q < ranks; ++q) {
      if (q == r) continue;
      EXPECT_TRUE(windows[r]->Map(q, windows[q]->location()).ok());
    }
  }
  return windows;
}

TEST(ShmWindowTest, AMeetIsOverWhenAllHaveArrivedAndShowsWhatTheyPublished) {
  for (int ranks : {1, 2, 3, 5}) {
    const auto windows = MakeWindows(ranks);
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

TEST(ShmWindowTest, WhoClosesWhileAnotherTouchesIsTainted) {
  const auto windows = MakeWindows(2);
  ASSERT_TRUE(windows[1]->BeginTouch());
  windows[0]->Shut();  // As if the other were frozen: it does not end its touch.
  EXPECT_TRUE(windows[0]->tainted());
  windows[1]->EndTouch();
  EXPECT_FALSE(windows[1]->BeginTouch());  // Too late.
  windows[1]->Shut();
  EXPECT_FALSE(windows[1]->tainted());
}

TEST(ShmWindowTest, WhoClosesWhenNobodyTouchesIsNotTainted) {
  const auto windows = MakeWindows(3);
  ASSERT_TRUE(windows[1]->BeginTouch());
  windows[1]->EndTouch();
  windows[0]->Shut();
  EXPECT_FALSE(windows[0]->tainted());
  windows[1]->Arrive(/*token=*/1);
  EXPECT_EQ(windows[1]->AnyClosed(), std::optional<Rank>(0));
  EXPECT_EQ(windows[1]->ClosedWhileMissed(), std::optional<Rank>(0));
}

TEST(ShmWindowTest, OnlyBuffersOfTheArenaHaveAPlaceAndTheOthersSeeThemThere) {
  auto arena = SharedArena::Create().value();
  auto window = ShmWindow::Create(arena, 0, 2, /*nonce=*/1).value();
  auto other = ShmWindow::Create(SharedArena::Create().value(), 1, 2, /*nonce=*/2).value();
  ASSERT_TRUE(other->Map(0, window->location()).ok());
  auto buffer = arena->Allocate(1000).value();
  ASSERT_TRUE(buffer.Renew().ok());
  buffer.data()[999] = std::byte{42};
  const auto place = window->PlaceOf(buffer.data() + 999, 1);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(*other->At(0, *place), std::byte{42});
  int own = 0;
  EXPECT_FALSE(window->PlaceOf(&own, sizeof(own)).has_value());
}

TEST(ShmWindowTest, AnAddressOfAnotherProcessIsRefused) {
  auto arena = SharedArena::Create();
  ASSERT_TRUE(arena.ok());
  auto window = ShmWindow::Create(*arena, 0, 2, /*nonce=*/5);
  ASSERT_TRUE(window.ok());
  ShmWindow::Location location = (*window)->location();
  location.nonce = 6;
  const absl::Status wrong = (*window)->Map(1, location);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(wrong.message()), testing::HasSubstr("another process"));
  location.fd = 1 << 20;
  EXPECT_THAT(std::string((*window)->Map(1, location).message()),
              testing::HasSubstr("must share host"));
  location.area = -4096;
  EXPECT_THAT(std::string((*window)->Map(1, location).message()), testing::HasSubstr("wrongly"));
}

}  // namespace
}  // namespace muster
