#include "collectives/transport/mesh_admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace muster {
namespace {

// Tokens whose floor is remembered. A process serves one job at a time, and hellos of a job long
// gone can only be parked until they time out.
constexpr size_t kMaxFloors = 64;

}  // namespace

absl::Status MeshAdmission::Begin(MeshPlan plan) {
  if (plan_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("cannot form the mesh of epoch ", plan.epoch,
                                                      " while that of epoch ", plan_->epoch,
                                                      " is being formed; end that first"));
  }
  if (plan.epoch <= cancelled_through_) {
    return absl::CancelledError(absl::StrCat("epoch ", plan.epoch, " was given up"));
  }
  const Epoch floor = FloorOf(plan.token_hash);
  if (plan.epoch <= floor) {
    return absl::FailedPreconditionError(absl::StrCat("cannot form the mesh of epoch ", plan.epoch,
                                                      ": this process is past epoch ", floor));
  }
  RaiseFloor(plan.token_hash, plan.epoch - 1);
  plan_ = std::move(plan);
  cancelled_ = false;
  return absl::OkStatus();
}

void MeshAdmission::End() {
  MUSTER_CHECK(plan_.has_value());
  RaiseFloor(plan_->token_hash, plan_->epoch);
  plan_.reset();
  welcomed_.clear();
}

bool MeshAdmission::CancelThrough(Epoch epoch) {
  cancelled_through_ = std::max(cancelled_through_, epoch);
  if (!plan_.has_value() || plan_->epoch > epoch) return false;
  cancelled_ = true;
  return true;
}

absl::Status MeshAdmission::status() const {
  if (!cancelled_) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("epoch ", plan_->epoch, " was given up"));
}

std::optional<TcpVerdict> MeshAdmission::Judge(const TcpHello& hello, std::string* why) {
  const Epoch floor = FloorOf(hello.token_hash);
  if (hello.epoch <= floor) {
    *why = absl::StrCat("epoch ", hello.epoch, " is over here; this process is past epoch ", floor);
    return TcpVerdict::kStaleEpoch;
  }
  if (!plan_.has_value() || cancelled_ || plan_->token_hash != hello.token_hash ||
      plan_->epoch != hello.epoch) {
    return std::nullopt;
  }
  const TcpExpectation expected = {.token_hash = plan_->token_hash,
                                   .epoch = plan_->epoch,
                                   .rank = plan_->rank,
                                   .channels = plan_->channels,
                                   .incarnations = plan_->incarnations,
                                   .both_dial = plan_->both_dial};
  const TcpVerdict verdict = JudgeHello(hello, expected, why);
  if (verdict != TcpVerdict::kWelcome) return verdict;
  const std::pair<Rank, int> key(hello.from_rank, hello.channel);
  if (std::find(welcomed_.begin(), welcomed_.end(), key) != welcomed_.end()) {
    *why = absl::StrCat("channel ", hello.channel, " of rank ", hello.from_rank,
                        " is connected already");
    return TcpVerdict::kDuplicate;
  }
  welcomed_.push_back(key);
  return TcpVerdict::kWelcome;
}

Epoch MeshAdmission::FloorOf(uint64_t token_hash) const {
  for (const auto& [token, epoch] : floors_) {
    if (token == token_hash) return std::max(epoch, cancelled_through_);
  }
  return cancelled_through_;
}

void MeshAdmission::RaiseFloor(uint64_t token_hash, Epoch epoch) {
  for (auto& [token, floor] : floors_) {
    if (token == token_hash) {
      floor = std::max(floor, epoch);
      return;
    }
  }
  floors_.emplace_back(token_hash, epoch);
  if (floors_.size() > kMaxFloors) floors_.pop_front();
}

}  // namespace muster
