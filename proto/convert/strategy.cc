#include "proto/convert/strategy.h"

#include "absl/strings/str_cat.h"
#include "base/control/strategy_algorithm.h"
#include "base/status_macros.h"
#include "proto/convert/field.h"

namespace muster {

absl::StatusOr<SyncAlgorithm> ConvertAlgorithm(v1::Communication::Algorithm algorithm,
                                               SyncAlgorithm unspecified, absl::string_view path) {
  switch (algorithm) {
    case v1::Communication::ALGORITHM_UNSPECIFIED:
      return unspecified;
    case v1::Communication::RING:
      return SyncAlgorithm::kRing;
    case v1::Communication::DIRECT:
      return SyncAlgorithm::kDirect;
    case v1::Communication::RECURSIVE_DOUBLING:
      return SyncAlgorithm::kRecursiveDoubling;
    case v1::Communication::HALVING_DOUBLING:
      return SyncAlgorithm::kHalvingDoubling;
    case v1::Communication::DOUBLE_TREE:
      return SyncAlgorithm::kDoubleTree;
    case v1::Communication::HIERARCHICAL:
      return SyncAlgorithm::kHierarchical;
    case v1::Communication::STAR:
      return SyncAlgorithm::kStar;
    case v1::Communication::WINDOW:
      return SyncAlgorithm::kWindow;
    case v1::Communication::ONE_SHOT:
      return SyncAlgorithm::kOneShot;
    default:
      return FieldError(path,
                        "RING, DIRECT, RECURSIVE_DOUBLING, HALVING_DOUBLING, DOUBLE_TREE, "
                        "HIERARCHICAL, STAR, WINDOW, ONE_SHOT or absent",
                        absl::StrCat("number ", static_cast<int>(algorithm)));
  }
}

absl::StatusOr<SyncTransport> ConvertTransport(v1::Communication::Transport transport,
                                               SyncTransport unspecified, absl::string_view path) {
  switch (transport) {
    case v1::Communication::TRANSPORT_UNSPECIFIED:
      return unspecified;
    case v1::Communication::TCP:
      return SyncTransport::kTcp;
    case v1::Communication::SHARED_MEMORY:
      return SyncTransport::kSharedMemory;
    case v1::Communication::LIBFABRIC:
      return SyncTransport::kLibfabric;
    case v1::Communication::GRPC:
      return SyncTransport::kGrpc;
    default:
      return FieldError(path, "TCP, SHARED_MEMORY, LIBFABRIC, GRPC or absent",
                        absl::StrCat("number ", static_cast<int>(transport)));
  }
}

namespace {

absl::Status ConvertShardGroup(const v1::Strategy& proto, absl::string_view path,
                               Strategy* strategy) {
  switch (proto.shard_group()) {
    case v1::Strategy::SHARD_GROUP_UNSPECIFIED:
    case v1::Strategy::FLEET:
      strategy->host_groups = false;
      break;
    case v1::Strategy::HOST:
      strategy->host_groups = true;
      break;
    default:
      return FieldError(Field(path, "shard_group"), "FLEET, HOST or absent",
                        absl::StrCat("number ", static_cast<int>(proto.shard_group())));
  }
  MUSTER_RETURN_IF_ERROR(
      CheckRange(Field(path, "shard_group_size"), proto.shard_group_size(), 0, kMaxGroupSize));
  strategy->group_size = proto.shard_group_size();
  if (strategy->group_size > 0 && proto.shard_group() != v1::Strategy::SHARD_GROUP_UNSPECIFIED) {
    return FieldError(Field(path, "shard_group_size"), "0 or absent with a shard_group",
                      absl::StrCat(strategy->group_size));
  }
  if ((strategy->group_size > 0 || strategy->host_groups) && strategy->stage == 0) {
    return FieldError(Field(path, strategy->host_groups ? "shard_group" : "shard_group_size"),
                      "absent unless stage is 1 to 3",
                      strategy->host_groups ? "HOST" : absl::StrCat(strategy->group_size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Strategy> StrategyFromProto(const v1::Strategy& strategy, const Strategy& defaults,
                                           absl::string_view path) {
  Strategy result = defaults;
  switch (strategy.sync()) {
    case v1::Strategy::SYNC_UNSPECIFIED:
    case v1::Strategy::ALL_REDUCE:
      result.sync = SyncPath::kAllReduce;
      break;
    case v1::Strategy::PARAMETER_SERVER:
      result.sync = SyncPath::kParameterServer;
      break;
    default:
      return FieldError(Field(path, "sync"), "ALL_REDUCE, PARAMETER_SERVER or absent",
                        absl::StrCat("number ", static_cast<int>(strategy.sync())));
  }
  result.servers = strategy.servers();
  result.mixed = strategy.mixed();
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "servers"), result.servers, 0, kMaxServers));
  if (result.servers > 0 && !result.serves()) {
    return FieldError(Field(path, "servers"), "0 or absent unless sync is PARAMETER_SERVER",
                      absl::StrCat(result.servers));
  }
  if (result.mixed && result.servers == 0) {
    return FieldError(Field(path, "mixed"), "false unless there are servers to share with", "true");
  }
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "stage"), strategy.stage(), 0, kMaxStage));
  result.stage = strategy.stage();
  if (result.stage > 0 && result.serves()) {
    return FieldError(Field(path, "stage"), "0 or absent where sync is PARAMETER_SERVER",
                      absl::StrCat(result.stage));
  }
  MUSTER_RETURN_IF_ERROR(ConvertShardGroup(strategy, path, &result));
  if (strategy.has_replicas()) result.replicas = strategy.replicas();
  MUSTER_RETURN_IF_ERROR(CheckRange(Field(path, "replicas"), result.replicas, 0, kMaxReplicas));
  MUSTER_ASSIGN_OR_RETURN(
      result.algorithm,
      ConvertAlgorithm(strategy.algorithm(), defaults.algorithm, Field(path, "algorithm")));
  MUSTER_ASSIGN_OR_RETURN(
      result.transport,
      ConvertTransport(strategy.transport(), defaults.transport, Field(path, "transport")));
  // What a job says of its all-reduces is not of pushes and pulls.
  if (result.serves() && strategy.algorithm() == v1::Communication::ALGORITHM_UNSPECIFIED) {
    result.algorithm = SyncAlgorithm::kAutomatic;
  }
  if (!Takes(result, result.algorithm)) {
    return FieldError(Field(path, "algorithm"),
                      result.serves()
                          ? "DIRECT, HIERARCHICAL or absent where sync is PARAMETER_SERVER"
                          : "RING, DIRECT or absent where the state is in shards (stage above 0)",
                      Name(result.algorithm));
  }
  return result;
}

