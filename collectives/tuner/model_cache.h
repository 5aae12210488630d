// Link models kept in files, so that the next start of the same mesh need not measure. Stateless;
// thread-safe where the file system is.
#ifndef MUSTER_COLLECTIVES_TUNER_MODEL_CACHE_H_
#define MUSTER_COLLECTIVES_TUNER_MODEL_CACHE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "collectives/model/link_model.h"

namespace muster {

// What a model belongs to.
struct MeshIdentity {
  std::string transport;           // as Transport::name() says
  std::string provider;            // of libfabric, else empty
  std::vector<std::string> hosts;  // of each rank
  bool any_order = false;          // which algorithms were measured
  std::string software_version;
  bool operator==(const MeshIdentity&) const = default;
};

// One line. Hosts count by how many ranks each has, in whatever order.
std::string Describe(const MeshIdentity& identity);

// The file of a mesh in the directory.
std::string ModelPath(const std::string& directory, const MeshIdentity& identity);

// NOT_FOUND: there is none. DATA_LOSS: there is one that is damaged, another mesh's, or not
// measured (CheckMeasured).
absl::StatusOr<LinkModel> LoadModel(FileSystem& files, const std::string& directory,
                                    const MeshIdentity& identity);
// Makes the directory if it is missing. FAILED_PRECONDITION: the model is not measured; no file is
// written.
absl::Status StoreModel(FileSystem& files, const std::string& directory,
                        const MeshIdentity& identity, const LinkModel& model);

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_TUNER_MODEL_CACHE_H_
