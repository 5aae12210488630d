#include "server/parameter_server/core/table_spec.h"

#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// Of the layout of one table: bounds what a spec from outside can make a server compute.
constexpr int64_t kMaxBuckets = int64_t{1} << 20;

absl::Status OutOf(absl::string_view field, absl::string_view expected, int64_t got) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected ", expected, ", got ", got));
}

absl::Status CheckBetween(absl::string_view field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return OutOf(field, absl::StrCat(least, " to ", most), value);
}

absl::Status CheckName(absl::string_view name) {
  bool good = !name.empty() && static_cast<int64_t>(name.size()) <= TableSpec::kMaxName;
  for (const char c : name) {
    good &= absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/';
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("name: expected 1 to %d letters, digits and . _ - /, got \"%s\"",
                      TableSpec::kMaxName, absl::CHexEscape(name.substr(0, TableSpec::kMaxName))));
}

absl::Status CheckRange(absl::string_view field, Range range, int64_t end) {
  if (range.offset >= 0 && range.count > 0 && range.offset <= end &&
      range.count <= end - range.offset) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: expected at least one of 0 to %d, got %d from %d on (a server that owns nothing of a "
      "table needs none)",
      field, end - 1, range.count, range.offset));
}

absl::Status CheckConsistency(const TableSpec& spec) {
  const bool synchronous = spec.consistency == Consistency::kSynchronous;
  MUSTER_RETURN_IF_ERROR(CheckBetween("staleness", spec.staleness, 0, TableSpec::kMaxStaleness));
  if (spec.consistency != Consistency::kBoundedStaleness && spec.staleness != 0) {
    return OutOf("staleness", absl::StrCat("0, as consistency is ", Name(spec.consistency)),
                 spec.staleness);
  }
  if (!std::isfinite(spec.clip_norm) || spec.clip_norm < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("clip_norm: expected a finite number, 0 for none, got %g", spec.clip_norm));
  }
  if (spec.commit == CommitMode::kExternal && !(synchronous && spec.dense())) {
    return absl::InvalidArgumentError(
        "commit: external goes with a dense table of synchronous consistency only");
  }
  if (spec.visibility == Visibility::kSegments) {
    const bool whole = spec.clip_norm > 0 || spec.nonfinite == NonfinitePolicy::kSkip ||
                       spec.commit == CommitMode::kExternal ||
                       std::holds_alternative<LambOptions>(spec.rule);
    if (!synchronous || !spec.dense() || whole) {
      return absl::InvalidArgumentError(
          "visibility: by segments goes with a dense table of synchronous consistency only, "
          "without clip_norm, skipping, external commit and LAMB, which need the whole step");
    }
  }
  return absl::OkStatus();
}

absl::Status Validate(const TableSpec& spec) {
  MUSTER_RETURN_IF_ERROR(CheckName(spec.name));
  if (const auto* sparse = std::get_if<SparseShape>(&spec.shape); sparse != nullptr) {
    MUSTER_RETURN_IF_ERROR(CheckBetween("rows", sparse->rows, 1, TableSpec::kMaxElements));
    MUSTER_RETURN_IF_ERROR(
        CheckBetween("width", sparse->width, 1, TableSpec::kMaxElements / sparse->rows));
    if (std::holds_alternative<LambOptions>(spec.rule)) {
      return absl::InvalidArgumentError(
          "rule: LAMB needs norms over all rows, which a sparse table does not have; choose "
          "another, or a dense table");
    }
  }
  MUSTER_RETURN_IF_ERROR(Validate(spec.rule));
  MUSTER_RETURN_IF_ERROR(Validate(spec.learning_rate));
  MUSTER_RETURN_IF_ERROR(
      CheckBetween("contributors", spec.contributors, 1, TableSpec::kMaxContributors));
  MUSTER_RETURN_IF_ERROR(
      CheckBetween("micro_batches", spec.micro_batches, 1, TableSpec::kMaxMicroBatches));
  return CheckConsistency(spec);
}

// What cannot be done by a server that has a part only.
absl::Status CheckPart(const TableSpec& spec) {
  if (std::holds_alternative<LambOptions>(spec.rule)) {
    return absl::InvalidArgumentError(
        "rule: LAMB needs norms over whole tensors, and this server has only a part of the table; "
        "choose another, or one server");
  }
  if (spec.consistency == Consistency::kSynchronous && spec.commit == CommitMode::kAutomatic &&
      (spec.clip_norm > 0 || spec.nonfinite == NonfinitePolicy::kSkip)) {
    return absl::InvalidArgumentError(
        "clip_norm and skipping need the norm of the whole step, and this server has only a part "
        "of the table: choose external commit, or one server");
  }
  return absl::OkStatus();
}

