// Gives a communicator the model of its mesh: from a rank that knows it, a file, or by measuring.
#ifndef MUSTER_COLLECTIVES_TUNER_TUNE_H_
#define MUSTER_COLLECTIVES_TUNER_TUNE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "collectives/engine/communicator.h"
#include "collectives/tuner/measure.h"
#include "collectives/tuner/model_cache.h"

namespace muster {

// A model, and the mesh it was measured on.
struct KnownModel {
  MeshIdentity identity;
  std::shared_ptr<const LinkModel> model;
};

struct TuneOptions {
  MeshIdentity identity;  // of the mesh at hand, equal on all ranks
  MeasureOptions measure;
  std::string cache_directory;  // empty: no files
};

struct Tuned {
  std::shared_ptr<const LinkModel> model;
  std::string source;                 // one line: where it comes from
  std::vector<std::string> warnings;  // of files that could not be used
};

// All ranks call it with nothing else outstanding, and wait; then all choose by the same model.
// What a rank has, the others need not have. In this order: `known` of any rank if it is of this
// mesh; a file of any rank; `known` of a larger mesh of the same transport and hosts among which
// those of this one are (so that a death costs no measuring); measuring, after which rank 0 keeps a
// file. Files that cannot be read or written are warnings, and so is a model for which the budget
// was too short to measure the links (CheckMeasured): it is not kept. Errors are those of the mesh.
absl::StatusOr<Tuned> TuneCommunicator(Communicator& communicator, FileSystem& files,
                                       const TuneOptions& options, const KnownModel* known);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TUNER_TUNE_H_
