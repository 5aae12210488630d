#include "collectives/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"

namespace muster {
namespace {

// Tags and tokens of fingerprints. Operations' tags leave the top bit clear, their slots stay below
// this one.
constexpr uint64_t kFingerprintTag = uint64_t{1} << 63;
constexpr int kFingerprintSlot = (1 << Execution::kSlotBits) - 1;
constexpr uint64_t kFingerprintToken = static_cast<uint64_t>(kFingerprintSlot)
                                       << (64 - Execution::kSlotBits);

}  // namespace

std::string Operation::Describe() const {
  std::string text = muster::Describe(fingerprint);
  if (!label.empty()) absl::StrAppend(&text, " '", label, "'");
  if (step != 0) absl::StrAppend(&text, " of step ", step);
  return text;
}

Engine::Engine(Transport& transport, absl::Duration longest_spin)
    : transport_(transport),
      spin_(longest_spin),
      peers_(static_cast<size_t>(transport.world_size())) {
  for (Rank r = 0; r < transport_.world_size(); ++r) {
    if (r != transport_.rank()) PostFingerprintReceive(r);
  }
}

void Engine::PostFingerprintReceive(Rank peer) {
  Peer& state = peers_[peer];
  transport_.PostStandingReceive(peer, kFingerprintTag | state.next_receive++,
                                 absl::MakeSpan(state.incoming),
                                 kFingerprintToken | static_cast<uint64_t>(peer));
}

Execution* Engine::Find(int slot) {
  for (const auto& execution : active_) {
    if (execution->slot() == slot) return execution.get();
  }
  return nullptr;
}

absl::Status Engine::Start(std::shared_ptr<Operation> operation) {
  MUSTER_CHECK(HasRoom());
  const Fingerprint& ours = operation->fingerprint;
  MUSTER_CHECK_EQ(ours.sequence, last_sequence_ + 1);
  last_sequence_ = ours.sequence;
  history_[ours.sequence % history_.size()] = ours;
  const int slot = static_cast<int>(ours.sequence % 2);  // The only other active one has the other.
  active_.push_back(
      std::make_unique<Execution>(std::move(operation), slot, transport_, scratch_pool_));
  OpenSends();
  for (Rank r = 0; r < transport_.world_size(); ++r) {
    Peer& peer = peers_[r];
    if (!peer.ahead.has_value()) continue;
    const Fingerprint theirs = *peer.ahead;
    if (theirs.sequence <= last_sequence_) {
      peer.ahead.reset();
      PostFingerprintReceive(r);
    }
    MUSTER_RETURN_IF_ERROR(Compare(r, theirs));
  }
  return absl::OkStatus();
}

void Engine::OpenSends() {
  for (size_t i = 0; i < active_.size(); ++i) {
    for (Rank r = 0; r < transport_.world_size(); ++r) {
      if (r == transport_.rank() || active_[i]->SendsOpen(r)) continue;
      if (i > 0 && !active_[i - 1]->SendsPosted(r)) continue;
      uint64_t tag = kFingerprintTag | peers_[r].next_send;
      active_[i]->OpenSends(r, &tag);
      peers_[r].next_send = tag & ~kFingerprintTag;
    }
  }
}

absl::Status Engine::Mismatch(const Fingerprint& ours, Rank peer, const Fingerprint& theirs) const {
  return absl::InvalidArgumentError(
      absl::StrCat("calls do not match: rank ", transport_.rank(), " called ", Describe(ours),
                   ", but rank ", peer, " called ", Describe(theirs),
                   "; all ranks must issue the same collectives in the same order"));
}

absl::Status Engine::Skipped(const Fingerprint& ours, Rank peer, const Fingerprint& theirs) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "calls do not match: rank ", transport_.rank(), " called ", Describe(ours), ", but rank ",
      peer, " called something there that does not involve it, and then ", Describe(theirs),
      "; all ranks must issue the same collectives in the same order"));
}

absl::Status Engine::Compare(Rank peer, const Fingerprint& theirs) {
  for (const auto& execution : active_) {
    const Fingerprint& ours = execution->operation().fingerprint;
    if (theirs.sequence == ours.sequence) {
      if (!(theirs == ours)) return Mismatch(ours, peer, theirs);
      MUSTER_CHECK(execution->MustHear(peer))
          << "equal calls with different schedules: " << Describe(ours) << " from rank " << peer;
      execution->Heard(peer);
      return absl::OkStatus();
    }
    // The peer's fingerprints come in order: it will send none for this one any more.
    if (theirs.sequence > ours.sequence && execution->MustHear(peer) &&
        !execution->HasHeard(peer)) {
      return Skipped(ours, peer, theirs);
    }
  }
  if (theirs.sequence > last_sequence_) return absl::OkStatus();  // Kept for later.
  const Fingerprint& ours = history_[theirs.sequence % history_.size()];
  return Mismatch(ours, peer, theirs);  // This rank's call was done without hearing the peer.
}

absl::Status Engine::FingerprintCame(Rank peer) {
  const Fingerprint theirs = DecodeFingerprint(peers_[peer].incoming);
  if (theirs.sequence > last_sequence_) {
    peers_[peer].ahead = theirs;
  } else {
    PostFingerprintReceive(peer);
  }
  return Compare(peer, theirs);
}

absl::Status Engine::CheckDeadline() const {
  if (active_.empty() || absl::Now() < active_.front()->operation().deadline) {
    return absl::OkStatus();
  }
  const std::vector<Rank> late = active_.front()->WaitsFor();
  const absl::Status status = absl::DeadlineExceededError(
      absl::StrCat(active_.front()->operation().Describe(), " on rank ", transport_.rank(),
                   late.empty() ? " was not driven in time" : " still waits for rank ",
                   absl::StrJoin(late, ", ")));
  return late.empty() ? status : WithCulprit(status, late.front());
}

absl::Status Engine::Progress(absl::Time deadline, bool awaited,
                              std::vector<std::shared_ptr<Operation>>* finished) {
  bool ran = false;
  for (const auto& execution : active_) ran = ran || execution->RunLocal();
  if (!active_.empty()) deadline = std::min(deadline, active_.front()->operation().deadline);
  const bool alone = transport_.world_size() == 1;
  completed_.clear();
  if (!(alone && ran)) {
    const bool at_once = ran || (!active_.empty() && active_.front()->done());
    const absl::Duration spin = at_once || !awaited ? absl::ZeroDuration() : spin_.Next();
    const absl::Time before = spin > absl::ZeroDuration() ? absl::Now() : absl::Time();
    MUSTER_RETURN_IF_ERROR(
        transport_.Poll(at_once ? absl::InfinitePast() : deadline, spin, &completed_));
    if (spin > absl::ZeroDuration()) spin_.Report(spin, absl::Now() - before);
  }
  for (uint64_t token : completed_) {
    const int slot = Execution::SlotOf(token);
    if (slot == kFingerprintSlot) {
      MUSTER_RETURN_IF_ERROR(FingerprintCame(static_cast<Rank>(token & 0xffffffff)));
    } else {
      Execution* const execution = Find(slot);
      MUSTER_CHECK(execution != nullptr) << "a completion of no operation";
      execution->Completed(token);
    }
  }
  while (!active_.empty() && active_.front()->done()) {
    finished->push_back(active_.front()->shared_operation());
    active_.pop_front();
  }
  if (!active_.empty()) OpenSends();
  return CheckDeadline();
}

}  // namespace muster
