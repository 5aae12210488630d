// Memory that all ranks of a mesh see, and the means to meet: what collectives in shared memory are
// made of (collectives/engine/window_execution.h).
//
// A transport whose ranks share memory offers one. Each rank has a *stage*, memory that every rank
// may read and write, and may let the others into its own buffers where these are registered (they
// lie in memory that the others can map). When all ranks have *arrived* at a meet, each sees what
// the others wrote before it.
//
// After a meet there may be *pieces* of work, some of each rank's, that whoever comes first does:
// where ranks share cores, one that runs does the work of one that does not, and none need be woken
// for it. When all pieces are finished, each rank sees what was written for them.
//
// Driven by the thread that drives the transport.
#ifndef MUSTER_COLLECTIVES_TRANSPORT_WINDOW_H_
#define MUSTER_COLLECTIVES_TRANSPORT_WINDOW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"

namespace muster {

// What a rank says of its call to the others. With the number of a meet it fills a cache line.
struct WindowCall {
  std::array<std::byte, 40> fingerprint = {};
  // Places of the buffers in the rank's registered memory; -1: not registered.
  int64_t input = -1;
  int64_t output = -1;
};

class Window {
 public:
  virtual ~Window() = default;

  // The stage of a rank: stage_bytes() bytes, aligned to 4096.
  virtual std::byte* Stage(Rank rank) const = 0;
  virtual int64_t stage_bytes() const = 0;

  // The place of [data, data + bytes) in this rank's registered memory, if it lies there.
  virtual std::optional<int64_t> PlaceOf(const void* data, int64_t bytes) const = 0;
  // Where `place` of a rank's registered memory lies in this process.
  virtual std::byte* At(Rank rank, int64_t place) const = 0;
  // Has [place, place + bytes) of a rank's registered memory mapped in this process, as far as it
  // never was, so that no page faults when it is touched; `most` bytes at most. Returns how many it
  // took. A wish: not every kernel grants it.
  virtual int64_t MapPages(Rank rank, int64_t place, int64_t bytes, int64_t most) = 0;

  // Shows `call` to the others from the next meet on, until the meet after the next Publish.
  // Requires: Arrive comes next.
  virtual void Publish(const WindowCall& call) = 0;
  // What `rank` published last before the last meet.
  virtual const WindowCall& Published(Rank rank) const = 0;

  // Arrives at the next meet. When all have, Poll appends `token`. Requires: the last meet was met.
  virtual void Arrive(uint64_t token) = 0;
  // All have arrived. Cheap enough to spin on; Poll will not say it again once it was true.
  virtual bool TakeMet() = 0;
  // The same within a microsecond or so, where ranks have cores of their own to wait on.
  virtual bool TakeMetSoon() = 0;
  // Who has not arrived, or has pieces to finish.
  virtual std::vector<Rank> Missing() const = 0;

  // The ranks are more than the cores they run on.
  virtual bool ranks_share_cores() const = 0;
  // There are counts[r] pieces of rank r's from now on. All ranks say the same, each after the meet
  // and when all pieces before are finished.
  virtual void OfferPieces(absl::Span<const int64_t> counts) = 0;
  // Takes up to `most` of those of `owner` that nobody has taken.
  struct Pieces {
    int64_t first = 0;  // its number, from 0
    int64_t count = 0;
  };
  virtual Pieces TakePieces(Rank owner, int64_t most) = 0;
  // So many pieces that this rank has taken are done: all of them. Then, as if at a meet, TakeMet
  // or Poll, with `token`, says when all ranks' are.
  virtual void FinishPieces(int64_t count, uint64_t token) = 0;

  // Brackets writes to other ranks' registered memory, a millisecond's work at most. False: a rank
  // has closed, whose memory is not to be touched any more; nothing is to be ended then.
  virtual bool BeginTouch() = 0;
  virtual void EndTouch() = 0;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TRANSPORT_WINDOW_H_
