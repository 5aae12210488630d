#include "client/job_steps.h"

#include "client/job_file.h"
#include "gtest/gtest.h"
#include "proto/convert/job.h"

namespace muster {
namespace {

v1::JobDescription Example() { return ReadJobFile("examples/fashion-mnist-mlp.yaml").value(); }

TEST(SetStepsTest, ShortensAWarmUpThatIsTooLong) {
  v1::JobDescription job = Example();
  ASSERT_EQ(job.training().learning_rate().warmup_steps(), 50);
  EXPECT_FALSE(SetSteps(51, &job));
  EXPECT_EQ(job.training().steps(), 51);
  EXPECT_EQ(job.training().epochs(), 0);
  EXPECT_EQ(job.training().learning_rate().warmup_steps(), 50);
  EXPECT_TRUE(SetSteps(50, &job));
  EXPECT_EQ(job.training().learning_rate().warmup_steps(), 25);
}

TEST(SetStepsTest, AnyNumberGivesAJobThatCanRun) {
  for (const int64_t steps : {1, 2, 3, 49, 50, 51, 5000}) {
    v1::JobDescription job = Example();
    SetSteps(steps, &job);
    EXPECT_TRUE(JobSpecFromProto(job).ok()) << steps << ": " << JobSpecFromProto(job).status();
  }
}

}  // namespace
}  // namespace muster
