#include "server/parameter_server/rpc/table_convert.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/convert/field.h"
#include "proto/convert/optimizer.h"
#include "proto/rpc/bulk.h"
#include "state/parameter_groups.h"

namespace muster {
namespace {

constexpr int kMaxTensors = 100'000;
constexpr int kMaxDimensions = 16;
constexpr int64_t kMaxTotalSteps = kMaxJobSteps;
// A row travels whole.
constexpr int64_t kMaxWidth = kBulkChunkBytes / static_cast<int64_t>(sizeof(float));

absl::Status UnknownNumber(absl::string_view path, absl::string_view must_be, int number) {
  return FieldError(path, must_be, absl::StrCat("number ", number));
}

absl::StatusOr<Initializer> InitializerFromProto(const v1::InitialValue& from,
                                                 absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckFinite(Field(path, "scale"), from.scale()));
  switch (from.kind()) {
    case v1::InitialValue::KIND_UNSPECIFIED:
    case v1::InitialValue::ZERO:
      return Initializer::kZero;
    case v1::InitialValue::ONE:
      return Initializer::kOne;
    case v1::InitialValue::NORMAL:
      return Initializer::kNormal;
    case v1::InitialValue::UNIFORM:
      return Initializer::kUniform;
    default:
      return UnknownNumber(Field(path, "kind"), "ZERO, ONE, NORMAL or UNIFORM", from.kind());
  }
}

// A part of a space: not negative, and its end is a number.
absl::Status CheckPart(absl::string_view path, int64_t offset, int64_t count) {
  constexpr int64_t kMost = TableSpec::kMaxElements;
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "offset"), offset, 0, kMost));
  return CheckRange(Field(path, "count"), count, 0, kMost);
}

absl::StatusOr<TensorSpec> TensorFromProto(const v1::DenseTensor& from, absl::string_view path) {
  TensorSpec tensor;
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "name"), from.name(), 255, /*required=*/true));
  tensor.name = from.name();
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "shape"), from.shape_size(), 0, kMaxDimensions));
  int64_t elements = 1;
  for (int i = 0; i < from.shape_size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckRange(absl::StrFormat("%s.shape[%d]", path, i), from.shape(i), 1,
                                      TableSpec::kMaxElements / elements));
    elements *= from.shape(i);
    tensor.shape.push_back(from.shape(i));
  }
  MUSTER_ASSIGN_OR_RETURN(tensor.initializer,
                          InitializerFromProto(from.initial(), Field(path, "initial")));
  tensor.scale = from.initial().scale();
  tensor.decay = !from.no_decay();
  tensor.block = from.block();
  return tensor;
}

absl::StatusOr<DenseShape> DenseFromProto(const v1::DenseTable& from,
                                          absl::Span<const ParameterGroupSpec> groups) {
  DenseShape shape;
  MUSTER_RETURN_IF_ERROR(CheckRange("spec.dense.tensors", from.tensors_size(), 1, kMaxTensors));
  for (int i = 0; i < from.tensors_size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(
        TensorSpec tensor,
        TensorFromProto(from.tensors(i), absl::StrFormat("spec.dense.tensors[%d]", i)));
    shape.tensors.push_back(std::move(tensor));
  }
  MUSTER_RETURN_IF_ERROR(Annotate(ApplyParameterGroups(groups, absl::MakeSpan(shape.tensors)),
                                  "spec.optimizer.groups"));
  if (from.bucket_elements() != 0) shape.bucket_elements = from.bucket_elements();
  MUSTER_RETURN_IF_ERROR(CheckRange("spec.dense.bucket_elements", shape.bucket_elements,
                                    Layout::kAlignment, TableSpec::kMaxElements));
  MUSTER_RETURN_IF_ERROR(CheckPart("spec.dense", from.offset(), from.count()));
  if (from.offset() != 0 || from.count() != 0) shape.range = Range{from.offset(), from.count()};
  return shape;
}

absl::StatusOr<SparseShape> SparseFromProto(const v1::SparseTable& from) {
  SparseShape shape;
  MUSTER_RETURN_IF_ERROR(CheckRange("spec.sparse.rows", from.rows(), 1, TableSpec::kMaxElements));
  MUSTER_RETURN_IF_ERROR(CheckRange("spec.sparse.width", from.width(), 1, kMaxWidth));
  shape.rows = from.rows();
  shape.width = from.width();
  MUSTER_RETURN_IF_ERROR(CheckPart("spec.sparse", from.offset(), from.count()));
  if (from.offset() != 0 || from.count() != 0) shape.range = Range{from.offset(), from.count()};
  MUSTER_ASSIGN_OR_RETURN(shape.initializer,
                          InitializerFromProto(from.initial(), "spec.sparse.initial"));
  shape.scale = from.initial().scale();
  shape.decay = !from.no_decay();
  return shape;
}

