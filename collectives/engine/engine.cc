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
// these.
constexpr uint64_t kFingerprintTag = Execution::kFingerprintTag;
constexpr int kFingerprintSlot = (1 << Execution::kSlotBits) - 1;
constexpr uint64_t kFingerprintToken = static_cast<uint64_t>(kFingerprintSlot)
                                       << (64 - Execution::kSlotBits);
constexpr int kWindowSlot = kFingerprintSlot - 1;
constexpr uint64_t kWindowToken = static_cast<uint64_t>(kWindowSlot) << (64 - Execution::kSlotBits);

// Calls of a scope that are remembered, to say what a peer's odd call stands against.
constexpr size_t kHistory = 64;

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
  ++moves_;
  const Fingerprint& ours = operation->fingerprint;
  Scope& scope = scopes_[ours.scope];
  if (scope.history.empty()) scope.history.resize((ours.scope & kPairScope) != 0 ? 1 : kHistory);
  MUSTER_CHECK_EQ(ours.sequence, scope.last_sequence + 1);
  scope.last_sequence = ours.sequence;
  scope.history[ours.sequence % scope.history.size()] = ours;
  if (operation->window_plan != nullptr) {
    const bool registered = operation->window_plan->small && registered_calls_.Contains(ours);
    in_window_.emplace(std::move(operation), *transport_.window(), transport_.rank(),
                       window_operations_++, registered, kWindowToken);
    return AdvanceWindow(/*met=*/false);
  }
  // Those that are active have followed each other: no two share a slot.
  const int slot = static_cast<int>(executions_++ % kMostActive);
  active_.push_back(
      std::make_unique<Execution>(std::move(operation), slot, transport_, scratch_pool_));
  OpenSends();
  for (Rank r = 0; r < transport_.world_size(); ++r) {
    Peer& peer = peers_[r];
    if (!peer.ahead.has_value()) continue;
    const Fingerprint theirs = *peer.ahead;
    const uint64_t number = peer.last_number;
    if (!IsAhead(theirs)) {
      peer.ahead.reset();
      PostFingerprintReceive(r);
    }
    MUSTER_RETURN_IF_ERROR(Compare(r, theirs, number));
  }
  return absl::OkStatus();
}

void Engine::OpenSends() {
  for (size_t i = 0; i < active_.size(); ++i) {
    for (Rank r = 0; r < transport_.world_size(); ++r) {
      if (r == transport_.rank() || active_[i]->SendsOpen(r)) continue;
      if (i > 0 && !active_[i - 1]->SendsPosted(r)) continue;
      active_[i]->OpenSends(r, &peers_[r].next_send);
    }
  }
}

absl::Status Engine::Skipped(const Fingerprint& ours, Rank peer, const Fingerprint& theirs) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "calls do not match: rank ", transport_.rank(), " called ", Describe(ours), ", but rank ",
      peer, " called something there that does not involve it, and then ", Describe(theirs),
      "; all ranks must issue the same collectives in the same order"));
}

bool Engine::IsAhead(const Fingerprint& theirs) const {
  const auto scope = scopes_.find(theirs.scope);
  return scope == scopes_.end() || theirs.sequence > scope->second.last_sequence;
}

const Fingerprint* Engine::OurCall(const Fingerprint& theirs) const {
  const auto scope = scopes_.find(theirs.scope);
  if (scope == scopes_.end()) return nullptr;
  const std::vector<Fingerprint>& history = scope->second.history;
  return &history[theirs.sequence % history.size()];
}

absl::Status Engine::Compare(Rank peer, const Fingerprint& theirs, uint64_t number) {
  for (const auto& execution : active_) {
    if (!execution->MustHear(peer) || execution->HasHeard(peer)) continue;
    const Fingerprint& ours = execution->operation().fingerprint;
    if (theirs == ours) {
      execution->Heard(peer, number);
      return absl::OkStatus();
    }
    // The peer's fingerprints come in order: it will send none for this call before this one.
    if (theirs.scope != ours.scope || theirs.sequence == ours.sequence) {
      return MismatchedCalls(ours, transport_.rank(), theirs, peer);
    }
    if (theirs.sequence > ours.sequence) return Skipped(ours, peer, theirs);
    break;
  }
  if (IsAhead(theirs)) return absl::OkStatus();  // Kept for later.
  // This rank's call needed no word of the peer.
  return MismatchedCalls(*OurCall(theirs), transport_.rank(), theirs, peer);
}

absl::Status Engine::FingerprintCame(Rank peer) {
  Peer& state = peers_[peer];
  const Fingerprint theirs = DecodeFingerprint(state.incoming);
  const uint64_t number = state.next_receive - 1;
  state.last_number = number;
  if (IsAhead(theirs)) {
    state.ahead = theirs;
  } else {
    PostFingerprintReceive(peer);
  }
  return Compare(peer, theirs, number);
}

const Operation& Engine::FrontOperation() const {
  return active_.empty() ? in_window_->operation() : active_.front()->operation();
}

std::vector<Rank> Engine::FrontWaitsFor() const {
  return active_.empty() ? in_window_->WaitsFor() : active_.front()->WaitsFor();
}

