// Strategies between wire messages and the domain. Pure and thread-safe.
#ifndef MUSTER_PROTO_CONVERT_STRATEGY_H_
#define MUSTER_PROTO_CONVERT_STRATEGY_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/control/strategy.h"
#include "base/job_spec.h"
#include "muster/v1/job.pb.h"

namespace muster {

// `unspecified` stands for what is. INVALID_ARGUMENT names `path`.
absl::StatusOr<SyncAlgorithm> ConvertAlgorithm(v1::Communication::Algorithm algorithm,
                                               SyncAlgorithm unspecified, absl::string_view path);
absl::StatusOr<SyncTransport> ConvertTransport(v1::Communication::Transport transport,
                                               SyncTransport unspecified, absl::string_view path);

// A strategy, whoever has chosen it; what it leaves open is as in `defaults`. `path` names it in
// errors.
absl::StatusOr<Strategy> StrategyFromProto(const v1::Strategy& strategy, const Strategy& defaults,
                                           absl::string_view path);
// What a description or a client asks for. With policy AUTO nothing may be given that the
// coordinator chooses.
absl::StatusOr<AskedStrategy> AskedStrategyFromProto(const v1::Strategy& strategy,
                                                     const Strategy& defaults,
                                                     absl::string_view path);
v1::Strategy ToProto(const Strategy& strategy);
v1::Strategy ToProto(const AskedStrategy& asked);
// INVALID_ARGUMENT if the job can't train by that strategy.
absl::Status CheckStrategy(const JobSpec& spec, const Strategy& strategy, absl::string_view path);

}  // namespace muster

#endif  // MUSTER_PROTO_CONVERT_STRATEGY_H_
