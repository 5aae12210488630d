// Gives each view's mesh its model, so that the algorithm `auto` is the fastest there, and logs
// what that is and why.
//
// Thread-compatible: the job's thread's. What a mesh was measured to be stays known for those of
// later views.
#ifndef MUSTER_WORKER_RUNTIME_MESH_TUNER_H_
#define MUSTER_WORKER_RUNTIME_MESH_TUNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/control/messages.h"
#include "base/file.h"
#include "base/job_spec.h"
#include "base/log.h"
#include "collectives/engine/communicator.h"
#include "collectives/tuner/tune.h"

namespace muster {

// The host of each member, as numbers.
std::vector<int32_t> HostsOf(const View& view);

class MeshTuner {
 public:
  // `cache_directory`: of kept models; empty: none. The others must outlive the object.
  MeshTuner(std::string cache_directory, FileSystem& files, Logger& logger)
      : cache_directory_(std::move(cache_directory)), files_(files), logger_(logger) {}

  // All members call it when the mesh is up; `provider` is libfabric's, if it is one. Does nothing
  // where the job names its algorithm. Errors are those of the mesh.
  absl::Status Tune(Communicator& communicator, const View& view, const CommunicationSpec& spec,
                    const std::string& provider);

  // What the mesh tuned last is capable of with vectors of that size; none if that was not
  // measured.
  std::optional<LinkSpeeds> SpeedsFor(int64_t bytes) const;

 private:
  const std::string cache_directory_;
  FileSystem& files_;
  Logger& logger_;
  std::optional<KnownModel> known_;
  std::shared_ptr<const LinkModel> in_use_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_RUNTIME_MESH_TUNER_H_
