// What a worker tells of its communication.
#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "proto/convert/control.h"
#include "proto/convert/field.h"

namespace muster {
namespace {

// Of a status at each heartbeat: no room for long texts.
constexpr size_t kMaxExplanationBytes = 500;

absl::StatusOr<AlgorithmInUse> UseFromProto(const v1::AlgorithmInUse& use, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(
      CheckText(Field(path, "collective"), use.collective(), kMaxNameBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(
      CheckText(Field(path, "algorithm"), use.algorithm(), kMaxNameBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "least_bytes"), use.least_bytes(), 0, use.most_bytes()));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "why"), use.why(), kMaxExplanationBytes));
  return AlgorithmInUse{.collective = use.collective(),
                        .algorithm = use.algorithm(),
                        .least_bytes = use.least_bytes(),
                        .most_bytes = use.most_bytes(),
                        .automatic = use.automatic(),
                        .why = use.why()};
}

}  // namespace

v1::CommunicationPath ToProto(const CommunicationPath& path) {
  v1::CommunicationPath proto;
  proto.set_transport(path.transport);
  proto.set_provider(path.provider);
  proto.set_why(TextForPeople(path.why, kMaxExplanationBytes));
  const size_t count = std::min<size_t>(path.algorithms.size(), kMaxAlgorithms);
  for (size_t i = 0; i < count; ++i) {
    const AlgorithmInUse& use = path.algorithms[i];
    v1::AlgorithmInUse& added = *proto.add_algorithms();
    added.set_collective(use.collective);
    added.set_algorithm(use.algorithm);
    added.set_least_bytes(use.least_bytes);
    added.set_most_bytes(use.most_bytes);
    added.set_automatic(use.automatic);
    added.set_why(TextForPeople(use.why, kMaxExplanationBytes));
  }
  return proto;
}

absl::StatusOr<CommunicationPath> FromProto(const v1::CommunicationPath& proto,
                                            absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(
      CheckText(Field(path, "transport"), proto.transport(), kMaxNameBytes, /*required=*/true));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "provider"), proto.provider(), kMaxNameBytes));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "why"), proto.why(), kMaxExplanationBytes));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "algorithms.size"), proto.algorithms_size(), 0, kMaxAlgorithms));
  CommunicationPath result;
  result.transport = proto.transport();
  result.provider = proto.provider();
  result.why = proto.why();
  for (int i = 0; i < proto.algorithms_size(); ++i) {
    MUSTER_ASSIGN_OR_RETURN(
        AlgorithmInUse use,
        UseFromProto(proto.algorithms(i), absl::StrFormat("%s[%d]", Field(path, "algorithms"), i)));
    result.algorithms.push_back(std::move(use));
  }
  return result;
}

v1::CollectiveWait ToProto(const CollectiveWait& wait) {
  v1::CollectiveWait proto;
  proto.set_operation(TextForPeople(wait.operation, kMaxExplanationBytes));
  proto.set_label(TextForPeople(wait.label, kMaxExplanationBytes));
  proto.set_step(wait.step);
  for (const Rank rank : wait.waits_for) proto.add_waits_for(rank);
  proto.set_waited_ms(wait.waited_ms);
  proto.set_late(wait.late);
  return proto;
}

absl::StatusOr<CollectiveWait> FromProto(const v1::CollectiveWait& wait, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "operation"), wait.operation(), kMaxExplanationBytes,
                                   /*required=*/true));
  MUSTER_RETURN_IF_ERROR(CheckText(Field(path, "label"), wait.label(), kMaxExplanationBytes));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "step"), wait.step(), 0, kMaxJobSteps));
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "waits_for.size"), wait.waits_for_size(), 1, kMaxMembers));
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "waited_ms"), wait.waited_ms(), 0, kMaxWaitMs));
  CollectiveWait result;
  result.operation = wait.operation();
  result.label = wait.label();
  result.step = wait.step();
  for (int i = 0; i < wait.waits_for_size(); ++i) {
    MUSTER_RETURN_IF_ERROR(CheckRange(absl::StrFormat("%s[%d]", Field(path, "waits_for"), i),
                                      wait.waits_for(i), 0, kMaxMembers - 1));
    result.waits_for.push_back(wait.waits_for(i));
  }
  result.waited_ms = wait.waited_ms();
  result.late = wait.late();
  return result;
}

}  // namespace muster
