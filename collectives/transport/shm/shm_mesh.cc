#include "collectives/transport/shm/shm_mesh.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "collectives/transport/culprit.h"

namespace muster {
namespace {

// While a rank sleeps on the window it looks after its TCP connections this often: a call of a peer
// that does not match comes there. (Death and abort ring the doorbell by way of Watch.)
constexpr absl::Duration kLook = absl::Milliseconds(10);
// Looks at the window between two looks at the clock.
constexpr int kSpinRound = 64;

inline void Relax() { __builtin_ia32_pause(); }

}  // namespace

absl::Status ShmMesh::Poll(absl::Time deadline, absl::Duration spin,
                           std::vector<uint64_t>* completed) {
  MutexLock lock(&drive_mu_);
  if (!window_->waiting() || closed_) return messages_->Poll(deadline, spin, completed);
  if (window_->TakeMet()) return Met(completed);
  for (int i = 0; i < kSpinRound && spin > absl::ZeroDuration(); ++i) {
    Relax();
    if (window_->TakeMet()) return Met(completed);
  }
  if (spin > absl::ZeroDuration()) {
    const absl::Time until = std::min(deadline, absl::Now() + spin);
    do {
      for (int i = 0; i < kSpinRound; ++i) {
        if (window_->TakeMet()) return Met(completed);
        Relax();
      }
    } while (absl::Now() < until && !woken_);
  }
  const size_t before = completed->size();
  while (true) {
    MUSTER_RETURN_IF_ERROR(messages_->Poll(absl::InfinitePast(), absl::ZeroDuration(), completed));
    if (window_->TakeMet()) return Met(completed);
    if (completed->size() > before || woken_.exchange(false)) return absl::OkStatus();
    if (const std::optional<Rank> gone = window_->ClosedWhileMissed(); gone.has_value()) {
      // It may have sent the reason just now.
      MUSTER_RETURN_IF_ERROR(
          messages_->Poll(absl::InfinitePast(), absl::ZeroDuration(), completed));
      return WithCulprit(absl::UnavailableError(absl::StrCat(
                             "rank ", *gone, " is gone: it left while more was expected of it")),
                         gone);
    }
    const absl::Time now = absl::Now();
    if (now >= deadline) return absl::OkStatus();
    window_->Block(std::min(deadline - now, kLook));
  }
}

void ShmMesh::Close(const absl::Status& reason, std::optional<Rank> culprit) {
  messages_->Close(reason, culprit);
  window_->RingSelf();
  MutexLock lock(&drive_mu_);  // Waits for the driver, whom the closed connections tell.
  if (std::exchange(closed_, true)) return;
  window_->Shut();
}

}  // namespace muster
