#include "collectives/reduce/reduce_op.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(ReduceOpTest, NamesAndNumbersLeadBack) {
  for (const ReduceOp op : kAllReduceOps) {
    EXPECT_EQ(ReduceOpFromName(Name(op)).value(), op);
    EXPECT_EQ(ReduceOpFromWire(static_cast<uint32_t>(op)).value(), op);
  }
  EXPECT_EQ(ReduceOpFromName("mean").status().message(),
            "reduction 'mean' is unknown; expected one of sum, average, min, max, product");
  EXPECT_FALSE(ReduceOpFromWire(0).ok());
  EXPECT_FALSE(ReduceOpFromWire(6).ok());
  EXPECT_FALSE(ReduceOpFromWire(257).ok());
}

TEST(ReduceOpTest, NumbersAreWireFormat) {
  EXPECT_EQ(static_cast<int>(ReduceOp::kSum), 1);
  EXPECT_EQ(static_cast<int>(ReduceOp::kAverage), 2);
  EXPECT_EQ(static_cast<int>(ReduceOp::kMin), 3);
  EXPECT_EQ(static_cast<int>(ReduceOp::kMax), 4);
  EXPECT_EQ(static_cast<int>(ReduceOp::kProduct), 5);
}

}  // namespace
}  // namespace muster
