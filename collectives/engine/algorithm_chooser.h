// What kAuto stands for in one communicator, by rule or by a model of the mesh. The same on all
// ranks that have equal options and models. Not thread-safe.
#ifndef MUSTER_COLLECTIVES_ENGINE_ALGORITHM_CHOOSER_H_
#define MUSTER_COLLECTIVES_ENGINE_ALGORITHM_CHOOSER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/dtype.h"
#include "collectives/engine/communicator.h"
#include "collectives/model/cost_model.h"

namespace muster {

class AlgorithmChooser {
 public:
  // `options` must outlive the object; `window`: that of the mesh, if its ranks share memory.
  AlgorithmChooser(const CommunicatorOptions& options, std::optional<ChoiceRequest::Window> window)
      : options_(options), window_(window), model_(options.model) {}

  // Without one the rule counts (ChooseAlgorithm; shared memory wherever there is some).
  void SetModel(std::shared_ptr<const LinkModel> model) {
    model_ = std::move(model);
    chosen_.clear();
  }

  // For calls of all ranks: a subgroup has no window. Hosts are the caller's to add.
  ChoiceRequest RequestFor(Collective collective, int64_t count, DType dtype, int size) const;

  struct Chosen {
    Algorithm algorithm = Algorithm::kDirect;
    int64_t segment_bytes = 0;
    std::string why;
  };
  // Stays until the next call.
  const Chosen& Choose(const ChoiceRequest& request);
  AlgorithmExplanation Explain(const ChoiceRequest& request);

 private:
  Chosen Decide(const ChoiceRequest& request) const;

  struct Key {
    Collective collective;
    DType dtype;
    bool in_window;
    int size;
    Rank root;
    int contributors;
    int64_t count;
    std::vector<int32_t> hosts;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.collective, key.dtype, key.in_window, key.size, key.root,
                        key.contributors, key.count, key.hosts);
    }
  };

  const CommunicatorOptions& options_;
  const std::optional<ChoiceRequest::Window> window_;
  std::shared_ptr<const LinkModel> model_;
  absl::flat_hash_map<Key, Chosen> chosen_;
};

}  // namespace muster

#endif  // MUSTER_COLLECTIVES_ENGINE_ALGORITHM_CHOOSER_H_
