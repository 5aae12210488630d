#include "proto/convert/optimizer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/convert/field.h"

namespace muster {
namespace {

constexpr int kMaxGroups = 1'000;
constexpr int kMaxPatterns = 1'000;  // of one group
constexpr size_t kMaxPatternBytes = 255;

absl::StatusOr<SgdSpec> ConvertSgd(const std::string& path, const v1::Sgd& from) {
  MUSTER_RETURN_IF_ERROR(CheckFraction(Field(path, "momentum"), from.momentum()));
  if (from.nesterov() && from.momentum() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".nesterov: needs a momentum greater than 0"));
  }
  return SgdSpec{.momentum = from.momentum(), .nesterov = from.nesterov()};
}

// beta1, beta2 and, where the rule has one, epsilon.
template <typename Spec, typename Message>
absl::Status ConvertBetas(absl::string_view path, const Message& from, Spec* spec) {
  if (from.has_beta1()) spec->beta1 = from.beta1();
  if (from.has_beta2()) spec->beta2 = from.beta2();
  MUSTER_RETURN_IF_ERROR(CheckFraction(absl::StrCat(path, ".beta1"), spec->beta1));
  return CheckFraction(absl::StrCat(path, ".beta2"), spec->beta2);
}

template <typename Spec, typename Message>
absl::Status ConvertEpsilon(absl::string_view path, const Message& from, Spec* spec) {
  if (from.has_epsilon()) spec->epsilon = from.epsilon();
  return CheckFinitePositive(absl::StrCat(path, ".epsilon"), spec->epsilon);
}

absl::StatusOr<AdamWSpec> ConvertAdamW(const std::string& path, const v1::AdamW& from) {
  AdamWSpec spec;
  MUSTER_RETURN_IF_ERROR(ConvertBetas(path, from, &spec));
  MUSTER_RETURN_IF_ERROR(ConvertEpsilon(path, from, &spec));
  return spec;
}

absl::StatusOr<LambSpec> ConvertLamb(const std::string& path, const v1::Lamb& from) {
  LambSpec spec;
  MUSTER_RETURN_IF_ERROR(ConvertBetas(path, from, &spec));
  MUSTER_RETURN_IF_ERROR(ConvertEpsilon(path, from, &spec));
  spec.always_adapt = from.always_adapt();
  return spec;
}

absl::StatusOr<LionSpec> ConvertLion(const std::string& path, const v1::Lion& from) {
  LionSpec spec;
  MUSTER_RETURN_IF_ERROR(ConvertBetas(path, from, &spec));
  return spec;
}

absl::StatusOr<AdagradSpec> ConvertAdagrad(const std::string& path, const v1::Adagrad& from) {
  AdagradSpec spec;
  spec.learning_rate_decay = from.learning_rate_decay();
  spec.initial_accumulator = from.initial_accumulator();
  MUSTER_RETURN_IF_ERROR(
      CheckFiniteAtLeastZero(Field(path, "learning_rate_decay"), spec.learning_rate_decay));
  MUSTER_RETURN_IF_ERROR(
      CheckFiniteAtLeastZero(Field(path, "initial_accumulator"), spec.initial_accumulator));
  MUSTER_RETURN_IF_ERROR(ConvertEpsilon(path, from, &spec));
  return spec;
}

absl::StatusOr<ParameterGroupSpec> ConvertGroup(const std::string& path,
                                                const v1::ParameterGroup& from) {
  if (from.tensors().empty() || from.tensors_size() > kMaxPatterns) {
    return FieldError(absl::StrCat(path, ".tensors"),
                      absl::StrFormat("a list of 1 to %d patterns of names", kMaxPatterns),
                      absl::StrCat(from.tensors_size()));
  }
  ParameterGroupSpec group;
  for (int i = 0; i < from.tensors_size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckText(absl::StrFormat("%s.tensors[%d]", path, i), from.tensors(i),
                                     kMaxPatternBytes, /*required=*/true));
    group.tensors.push_back(from.tensors(i));
  }
  if (from.frozen() && (from.has_weight_decay() || from.has_learning_rate_scale())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".", from.has_weight_decay() ? "weight_decay" : "learning_rate_scale",
                     ": has no meaning for frozen tensors; give one of the two"));
  }
  group.frozen = from.frozen();
  if (from.has_weight_decay()) {
    MUSTER_RETURN_IF_ERROR(
        CheckFiniteAtLeastZero(absl::StrCat(path, ".weight_decay"), from.weight_decay()));
    group.weight_decay = from.weight_decay();
  }
  if (from.has_learning_rate_scale()) group.learning_rate_scale = from.learning_rate_scale();
  MUSTER_RETURN_IF_ERROR(
      CheckFinitePositive(absl::StrCat(path, ".learning_rate_scale"), group.learning_rate_scale));
  return group;
}

}  // namespace