absl::Status ConvertModes(const v1::TableSpec& from, TableSpec* spec) {
  switch (from.consistency()) {
    case v1::TableSpec::CONSISTENCY_UNSPECIFIED:
    case v1::TableSpec::SYNCHRONOUS:
      spec->consistency = Consistency::kSynchronous;
      break;
    case v1::TableSpec::BOUNDED_STALENESS:
      spec->consistency = Consistency::kBoundedStaleness;
      break;
    case v1::TableSpec::ASYNCHRONOUS:
      spec->consistency = Consistency::kAsynchronous;
      break;
    default:
      return UnknownNumber("spec.consistency", "SYNCHRONOUS, BOUNDED_STALENESS or ASYNCHRONOUS",
                           from.consistency());
  }
  switch (from.nonfinite()) {
    case v1::TableSpec::NONFINITE_UNSPECIFIED:
    case v1::TableSpec::REFUSE:
      spec->nonfinite = NonfinitePolicy::kRefuse;
      break;
    case v1::TableSpec::SKIP:
      spec->nonfinite = NonfinitePolicy::kSkip;
      break;
    default:
      return UnknownNumber("spec.nonfinite", "REFUSE or SKIP", from.nonfinite());
  }
  switch (from.visibility()) {
    case v1::TableSpec::VISIBILITY_UNSPECIFIED:
    case v1::TableSpec::WHOLE_STEPS:
      spec->visibility = Visibility::kWholeSteps;
      break;
    case v1::TableSpec::SEGMENTS:
      spec->visibility = Visibility::kSegments;
      break;
    default:
      return UnknownNumber("spec.visibility", "WHOLE_STEPS or SEGMENTS", from.visibility());
  }
  switch (from.commit()) {
    case v1::TableSpec::COMMIT_UNSPECIFIED:
    case v1::TableSpec::AUTOMATIC:
      spec->commit = CommitMode::kAutomatic;
      break;
    case v1::TableSpec::EXTERNAL:
      spec->commit = CommitMode::kExternal;
      break;
    default:
      return UnknownNumber("spec.commit", "AUTOMATIC or EXTERNAL", from.commit());
  }
  return absl::OkStatus();
}

absl::Status ConvertLearningRate(const v1::TableSpec& from, TableSpec* spec) {
  MUSTER_ASSIGN_OR_RETURN(const LearningRateSpec rate,
                          LearningRateSpecFromProto(from.learning_rate(), "spec.learning_rate"));
  MUSTER_RETURN_IF_ERROR(CheckRange("spec.total_steps", from.total_steps(), 0, kMaxTotalSteps));
  LearningRateOptions& options = spec->learning_rate;
  options.peak = rate.peak;
  options.final = rate.final;
  options.warmup_steps = rate.warmup_steps;
  options.total_steps = from.total_steps();
  switch (rate.schedule) {
    case LearningRateSpec::Schedule::kConstant:
      options.schedule = LearningRateSchedule::kConstant;
      if (from.total_steps() == 0) options.total_steps = rate.warmup_steps + 1;
      break;
    case LearningRateSpec::Schedule::kCosine:
      options.schedule = LearningRateSchedule::kCosine;
      break;
    case LearningRateSpec::Schedule::kLinear:
      options.schedule = LearningRateSchedule::kLinear;
      break;
  }
  if (options.total_steps == 0) {
    return FieldError("spec.total_steps", "the length of the learning rate's schedule", "0");
  }
  return Annotate(Validate(options), "spec.learning_rate");
}

}  // namespace

absl::StatusOr<TableSpec> TableSpecFromProto(const v1::TableSpec& from) {
  TableSpec spec;
  MUSTER_RETURN_IF_ERROR(
      CheckText("spec.name", from.name(), TableSpec::kMaxName, /*required=*/true));
  spec.name = from.name();
  MUSTER_ASSIGN_OR_RETURN(const OptimizerSpec optimizer,
                          OptimizerSpecFromProto(from.optimizer(), "spec.optimizer"));
  spec.rule = RuleOptionsOf(optimizer);
  switch (from.kind_case()) {
    case v1::TableSpec::kDense: {
      MUSTER_ASSIGN_OR_RETURN(spec.shape, DenseFromProto(from.dense(), optimizer.groups));
      break;
    }
    case v1::TableSpec::kSparse: {
      if (!optimizer.groups.empty()) {
        return absl::InvalidArgumentError(
            "spec.optimizer.groups: a sparse table has no tensors that they could name");
      }
      MUSTER_ASSIGN_OR_RETURN(spec.shape, SparseFromProto(from.sparse()));
      break;
    }
    case v1::TableSpec::KIND_NOT_SET:
      return absl::InvalidArgumentError("spec: needs one of dense and sparse");
  }
  MUSTER_RETURN_IF_ERROR(ConvertLearningRate(from, &spec));
  spec.seed = from.seed();
  MUSTER_RETURN_IF_ERROR(
      CheckRange("spec.contributors", from.contributors(), 1, TableSpec::kMaxContributors));
  spec.contributors = from.contributors();
  spec.micro_batches = from.micro_batches() == 0 ? from.contributors() : from.micro_batches();
  MUSTER_RETURN_IF_ERROR(ConvertModes(from, &spec));
  spec.staleness = from.staleness();
  MUSTER_RETURN_IF_ERROR(CheckFiniteAtLeastZero("spec.clip_norm", from.clip_norm()));
  spec.clip_norm = from.clip_norm();
  return spec;
}