absl::StatusOr<AskedStrategy> AskedStrategyFromProto(const v1::Strategy& strategy,
                                                     const Strategy& defaults,
                                                     absl::string_view path) {
  AskedStrategy asked;
  switch (strategy.policy()) {
    case v1::Strategy::POLICY_UNSPECIFIED:
    case v1::Strategy::MANUAL:
      break;
    case v1::Strategy::AUTO:
      asked.automatic = true;
      break;
    default:
      return FieldError(Field(path, "policy"), "MANUAL, AUTO or absent",
                        absl::StrCat("number ", static_cast<int>(strategy.policy())));
  }
  // Before what is given is compared with itself: none of it may be there.
  const char* const given = !asked.automatic                                    ? nullptr
                            : strategy.sync() != v1::Strategy::SYNC_UNSPECIFIED ? "sync"
                            : strategy.stage() != 0                             ? "stage"
                            : strategy.servers() != 0                           ? "servers"
                            : strategy.mixed()                                  ? "mixed"
                            : strategy.shard_group() != v1::Strategy::SHARD_GROUP_UNSPECIFIED
                                ? "shard_group"
                            : strategy.shard_group_size() != 0 ? "shard_group_size"
                                                               : nullptr;
  if (given != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        Field(path, given), ": must be absent with policy AUTO, where the coordinator chooses it"));
  }
  MUSTER_ASSIGN_OR_RETURN(asked.strategy, StrategyFromProto(strategy, defaults, path));
  if (!asked.automatic) return asked;
  const SyncAlgorithm algorithm = asked.strategy.algorithm;
  if (algorithm != SyncAlgorithm::kAutomatic && algorithm != SyncAlgorithm::kRing &&
      algorithm != SyncAlgorithm::kDirect) {
    return FieldError(Field(path, "algorithm"),
                      "RING, DIRECT or absent with policy AUTO, since the state may be in shards",
                      Name(algorithm));
  }
  return asked;
}

v1::Strategy ToProto(const AskedStrategy& asked) {
  v1::Strategy proto = ToProto(asked.strategy);
  if (asked.automatic) proto.set_policy(v1::Strategy::AUTO);
  return proto;
}

