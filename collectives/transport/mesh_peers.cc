#include "collectives/transport/mesh_peers.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"
#include "collectives/transport/tcp_handshake.h"

namespace muster {
namespace {

constexpr size_t kMaxTokenBytes = 256;

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

Rank RankInWhole(const MeshSpec& spec, Rank rank) {
  return spec.ranks_in_whole.empty() ? rank : spec.ranks_in_whole[rank];
}

std::string DescribeMember(const MeshSpec& spec, Rank rank) {
  const MeshMember& member = spec.members[rank];
  return absl::StrCat("rank ", RankInWhole(spec, rank), " (", member.address, ", incarnation ",
                      member.incarnation.ToString(), ")");
}

absl::Status PeerIsGone(const MeshSpec& spec, Rank rank, absl::string_view how) {
  return WithCulprit(
      absl::UnavailableError(absl::StrCat(DescribeMember(spec, rank), " is gone: ", how)),
      RankInWhole(spec, rank));
}

absl::Status ValidateSpec(const MeshSpec& spec) {
  const auto invalid = [](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("mesh spec: ", parts...));
  };
  const int world_size = static_cast<int>(spec.members.size());
  if (spec.token.size() > kMaxTokenBytes) {
    return invalid("a token of ", spec.token.size(), " bytes; at most ", kMaxTokenBytes);
  }
  if (spec.epoch == 0) return invalid("epoch 0 means none; expected 1 or more");
  if (world_size < 1 || world_size > kMaxTcpWorldSize) {
    return invalid(world_size, " members; expected 1 to ", kMaxTcpWorldSize);
  }
  if (spec.rank < 0 || spec.rank >= world_size) {
    return invalid("rank ", spec.rank, " of ", world_size);
  }
  if (spec.options.channels < 1 || spec.options.channels > kMaxChannels) {
    return invalid(spec.options.channels, " channels; expected 0 to ", kMaxChannels);
  }
  for (int r = 0; r < world_size; ++r) {
    if (!spec.members[r].incarnation) return invalid("rank ", r, " has no incarnation");
  }
  return absl::OkStatus();
}

absl::Status CannotConnect(const MeshSpec& spec, Rank rank, const absl::Status& status) {
  return WithCulprit(Annotate(status, absl::StrCat("epoch ", spec.epoch, ": connecting to ",
                                                   DescribeMember(spec, rank))),
                     rank);
}

absl::Status LacksConnections(const MeshSpec& spec, absl::Span<const Rank> missing) {
  std::vector<std::string> names;
  for (Rank rank : missing) names.push_back(DescribeMember(spec, rank));
  return WithCulprit(
      absl::DeadlineExceededError(absl::StrCat(
          "epoch ", spec.epoch, ": the mesh lacks connections with ", absl::StrJoin(names, ", "))),
      missing.empty() ? std::nullopt : std::optional<Rank>(missing.front()));
}

bool IsOnOwnHost(const MeshSpec& spec, Rank rank) {
  return HostOf(spec.members[rank].address) == HostOf(spec.members[spec.rank].address);
}

int LocalWorldSize(const MeshSpec& spec) {
  int local = 0;
  for (Rank r = 0; r < static_cast<Rank>(spec.members.size()); ++r) {
    local += IsOnOwnHost(spec, r) ? 1 : 0;
  }
  return local;
}

bool FirstFailure::Record(absl::Status status, std::optional<Rank> culprit) {
  MutexLock lock(&mu_);
  if (failure_.has_value()) return false;
  if (!culprit.has_value()) culprit = CulpritOf(status);
  failure_ = MeshFailure{WithCulprit(std::move(status), culprit), culprit};
  failed_ = true;
  return true;
}

absl::Status FirstFailure::status() const {
  MutexLock lock(&mu_);
  return failure_->status;
}

std::optional<MeshFailure> FirstFailure::get() const {
  MutexLock lock(&mu_);
  return failure_;
}

}  // namespace muster
