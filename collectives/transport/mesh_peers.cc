#include "collectives/transport/mesh_peers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/transport/culprit.h"

namespace muster {
namespace {

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace

std::string DescribeMember(const MeshSpec& spec, Rank rank) {
  const MeshMember& member = spec.members[rank];
  return absl::StrCat("rank ", rank, " (", member.address, ", incarnation ",
                      member.incarnation.ToString(), ")");
}

absl::Status PeerIsGone(const MeshSpec& spec, Rank rank, absl::string_view how) {
  return WithCulprit(
      absl::UnavailableError(absl::StrCat(DescribeMember(spec, rank), " is gone: ", how)), rank);
}

int LocalWorldSize(const MeshSpec& spec) {
  const std::string host = HostOf(spec.members[spec.rank].address);
  int local = 0;
  for (const MeshMember& member : spec.members) local += HostOf(member.address) == host ? 1 : 0;
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