absl::StatusOr<ContributorId> ContributorFromProto(const v1::Contributor& from,
                                                   absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "index"), from.index(), 0, TableSpec::kMaxContributors - 1));
  if (from.incarnation() == 0) {
    return FieldError(Field(path, "incarnation"), "the number that Attach was called with", "0");
  }
  return ContributorId{.index = from.index(), .incarnation = {from.incarnation()}};
}

absl::StatusOr<DType> ElementTypeFromProto(v1::ElementType from, absl::string_view path) {
  switch (from) {
    case v1::ELEMENT_TYPE_UNSPECIFIED:
    case v1::ELEMENT_TYPE_F32:
      return DType::kF32;
    case v1::ELEMENT_TYPE_F16:
      return DType::kF16;
    case v1::ELEMENT_TYPE_BF16:
      return DType::kBF16;
    default:
      return UnknownNumber(path, "f32, f16 or bf16", from);
  }
}

absl::StatusOr<PushHeader> PushFromProto(const v1::Push& from) {
  PushHeader header;
  header.table = from.table();
  MUSTER_ASSIGN_OR_RETURN(header.from,
                          ContributorFromProto(from.contributor(), "push.contributor"));
  MUSTER_RETURN_IF_ERROR(CheckRange("push.step", from.step(), from.assign() ? 0 : 1,
                                    std::numeric_limits<int64_t>::max() - 1));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("push.micro_batch", from.micro_batch(), 0, TableSpec::kMaxMicroBatches - 1));
  header.id = {.step = from.step(), .micro_batch = from.micro_batch()};
  header.samples = from.samples();
  MUSTER_ASSIGN_OR_RETURN(header.type, ElementTypeFromProto(from.type(), "push.type"));
  MUSTER_RETURN_IF_ERROR(CheckPart("push", from.offset(), from.count()));
  header.range = {from.offset(), from.count()};
  MUSTER_RETURN_IF_ERROR(CheckRange("push.chunks", from.chunks(), 0, 1 << 24));
  header.chunks = from.chunks();
  header.assign = from.assign();
  return header;
}

absl::StatusOr<PullHeader> PullFromProto(const v1::Pull& from) {
  PullHeader header;
  header.table = from.table();
  if (from.has_contributor()) {
    MUSTER_ASSIGN_OR_RETURN(header.from,
                            ContributorFromProto(from.contributor(), "pull.contributor"));
  }
  MUSTER_RETURN_IF_ERROR(CheckPart("pull", from.offset(), from.count()));
  header.range = {from.offset(), from.count()};
  header.rows.assign(from.rows().begin(), from.rows().end());
  MUSTER_RETURN_IF_ERROR(CheckRange("pull.min_version", from.min_version(), 0,
                                    std::numeric_limits<int64_t>::max() - 1));
  header.min_version = from.min_version();
  MUSTER_ASSIGN_OR_RETURN(header.type, ElementTypeFromProto(from.type(), "pull.type"));
  return header;
}

void ToProto(const SquaredSum& sum, google::protobuf::RepeatedField<int64_t>* words) {
  for (const int64_t word : sum.ToWords()) words->Add(word);
}

absl::StatusOr<SquaredSum> SquaredSumFromProto(
    const google::protobuf::RepeatedField<int64_t>& words) {
  absl::StatusOr<SquaredSum> sum =
      SquaredSum::FromWords({words.data(), static_cast<size_t>(words.size())});
  if (!sum.ok()) return Annotate(sum.status(), "squared_gradient");
  return sum;
}

v1::TableInfo InfoOf(const AnyTable& table) {
  v1::TableInfo info;
  info.set_name(table.get().spec().name);
  if (table.sparse != nullptr) {
    info.set_offset(table.sparse->range().offset);
    info.set_count(table.sparse->range().count);
    return info;
  }
  info.set_offset(table.dense->range().offset);
  info.set_count(table.dense->range().count);
  info.set_element_count(table.dense->layout().padded_count());
  for (const Tensor& tensor : table.dense->layout().tensors()) {
    v1::TensorPlace& place = *info.add_tensors();
    place.set_name(tensor.spec.name);
    place.set_offset(tensor.offset);
    place.set_count(tensor.count);
  }
  return info;
}

}  // namespace muster
