// What the codes of a worker's gradients lacked so far, to be added to its next one: error feedback
// (Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, algorithm 1). What was
// sent and the residual make up the gradients, but for roundings of f32.
//
// Residuals belong to the contributor: they depend on what this worker contributed, not on who owns
// what, and stay as they are when the strategy changes. The step under way has its own, which count
// once it is applied (docs/protocol.md, rule 7); a step that is dropped leaves no trace. Pure;
// thread-compatible.
#ifndef MUSTER_WORKER_COMPRESSION_RESIDUALS_H_
#define MUSTER_WORKER_COMPRESSION_RESIDUALS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "state/range.h"

namespace muster {

class Residuals {
 public:
  // Memory for each element of the space: what is carried, and that of the step under way.
  static constexpr int kBytesAnElement = 2 * sizeof(float);

  // None.
  Residuals() = default;
  // Of a space of `count` elements, 0 at first; what is there stays. 0: none.
  void Equip(int64_t count);
  bool empty() const { return carried_.empty(); }

  // The contribution to the step under way: `gradient`, of `range`, and what is carried. Whoever
  // codes it leaves there what the codes lack. Each range once per step, all that trains.
  absl::Span<float> Contribution(Range range, absl::Span<const float> gradient);
  // The step is applied: what its codes lacked is carried from now on.
  void Commit();

  // All that is carried.
  absl::Span<const float> carried() const { return carried_; }
  // Carries what another worker, who contributes no more, carried.
  void Take(absl::Span<const float> others);
  // Carries nothing.
  void Clear();

 private:
  std::vector<float> carried_;
  std::vector<float> under_way_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_COMPRESSION_RESIDUALS_H_