std::string Text(double value) { return absl::StrFormat("%.17g", value); }

struct Fields {
  std::vector<std::pair<std::string, std::string>> fields;
  template <typename T>
  void Add(absl::string_view name, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      fields.emplace_back(name, Text(value));
    } else {
      fields.emplace_back(name, absl::StrCat(value));
    }
  }
};

void AddFields(const DenseShape& shape, Fields& out) {
  out.Add("shape", "dense");
  out.Add("bucket_elements", shape.bucket_elements);
  out.Add("tensors", shape.tensors.size());
  for (const TensorSpec& tensor : shape.tensors) {
    const std::string name = absl::StrCat("tensor \"", tensor.name, "\" ");
    out.Add(absl::StrCat(name, "shape"), absl::StrJoin(tensor.shape, "x"));
    out.Add(absl::StrCat(name, "block"), tensor.block);
    out.Add(absl::StrCat(name, "initializer"), static_cast<int>(tensor.initializer));
    out.Add(absl::StrCat(name, "scale"), tensor.scale);
    out.Add(absl::StrCat(name, "decay"), tensor.decay);
    out.Add(absl::StrCat(name, "weight_decay"),
            tensor.weight_decay.has_value() ? Text(*tensor.weight_decay) : "the rule's");
    out.Add(absl::StrCat(name, "learning_rate_scale"), tensor.learning_rate_scale);
    out.Add(absl::StrCat(name, "frozen"), tensor.frozen);
  }
}

void AddFields(const SparseShape& shape, Fields& out) {
  out.Add("shape", "sparse");
  out.Add("rows", shape.rows);
  out.Add("width", shape.width);
  out.Add("initializer", static_cast<int>(shape.initializer));
  out.Add("scale", shape.scale);
  out.Add("decay", shape.decay);
}

void AddFields(const SgdOptions& rule, Fields& out) {
  out.Add("rule", "sgd");
  out.Add("momentum", rule.momentum);
  out.Add("nesterov", rule.nesterov);
  out.Add("weight_decay", rule.weight_decay);
}
void AddFields(const AdamWOptions& rule, Fields& out) {
  out.Add("rule", "adamw");
  out.Add("beta1", rule.beta1);
  out.Add("beta2", rule.beta2);
  out.Add("epsilon", rule.epsilon);
  out.Add("weight_decay", rule.weight_decay);
}
void AddFields(const LambOptions& rule, Fields& out) {
  out.Add("rule", "lamb");
  out.Add("beta1", rule.beta1);
  out.Add("beta2", rule.beta2);
  out.Add("epsilon", rule.epsilon);
  out.Add("always_adapt", rule.always_adapt);
  out.Add("weight_decay", rule.weight_decay);
}
void AddFields(const LionOptions& rule, Fields& out) {
  out.Add("rule", "lion");
  out.Add("beta1", rule.beta1);
  out.Add("beta2", rule.beta2);
  out.Add("weight_decay", rule.weight_decay);
}
void AddFields(const AdagradOptions& rule, Fields& out) {
  out.Add("rule", "adagrad");
  out.Add("learning_rate_decay", rule.learning_rate_decay);
  out.Add("initial_accumulator", rule.initial_accumulator);
  out.Add("epsilon", rule.epsilon);
  out.Add("weight_decay", rule.weight_decay);
}

// Every field, by name: equal for equal specs only.
Fields FieldsOf(const TableSpec& spec) {
  Fields out;
  out.Add("name", spec.name);
  std::visit([&](const auto& shape) { AddFields(shape, out); }, spec.shape);
  std::visit(
      [&](const auto& shape) {
        out.Add("range.offset", shape.range.has_value() ? shape.range->offset : 0);
        out.Add("range.count", shape.range.has_value() ? shape.range->count : 0);
      },
      spec.shape);
  std::visit([&](const auto& rule) { AddFields(rule, out); }, spec.rule);
  out.Add("learning_rate.schedule", Name(spec.learning_rate.schedule));
  out.Add("learning_rate.peak", spec.learning_rate.peak);
  out.Add("learning_rate.final", spec.learning_rate.final);
  out.Add("learning_rate.warmup_steps", spec.learning_rate.warmup_steps);
  out.Add("learning_rate.total_steps", spec.learning_rate.total_steps);
  out.Add("seed", spec.seed);
  out.Add("contributors", spec.contributors);
  out.Add("micro_batches", spec.micro_batches);
  out.Add("consistency", Name(spec.consistency));
  out.Add("staleness", spec.staleness);
  out.Add("clip_norm", spec.clip_norm);
  out.Add("nonfinite", Name(spec.nonfinite));
  out.Add("visibility", Name(spec.visibility));
  out.Add("commit", Name(spec.commit));
  return out;
}

}  // namespace