absl::StatusOr<OptimizerSpec> OptimizerSpecFromProto(const v1::Optimizer& optimizer,
                                                     absl::string_view path) {
  OptimizerSpec spec;
  MUSTER_RETURN_IF_ERROR(
      CheckFiniteAtLeastZero(Field(path, "weight_decay"), optimizer.weight_decay()));
  spec.weight_decay = optimizer.weight_decay();
  switch (optimizer.rule_case()) {
    case v1::Optimizer::kSgd: {
      MUSTER_ASSIGN_OR_RETURN(spec.rule, ConvertSgd(Field(path, "sgd"), optimizer.sgd()));
      break;
    }
    case v1::Optimizer::kAdamw: {
      MUSTER_ASSIGN_OR_RETURN(spec.rule, ConvertAdamW(Field(path, "adamw"), optimizer.adamw()));
      break;
    }
    case v1::Optimizer::kLamb: {
      MUSTER_ASSIGN_OR_RETURN(spec.rule, ConvertLamb(Field(path, "lamb"), optimizer.lamb()));
      break;
    }
    case v1::Optimizer::kLion: {
      MUSTER_ASSIGN_OR_RETURN(spec.rule, ConvertLion(Field(path, "lion"), optimizer.lion()));
      break;
    }
    case v1::Optimizer::kAdagrad: {
      MUSTER_ASSIGN_OR_RETURN(spec.rule,
                              ConvertAdagrad(Field(path, "adagrad"), optimizer.adagrad()));
      break;
    }
    case v1::Optimizer::RULE_NOT_SET:
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": needs one of sgd, adamw, lamb, lion, adagrad"));
  }
  if (optimizer.groups_size() > kMaxGroups) {
    return FieldError(Field(path, "groups"), absl::StrFormat("a list of at most %d", kMaxGroups),
                      absl::StrCat(optimizer.groups_size()));
  }
  for (int i = 0; i < optimizer.groups_size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(
        ParameterGroupSpec group,
        ConvertGroup(absl::StrFormat("%s.groups[%d]", path, i), optimizer.groups(i)));
    spec.groups.push_back(std::move(group));
  }
  return spec;
}

absl::StatusOr<LearningRateSpec> LearningRateSpecFromProto(const v1::LearningRate& rate,
                                                           absl::string_view path) {
  LearningRateSpec spec;
  MUSTER_RETURN_IF_ERROR(CheckFinitePositive(Field(path, "peak"), rate.peak()));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "warmup_steps"), rate.warmup_steps(), 0, kMaxJobSteps));
  MUSTER_RETURN_IF_ERROR(CheckFiniteAtLeastZero(Field(path, "final"), rate.final()));
  if (rate.final() > rate.peak()) {
    return FieldError(Field(path, "final"), absl::StrFormat("at most the peak (%g)", rate.peak()),
                      absl::StrFormat("%g", rate.final()));
  }
  spec.peak = rate.peak();
  spec.warmup_steps = rate.warmup_steps();
  spec.final = rate.final();
  switch (rate.schedule()) {
    case v1::LearningRate::SCHEDULE_UNSPECIFIED:
    case v1::LearningRate::CONSTANT:
      spec.schedule = LearningRateSpec::Schedule::kConstant;
      break;
    case v1::LearningRate::COSINE:
      spec.schedule = LearningRateSpec::Schedule::kCosine;
      break;
    case v1::LearningRate::LINEAR:
      spec.schedule = LearningRateSpec::Schedule::kLinear;
      break;
    default:
      return FieldError(Field(path, "schedule"), "CONSTANT, COSINE or LINEAR",
                        absl::StrCat("number ", static_cast<int>(rate.schedule())));
  }
  if (spec.schedule == LearningRateSpec::Schedule::kConstant && spec.final != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".final: is for the schedules COSINE and LINEAR only"));
  }
  return spec;
}

}  // namespace muster
