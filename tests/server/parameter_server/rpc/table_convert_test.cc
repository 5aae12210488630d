#include "server/parameter_server/rpc/table_convert.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

v1::TableSpec Spec(const std::string& changes = "") {
  v1::TableSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "a/b.c-1_d"
    dense { tensors { name: "w" shape: 4 shape: 5 initial { kind: NORMAL scale: 0.5 } }
            tensors { name: "b" shape: 5 no_decay: true block: 1 } }
    optimizer { adamw { beta1: 0.8 } weight_decay: 0.1 }
    learning_rate { peak: 0.25 }
    contributors: 3
  )",
                                                            &spec));
  v1::TableSpec more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(changes, &more));
  spec.MergeFrom(more);
  return spec;
}

std::string ErrorOf(const v1::TableSpec& spec) {
  const auto converted = TableSpecFromProto(spec);
  EXPECT_EQ(converted.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(converted.status().message());
}

TEST(TableConvertTest, ConvertsADenseTable) {
  const auto spec = TableSpecFromProto(
      Spec("consistency: BOUNDED_STALENESS staleness: 3 nonfinite: SKIP clip_norm: 2 seed: 9 "
           "micro_batches: 6 optimizer { groups { tensors: 'b' learning_rate_scale: 0.5 } }"));
  ASSERT_TRUE(spec.ok()) << spec.status();
  const DenseShape& shape = std::get<DenseShape>(spec->shape);
  ASSERT_EQ(shape.tensors.size(), 2u);
  EXPECT_EQ(shape.tensors[0].initializer, Initializer::kNormal);
  EXPECT_EQ(shape.tensors[0].scale, 0.5f);
  EXPECT_TRUE(shape.tensors[0].decay);
  EXPECT_FALSE(shape.tensors[1].decay);
  EXPECT_EQ(shape.tensors[1].block, 1);
  EXPECT_EQ(shape.tensors[1].learning_rate_scale, 0.5);
  EXPECT_EQ(std::get<AdamWOptions>(spec->rule).beta1, 0.8);
  EXPECT_EQ(std::get<AdamWOptions>(spec->rule).weight_decay, 0.1);
  EXPECT_EQ(spec->consistency, Consistency::kBoundedStaleness);
  EXPECT_EQ(spec->staleness, 3);
  EXPECT_EQ(spec->nonfinite, NonfinitePolicy::kSkip);
  EXPECT_EQ(spec->clip_norm, 2);
  EXPECT_EQ(spec->seed, 9u);
  EXPECT_EQ(spec->contributors, 3);
  EXPECT_EQ(spec->micro_batches, 6);
  EXPECT_EQ(spec->learning_rate.peak, 0.25);
}

TEST(TableConvertTest, DefaultsAreWritten) {
  const auto spec = TableSpecFromProto(Spec());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->micro_batches, 3);
  EXPECT_EQ(spec->consistency, Consistency::kSynchronous);
  EXPECT_EQ(spec->visibility, Visibility::kWholeSteps);
  EXPECT_EQ(spec->commit, CommitMode::kAutomatic);
  EXPECT_EQ(spec->nonfinite, NonfinitePolicy::kRefuse);
}

TEST(TableConvertTest, NamesTheFieldThatIsWrong) {
  v1::TableSpec spec = Spec();
  spec.clear_name();
  EXPECT_THAT(ErrorOf(spec), HasSubstr("spec.name"));
  spec = Spec();
  spec.clear_dense();
  EXPECT_THAT(ErrorOf(spec), HasSubstr("one of dense and sparse"));
  spec = Spec();
  spec.clear_optimizer();
  EXPECT_THAT(ErrorOf(spec), HasSubstr("spec.optimizer: needs one of"));
  EXPECT_THAT(ErrorOf(Spec("optimizer { adamw { beta2: 1 } }")),
              HasSubstr("spec.optimizer.adamw.beta2"));
  spec = Spec();
  spec.mutable_learning_rate()->set_peak(std::nan(""));
  EXPECT_THAT(ErrorOf(spec), HasSubstr("spec.learning_rate.peak"));
  EXPECT_THAT(ErrorOf(Spec("learning_rate { schedule: COSINE }")), HasSubstr("spec.total_steps"));
  EXPECT_THAT(ErrorOf(Spec("dense { tensors { name: 'x' shape: 0 } }")),
              HasSubstr("spec.dense.tensors[2].shape[0]"));
  EXPECT_THAT(ErrorOf(Spec("dense { tensors { name: 'x' shape: 1099511627776 shape: 2 } }")),
              HasSubstr("spec.dense.tensors[2].shape[1]"));
  EXPECT_THAT(ErrorOf(Spec("dense { offset: -1 }")), HasSubstr("spec.dense.offset"));
  spec = Spec();
  spec.set_contributors(0);
  EXPECT_THAT(ErrorOf(spec), HasSubstr("spec.contributors"));
  spec = Spec();
  spec.set_consistency(static_cast<v1::TableSpec::Consistency>(9));
  EXPECT_THAT(ErrorOf(spec), HasSubstr("spec.consistency"));
  EXPECT_THAT(ErrorOf(Spec("optimizer { groups { tensors: 'nothing' frozen: true } }")),
              HasSubstr("spec.optimizer.groups"));
  EXPECT_THAT(ErrorOf(Spec("sparse { rows: 10 }")), HasSubstr("spec.sparse.width"));
  EXPECT_THAT(ErrorOf(Spec("sparse { rows: 10 width: 10000000 }")), HasSubstr("spec.sparse.width"));
  EXPECT_THAT(ErrorOf(Spec("clip_norm: -1")), HasSubstr("spec.clip_norm"));
}

TEST(TableConvertTest, ChecksPushesAndPulls) {
  v1::Push push;
  push.set_step(1);
  EXPECT_THAT(std::string(PushFromProto(push).status().message()),
              HasSubstr("push.contributor.incarnation"));
  push.mutable_contributor()->set_incarnation(5);
  EXPECT_TRUE(PushFromProto(push).ok());
  push.mutable_contributor()->set_index(-1);
  EXPECT_THAT(std::string(PushFromProto(push).status().message()),
              HasSubstr("push.contributor.index"));
  v1::Pull pull;
  EXPECT_TRUE(PullFromProto(pull).ok());
  pull.set_min_version(-1);
  EXPECT_THAT(std::string(PullFromProto(pull).status().message()), HasSubstr("pull.min_version"));
}

}  // namespace
}  // namespace muster
