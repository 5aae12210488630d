// What workers send each other, modelled: who has entered a step, who has put what into its small
// all-reduce, and which ends of which mesh are closed. What was sent before an end closed may still
// arrive. A copyable value.
#ifndef MUSTER_TESTS_SIM_DATA_PLANE_H_
#define MUSTER_TESTS_SIM_DATA_PLANE_H_

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/control/digest.h"
#include "base/control/messages.h"
#include "tests/sim/checker.h"

namespace muster::sim {

// One rank's part in the mesh of one epoch.
struct MeshEnd {
  bool open = false;
  bool closed = false;
  Step entered = 0;            // highest step whose gradients this rank has sent
  uint64_t entered_chain = 0;  // computed from this state
  Step contributed = 0;        // highest step it has put into the small all-reduce
  bool pause = false;          // with this flag
  bool resting = false;        // it waits for all to rest
  bool moving = false;         // it gives, or waits for, ranges
  bool moved = false;          // it has all of its part
  // What it gives: the state, and which shards of the source it has of it.
  std::optional<ModelState> gift;
  std::set<size_t> gift_shards;
};

struct Mesh {
  View view;
  std::vector<MeshEnd> ends;  // by rank
};

class DataPlane {
 public:
  // The mesh of this view; made on first use.
  Mesh& Open(const View& view);
  Mesh* Find(Epoch epoch);
  const Mesh* Find(Epoch epoch) const;
  // This incarnation's ends of epochs before `before` are closed; its peers may notice.
  void Close(Incarnation incarnation, Epoch before);
  // The process is gone.
  void Die(Incarnation incarnation);
  bool IsDead(Incarnation incarnation) const { return dead_.contains(incarnation); }
  // A rank whose end is closed or whose process is gone; -1 if there is none.
  Rank BrokenRank(const Mesh& mesh, Rank self) const;
  // Keeps only the meshes of these epochs, and of the dead those in them or in `met`.
  void Keep(const std::set<Epoch>& epochs, const std::set<Incarnation>& met);
  // Drops meshes older than `epoch` and the dead no mesh speaks of.
  void Forget(Epoch epoch);

  void AppendTo(Digest* digest) const;

 private:
  std::map<Epoch, Mesh> meshes_;
  std::set<Incarnation> dead_;
};

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_DATA_PLANE_H_