absl::Status Engine::AdvanceWindow(bool met) {
  absl::Status status;
  if (met) {
    status = in_window_->Met();
  } else if (in_window_.has_value() && !in_window_->begun() && active_.empty()) {
    status = in_window_->Begin();
  }
  if (!absl::IsUnavailable(status)) return status;
  // The rank that left may have sent a better reason.
  MUSTER_RETURN_IF_ERROR(transport_.Poll(absl::InfinitePast(), absl::ZeroDuration(), &completed_));
  return status;
}

absl::StatusOr<bool> Engine::MeetAtOnce(bool awaited) {
  bool met = false;
  if (!active_.empty() || !in_window_.has_value() || !in_window_->begun()) return met;
  Window& window = *transport_.window();
  while (!in_window_->done() && (awaited ? window.TakeMetSoon() : window.TakeMet())) {
    met = true;
    ++moves_;
    MUSTER_RETURN_IF_ERROR(AdvanceWindow(/*met=*/true));
  }
  return met;
}

bool Engine::TakeFromWindow(std::vector<std::shared_ptr<Operation>>* finished) {
  if (!active_.empty() || !in_window_.has_value() || !in_window_->done()) return false;
  if (in_window_->registration_surprised()) {
    registered_calls_.Note(in_window_->operation().fingerprint, in_window_->was_registered());
  }
  finished->push_back(in_window_->shared_operation());
  in_window_.reset();
  return true;
}

absl::Status Engine::CheckMissing() const {
  if (!active_.empty() || !in_window_.has_value() || in_window_->done()) return absl::OkStatus();
  const auto is_ahead = [](const Peer& peer) { return peer.ahead.has_value(); };
  if (std::none_of(peers_.begin(), peers_.end(), is_ahead)) return absl::OkStatus();
  for (Rank r : in_window_->WaitsFor()) {
    const Peer& peer = peers_[r];
    if (!is_ahead(peer)) continue;
    return MismatchedCalls(in_window_->operation().fingerprint, transport_.rank(), *peer.ahead, r);
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckDeadline() {
  if (active() == 0 || absl::Now() < FrontOperation().deadline) return absl::OkStatus();
  const std::vector<Rank> late = FrontWaitsFor();
  const absl::Status status = absl::DeadlineExceededError(
      absl::StrCat(FrontOperation().Describe(), " on rank ", transport_.rank(),
                   late.empty() ? " was not driven in time" : " still waits for rank ",
                   absl::StrJoin(late, ", ")));
  return late.empty() ? status : WithCulprit(status, late.front());
}

bool Engine::RunLocal() {
  for (const auto& execution : active_) {
    if (execution->RunLocal()) return true;
  }
  return false;
}

absl::Status Engine::Progress(absl::Time deadline, bool awaited,
                              std::vector<std::shared_ptr<Operation>>* finished) {
  MUSTER_ASSIGN_OR_RETURN(bool met, MeetAtOnce(awaited));
  // Without a look at anything else: whatever fails keeps later operations from getting so far.
  if (TakeFromWindow(finished)) return absl::OkStatus();
  bool ran = RunLocal();
  if (active() > 0) deadline = std::min(deadline, FrontOperation().deadline);
  const bool alone = transport_.world_size() == 1;
  const bool front_done = !active_.empty() && active_.front()->done();
  completed_.clear();
  if (!(alone && ran) && !front_done) {
    // A meet is soon over where each rank has a core: worth a constant spin. What comes by a
    // connection may be long in coming.
    const bool meets = active_.empty() && in_window_.has_value();
    absl::Duration spin = absl::ZeroDuration();
    if (!ran && awaited) spin = meets ? spin_.longest() : spin_.Next();
    const bool learns = spin > absl::ZeroDuration() && !meets;
    const absl::Time before = learns ? absl::Now() : absl::Time();
    MUSTER_RETURN_IF_ERROR(
        transport_.Poll(ran ? absl::InfinitePast() : deadline, spin, &completed_));
    if (learns) spin_.Report(spin, absl::Now() - before);
  }
  moves_ += completed_.size() + (ran ? 1 : 0);
  for (uint64_t token : completed_) {
    const int slot = Execution::SlotOf(token);
    if (slot == kFingerprintSlot) {
      MUSTER_RETURN_IF_ERROR(FingerprintCame(static_cast<Rank>(token & 0xffffffff)));
    } else if (slot == kWindowSlot) {
      met = true;
      MUSTER_RETURN_IF_ERROR(AdvanceWindow(/*met=*/true));
    } else {
      Execution* const execution = Find(slot);
      MUSTER_CHECK(execution != nullptr) << "a completion of no operation";
      execution->Completed(token);
    }
  }
  // What came may have been all that was missing.
  if (!ran && !completed_.empty() && RunLocal()) ++moves_;
  while (!active_.empty() && active_.front()->done()) {
    finished->push_back(active_.front()->shared_operation());
    active_.pop_front();
  }
  if (!active_.empty()) OpenSends();
  MUSTER_RETURN_IF_ERROR(AdvanceWindow(/*met=*/false));
  if (TakeFromWindow(finished)) return absl::OkStatus();
  MUSTER_RETURN_IF_ERROR(CheckMissing());
  return met ? absl::OkStatus() : CheckDeadline();
}

}  // namespace muster
