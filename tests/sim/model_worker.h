// A worker for simulation: the production WorkerCore inside a modelled shell.
//
// The shell's slow work (quiescing, connecting, reducing, applying, learning, writing) is a set of
// operations that become possible and that the driver carries out when it likes: the simulator
// after a random delay, the explorer in every order. A copyable value; not thread-safe.
#ifndef MUSTER_TESTS_SIM_MODEL_WORKER_H_
#define MUSTER_TESTS_SIM_MODEL_WORKER_H_

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/data_plane.h"
#include "worker/core/worker_core.h"

namespace muster::sim {

enum class OpKind : uint8_t {
  kQuiesce,    // everything older than the newest Quiesce has stopped
  kConnect,    // all links of the mesh are up
  kBreak,      // a peer's end has been closed
  kMakeState,  // fresh start or roll-forward
  kMove,       // every range of its part has come
  kSealMove,   // and every member has its own
  kPrepare,    // the step's gradients are reduced here
  kForm,       // the record has arrived here
  kApply,      // the update is done
  kFinalWork,
  kLearn,       // another piece from the source
  kLearnUpTo,   // what is buffered is applied
  kLearnBreak,  // the source is gone
  kSeal,        // every member rests in the same state
  kKeep,        // what a worker without a coordinator keeps is written
  kDurable,     // checkpoint files are synced
  kName,        // and have their name
};
const char* Name(OpKind kind);

struct Op {
  OpKind kind = OpKind::kQuiesce;
  Epoch epoch = 0;
  Step step = 0;
  auto operator<=>(const Op&) const = default;
};

// Checkpoint directories, by path. Shared storage.
struct Disk {
  std::map<std::string, ModelState> files;
  std::map<std::string, bool> named;
  std::map<std::string, std::set<int32_t>> parts;  // that are durable
};

class ModelWorker;

// What lies outside a worker.
class Fleet {
 public:
  virtual ~Fleet() = default;
  // nullptr if no such process lives.
  virtual const ModelWorker* Find(Incarnation incarnation) const = 0;
  DataPlane plane;
  Disk disk;
  Checker checker;
  // How many states were kept without a coordinator: not sealed, and sealed.
  std::array<int64_t, 2> kept = {0, 0};
};

struct ModelOptions {
  Step total_steps = 2;
  Step checkpoint_every = 0;      // 0: never
  std::vector<Step> pause_after;  // changes of strategy that the job asks for
  bool atomic_apply = false;      // apply together with forming the record
  // What workers tell of the job and of meshes, which are another each time; absent: nothing.
  std::optional<StateSize> state_size;
  std::optional<uint64_t> link_seed;
  ProtocolRules rules;
};

// What the mesh of a view is measured to be.
LinkSpeeds LinksOf(uint64_t link_seed, const View& view);

class ModelWorker {
 public:
  ModelWorker(WorkerOptions worker_options, ModelOptions options);

  // Hands the event to the core and begins what it asks for. Returns what concerns the outside:
  // SendStatus, SendSuspicion, SetTimer, CancelTimer, Rejoin, Exit, Log.
  worker::Actions Feed(const worker::Event& event, absl::Time now, Fleet& fleet);

  // What the shell could finish now.
  std::vector<Op> Enabled(const Fleet& fleet) const;
  // Requires: enabled.
  worker::Actions Execute(const Op& op, absl::Time now, Fleet& fleet);
  // A deadline of the data plane passed while `culprit` (or nobody in particular) kept it waiting.
  worker::Actions BreakMesh(Epoch epoch, std::optional<Rank> culprit, absl::Time now, Fleet& fleet);

  const WorkerCore& core() const { return core_; }
  Incarnation incarnation() const { return incarnation_; }
  const std::optional<ModelState>& state() const { return state_; }
  // Of the mesh that is being connected or used.
  const View* mesh_view() const { return mesh_.has_value() ? &mesh_->view : nullptr; }
  // In a view whose ranges are not all where they are to be.
  bool moving() const { return move_.has_value() || move_seal_.has_value(); }
  bool mesh_connected() const { return mesh_.has_value() && mesh_->connected; }
  void AppendTo(Digest* digest) const;

 private:
  // A reduced gradient: what the update will mix into the state.
  struct Gradient {
    Step step = 0;
    Epoch epoch = 0;
    uint64_t value = 0;
    uint64_t samples = 0;
  };
  struct OwnMesh {
    View view;
    bool connected = false;
    bool broken = false;
    bool running = false;
    Step at = 0;  // step in the works
    bool prepared = false;
    bool formed = false;
  };

  void Absorb(worker::Actions actions, Fleet& fleet, worker::Actions* out);
  bool Begin(const worker::Action& action, Fleet& fleet);
  void Enter(OwnMesh& mesh, Step step, Fleet& fleet);
  void Apply(const CommitRecord& record, const StateTag& tag, Fleet& fleet);
  std::optional<worker::Event> Finish(const Op& op, Fleet& fleet);
  std::optional<worker::Event> TellResources(const Op& op) const;
  worker::Event FinishLearning(Fleet& fleet);
  // Everything of the state that the view gives it, or has from it.
  void HoldPart(const View& view);
  bool HasPart(const View& view) const;
  std::set<size_t> PartOf(const View& view) const;
  void CheckHoldings(const WorkerStatus& status, Fleet& fleet) const;
  void BeginMove(const worker::MoveRanges& move, Fleet& fleet);
  void FinishMove(const worker::MoveRanges& move, Fleet& fleet);
  void WritePart(const View& view);
  worker::Event FinishPart(Fleet& fleet);
  std::optional<worker::Event> FinishNaming(Fleet& fleet);
  void Stop(Epoch before, Fleet& fleet);
  void AddMeshOps(const OwnMesh& mesh, const Fleet& fleet, std::vector<Op>* ops) const;

  Incarnation incarnation_;
  ModelOptions options_;
  WorkerCore core_;
  std::optional<ModelState> state_;
  // What of the state is really here: all of it, or shards of views.
  bool whole_ = false;
  std::map<Epoch, std::set<size_t>> shards_;
  std::optional<worker::MoveRanges> move_;
  std::optional<Epoch> move_seal_;
  std::optional<Gradient> prepared_;
  std::optional<OwnMesh> mesh_;
  std::optional<OwnMesh> old_mesh_;  // not yet quiesced; only without rule 1
  std::optional<Epoch> quiesce_;
  std::optional<worker::StartFresh> fresh_;
  std::optional<worker::RollForward> roll_;
  std::optional<worker::ApplyStep> applying_;
  std::optional<worker::DoFinalWork> final_work_;
  std::optional<worker::StartLearning> learning_;
  std::optional<ModelState> learned_;
  bool learned_reported_ = false;
  std::optional<StateTag> learn_up_to_;
  std::optional<worker::SealAmongMembers> sealing_;
  std::optional<worker::KeepState> keeping_;
  // The part of a checkpoint that is on its way to the disk.
  struct Writing {
    ModelState state;
    Incarnation publisher;
    Epoch view = 0;
    int32_t part = 0;
    int32_t parts = 1;
  };
  std::optional<Writing> writing_;
  // The one that was written last.
  struct Written {
    StateTag tag;
    std::string path;
    int32_t parts = 0;
  };
  Written written_;
  std::optional<StateTag> naming_;
};

}  // namespace muster::sim

#endif  // MUSTER_TESTS_SIM_MODEL_WORKER_H_
