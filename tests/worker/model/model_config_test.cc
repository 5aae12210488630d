#include "worker/model/model_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/device/registry.h"
#include "worker/model/model.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// What every way in answers to a wrong configuration.
std::string ErrorOf(const ModelConfig& config) {
  const absl::Status status = Validate(config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto device = CreateDevice("cpu", {}).value();
  EXPECT_EQ(CreateModel(config, *device).status(), status);
  EXPECT_EQ(CreateModelLayout(config).status(), status);
  return std::string(status.message());
}

TEST(ModelConfigTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate({.architecture = MlpConfig{}}).ok());
  EXPECT_TRUE(Validate({.architecture = CnnConfig{}}).ok());
  EXPECT_EQ(TypeName({.architecture = MlpConfig{}}), "mlp");
  EXPECT_EQ(TypeName({.architecture = CnnConfig{}}), "cnn");
}

TEST(ModelConfigTest, NamesTheWrongFieldOfAnMlp) {
  EXPECT_THAT(ErrorOf({.architecture = MlpConfig{.input = 0}}), HasSubstr("model.mlp.input"));
  EXPECT_THAT(ErrorOf({.architecture = MlpConfig{.hidden = {8, -8}}}),
              HasSubstr("model.mlp.hidden[1]: expected 1 to 1048576, got -8"));
  EXPECT_THAT(ErrorOf({.architecture = MlpConfig{.hidden = std::vector<int64_t>(65, 8)}}),
              HasSubstr("model.mlp.hidden (number of layers)"));
  EXPECT_THAT(ErrorOf({.architecture = MlpConfig{.classes = 1}}), HasSubstr("model.mlp.classes"));
  EXPECT_THAT(ErrorOf({.architecture = MlpConfig{}, .bucket_elements = 63}),
              HasSubstr("model.bucket_elements"));
}

TEST(ModelConfigTest, TiedWeightsNeedAMirrorImage) {
  for (const std::vector<int64_t>& hidden :
       {std::vector<int64_t>{}, {8}, {8, 8}, {8, 4, 7}, {8, 4, 4, 9}}) {
    EXPECT_THAT(ErrorOf({.architecture = MlpConfig{.hidden = hidden, .tie_weights = true}}),
                HasSubstr("model.mlp.tie_weights: expected three or more"));
  }
  for (const std::vector<int64_t>& hidden : {std::vector<int64_t>{8, 4, 8}, {8, 4, 4, 8}}) {
    EXPECT_TRUE(Validate({.architecture = MlpConfig{.hidden = hidden, .tie_weights = true}}).ok());
  }
}

TEST(ModelConfigTest, NamesTheWrongFieldOfACnn) {
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.height = 1}}), HasSubstr("model.cnn.height"));
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.width = 5000}}), HasSubstr("model.cnn.width"));
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.channels = 0}}),
              HasSubstr("model.cnn.image_channels"));
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.conv_channels = {}}}),
              HasSubstr("model.cnn.channels (number of layers)"));
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.conv_channels = {8, 0}}}),
              HasSubstr("model.cnn.channels[1]"));
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.conv_channels = {8, 8, 8, 8, 8}}}),
              HasSubstr("28 x 28 pixels"));
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.hidden = 0}}), HasSubstr("model.cnn.hidden"));
  EXPECT_THAT(ErrorOf({.architecture = CnnConfig{.classes = 0}}), HasSubstr("model.cnn.classes"));
}

}  // namespace
}  // namespace muster
