#include "base/text.h"

#include <string>

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(TextForPeopleTest, LeavesGoodTextAlone) {
  const std::string text = "plain, \u00e9, \u20ac, \U0001F600";
  EXPECT_EQ(TextForPeople(text, text.size()), text);
}

TEST(TextForPeopleTest, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(TextForPeople("a\nb\tc\x1b[1m\x7f", 100), "a b c [1m ");
  EXPECT_EQ(TextForPeople(absl::string_view("\0", 1), 100), " ");
  EXPECT_EQ(TextForPeople("\u009b2J", 100), " 2J");  // one character that begins a command
}

TEST(TextForPeopleTest, WhatIsNotUtf8BecomesQuestionMarks) {
  EXPECT_EQ(TextForPeople("\xff", 100), "?");
  EXPECT_EQ(TextForPeople("\xc0\x80", 100), "??");            // overlong
  EXPECT_EQ(TextForPeople("\xed\xa0\x80", 100), "???");       // a surrogate
  EXPECT_EQ(TextForPeople("\xf4\x90\x80\x80", 100), "????");  // beyond U+10FFFF
  EXPECT_EQ(TextForPeople("\xe2\x82", 100), "??");            // cut off
}

TEST(TextForPeopleTest, CutsBetweenCharacters) {
  EXPECT_EQ(TextForPeople("ab\u20ac", 4), "ab");
  EXPECT_EQ(TextForPeople("ab\u20ac", 5), "ab\u20ac");
}

TEST(StatusForPeopleTest, KeepsTheCode) {
  EXPECT_EQ(StatusForPeople(absl::DataLossError("a\n\xff")), absl::DataLossError("a ?"));
  EXPECT_EQ(StatusForPeople(absl::OkStatus()), absl::OkStatus());
  EXPECT_EQ(StatusForPeople(absl::DataLossError(std::string(10'000, 'x'))).message().size(),
            2'000u);
}

}  // namespace
}  // namespace muster
