#include "state/bucket_order.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

TEST(BucketOrderTest, GradientsFromTheEnd) {
  std::vector<TensorSpec> tensors(2);
  tensors[0].name = "first";
  tensors[0].shape = {128};
  tensors[1].name = "second";
  tensors[1].shape = {192};
  tensors[1].block = 1;
  const Layout layout = Layout::Create(std::move(tensors), 64).value();
  EXPECT_THAT(BucketsAsCompleted(layout, 1), ElementsAre(4, 3, 2));
  EXPECT_THAT(BucketsAsCompleted(layout, 0), ElementsAre(1, 0));
}

}  // namespace
}  // namespace muster