absl::string_view Name(Consistency consistency) {
  switch (consistency) {
    case Consistency::kSynchronous:
      return "synchronous";
    case Consistency::kBoundedStaleness:
      return "bounded staleness";
    case Consistency::kAsynchronous:
      return "asynchronous";
  }
  return "?";
}

absl::string_view Name(NonfinitePolicy policy) {
  switch (policy) {
    case NonfinitePolicy::kRefuse:
      return "refuse";
    case NonfinitePolicy::kSkip:
      return "skip";
  }
  return "?";
}

absl::string_view Name(Visibility visibility) {
  switch (visibility) {
    case Visibility::kWholeSteps:
      return "whole steps";
    case Visibility::kSegments:
      return "segments";
  }
  return "?";
}

absl::string_view Name(CommitMode mode) {
  switch (mode) {
    case CommitMode::kAutomatic:
      return "automatic";
    case CommitMode::kExternal:
      return "external";
  }
  return "?";
}

absl::StatusOr<Layout> LayoutOf(const TableSpec& spec) {
  if (const auto* sparse = std::get_if<SparseShape>(&spec.shape); sparse != nullptr) {
    // One bucket: nothing is summed by buckets here.
    return Layout::Create({{.name = spec.name,
                            .shape = {sparse->rows, sparse->width},
                            .initializer = sparse->initializer,
                            .scale = sparse->scale,
                            .decay = sparse->decay}},
                          sparse->rows * sparse->width + Layout::kAlignment);
  }
  const DenseShape& dense = std::get<DenseShape>(spec.shape);
  MUSTER_RETURN_IF_ERROR(CheckBetween("bucket_elements", dense.bucket_elements, Layout::kAlignment,
                                      TableSpec::kMaxElements));
  int64_t elements = 0;
  for (const TensorSpec& tensor : dense.tensors) {
    int64_t count = 1;
    for (const int64_t extent : tensor.shape) {
      if (extent < 1 || extent > TableSpec::kMaxElements / count) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "tensor \"%s\": expected a shape of positive extents with at most 2^40 elements, got "
            "[%s]",
            tensor.name, absl::StrJoin(tensor.shape, ", ")));
      }
      count *= extent;
    }
    elements += count;
    if (elements > TableSpec::kMaxElements) {
      return OutOf("tensors", "at most 2^40 elements in all", elements);
    }
  }
  if (elements / dense.bucket_elements > kMaxBuckets) {
    return OutOf(
        "bucket_elements",
        absl::StrCat("at least ", elements / kMaxBuckets + 1, " for ", elements, " elements"),
        dense.bucket_elements);
  }
  return Layout::Create(dense.tensors, dense.bucket_elements);
}

absl::StatusOr<TableSpec> Resolve(const TableSpec& spec) {
  MUSTER_RETURN_IF_ERROR(Validate(spec));
  TableSpec resolved = spec;
  if (auto* sparse = std::get_if<SparseShape>(&resolved.shape); sparse != nullptr) {
    MUSTER_RETURN_IF_ERROR(LayoutOf(spec).status());
    const Range all = {0, sparse->rows};
    sparse->range = sparse->range.value_or(all);
    MUSTER_RETURN_IF_ERROR(CheckRange("range", *sparse->range, sparse->rows));
    if (*sparse->range != all) MUSTER_RETURN_IF_ERROR(CheckPart(spec));
    return resolved;
  }
  DenseShape& dense = std::get<DenseShape>(resolved.shape);
  MUSTER_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(spec));
  const Range all = {0, layout.padded_count()};
  dense.range = dense.range.value_or(all);
  MUSTER_RETURN_IF_ERROR(CheckRange("range", *dense.range, layout.padded_count()));
  if (*dense.range != all) MUSTER_RETURN_IF_ERROR(CheckPart(spec));
  return resolved;
}

std::optional<std::string> FirstDifference(const TableSpec& existing, const TableSpec& wanted) {
  const Fields ours = FieldsOf(existing);
  const Fields theirs = FieldsOf(wanted);
  for (size_t i = 0; i < ours.fields.size() && i < theirs.fields.size(); ++i) {
    const auto& [name, value] = ours.fields[i];
    const auto& [other_name, other] = theirs.fields[i];
    if (name != other_name) return absl::StrCat("it has ", name, ", and not ", other_name);
    if (value != other) return absl::StrCat(name, " is ", value, ", and not ", other);
  }
  // Of equal kinds and numbers of tensors, the lists are equally long.
  return std::nullopt;
}

}  // namespace muster