v1::Strategy ToProto(const Strategy& strategy) {
  v1::Strategy proto;
  proto.set_sync(strategy.serves() ? v1::Strategy::PARAMETER_SERVER : v1::Strategy::ALL_REDUCE);
  proto.set_servers(strategy.servers);
  proto.set_mixed(strategy.mixed);
  proto.set_stage(strategy.stage);
  proto.set_replicas(strategy.replicas);
  if (strategy.host_groups) proto.set_shard_group(v1::Strategy::HOST);
  proto.set_shard_group_size(strategy.group_size);
  switch (strategy.algorithm) {
    case SyncAlgorithm::kAutomatic:
      break;
    case SyncAlgorithm::kRing:
      proto.set_algorithm(v1::Communication::RING);
      break;
    case SyncAlgorithm::kDirect:
      proto.set_algorithm(v1::Communication::DIRECT);
      break;
    case SyncAlgorithm::kRecursiveDoubling:
      proto.set_algorithm(v1::Communication::RECURSIVE_DOUBLING);
      break;
    case SyncAlgorithm::kHalvingDoubling:
      proto.set_algorithm(v1::Communication::HALVING_DOUBLING);
      break;
    case SyncAlgorithm::kDoubleTree:
      proto.set_algorithm(v1::Communication::DOUBLE_TREE);
      break;
    case SyncAlgorithm::kHierarchical:
      proto.set_algorithm(v1::Communication::HIERARCHICAL);
      break;
    case SyncAlgorithm::kStar:
      proto.set_algorithm(v1::Communication::STAR);
      break;
    case SyncAlgorithm::kWindow:
      proto.set_algorithm(v1::Communication::WINDOW);
      break;
    case SyncAlgorithm::kOneShot:
      proto.set_algorithm(v1::Communication::ONE_SHOT);
      break;
  }
  switch (strategy.transport) {
    case SyncTransport::kAutomatic:
      break;
    case SyncTransport::kTcp:
      proto.set_transport(v1::Communication::TCP);
      break;
    case SyncTransport::kSharedMemory:
      proto.set_transport(v1::Communication::SHARED_MEMORY);
      break;
    case SyncTransport::kLibfabric:
      proto.set_transport(v1::Communication::LIBFABRIC);
      break;
    case SyncTransport::kGrpc:
      proto.set_transport(v1::Communication::GRPC);
      break;
  }
  return proto;
}

namespace {

absl::Status CheckShardGroup(const JobSpec& spec, const Strategy& strategy,
                             absl::string_view path) {
  if (!strategy.grouped()) return absl::OkStatus();
  const std::string given =
      strategy.host_groups ? std::string("HOST") : absl::StrCat(strategy.group_size);
  const std::string field = Field(path, strategy.host_groups ? "shard_group" : "shard_group_size");
  if (spec.communication.compression.kind != GradientCompression::Kind::kNone) {
    return FieldError(field,
                      "absent with communication.gradients INT8 or TOP_K, whose contributions go "
                      "from each worker to the owners",
                      given);
  }
  if (strategy.host_groups) return absl::OkStatus();
  const int most = spec.workers.max / strategy.group_size * strategy.group_size;
  if (most > 0 && most >= spec.workers.min) return absl::OkStatus();
  return FieldError(field,
                    absl::StrCat("a divisor of one of the numbers of workers that there may be (",
                                 spec.workers.min, " to ", spec.workers.max, ")"),
                    given);
}

}  // namespace

absl::Status CheckStrategy(const JobSpec& spec, const Strategy& strategy, absl::string_view path) {
  MUSTER_RETURN_IF_ERROR(CheckShardGroup(spec, strategy, path));
  const SyncAlgorithm algorithm = strategy.algorithm;
  // Pushes and pulls are by their strategy's word alone, whatever is allowed to all-reduces.
  if (spec.communication.summation_order == CommunicationSpec::SummationOrder::kAny &&
      algorithm != SyncAlgorithm::kAutomatic && !strategy.serves()) {
    return FieldError(Field(path, "algorithm"),
                      "absent with communication.summation_order ANY, which is for algorithms that "
                      "are chosen",
                      Name(algorithm));
  }
  if (algorithm == SyncAlgorithm::kWindow && strategy.transport != SyncTransport::kAutomatic &&
      strategy.transport != SyncTransport::kSharedMemory) {
    return FieldError(Field(path, "algorithm"),
                      "another one or absent with a transport other than SHARED_MEMORY",
                      Name(algorithm));
  }
  if (spec.communication.compression.kind != GradientCompression::Kind::kNone &&
      algorithm != SyncAlgorithm::kAutomatic && algorithm != SyncAlgorithm::kRing &&
      algorithm != SyncAlgorithm::kDirect) {
    return FieldError(Field(path, "algorithm"),
                      "RING, DIRECT or absent with communication.gradients INT8 or TOP_K, whose "
                      "contributions are exchanged directly",
                      Name(algorithm));
  }
  if (IsHalfPrecision(spec.communication.gradients) && algorithm != SyncAlgorithm::kAutomatic &&
      algorithm != SyncAlgorithm::kRing && algorithm != SyncAlgorithm::kDirect &&
      algorithm != SyncAlgorithm::kStar && algorithm != SyncAlgorithm::kWindow &&
      algorithm != SyncAlgorithm::kOneShot) {
    return FieldError(Field(path, "algorithm"),
                      "RING, DIRECT, STAR, WINDOW, ONE_SHOT or absent with 16-bit gradients, which "
                      "others would round at every hop",
                      Name(algorithm));
  }
  return absl::OkStatus();
}

}  // namespace muster
