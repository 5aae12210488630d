#include "bench/simulate/network.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster {
namespace {

constexpr double kGbit = 1e9 / 8;

// Bandwidths and floating-point rates are the makers' figures (AWS EC2 P4d: 8 A100, 4 cards of 100
// Gbit/s, NVSwitch with 300 GB/s for each direction of a GPU, 1.55 TB/s of memory, 312 TFLOP/s in
// bf16; P5: 8 H100, 32 cards of 100 Gbit/s, 450 GB/s, 3.35 TB/s, 989 TFLOP/s). Of a wire's rate 92%
// are taken for data. Latencies and the cost of a message are assumptions of the usual size: 20 us
// through EFA's transport with a GPU's memory at both ends, 50 us through a kernel's TCP, a few
// microseconds inside a host.
std::vector<NetworkModel> Presets() {
  constexpr double kOfWire = 0.92;
  NetworkModel p4d;
  p4d.name = "p4d";
  p4d.ranks_per_host = 8;
  p4d.inside_latency_s = 3e-6;
  p4d.inside_bytes_per_s = 300e9 * kOfWire;
  p4d.cards_per_host = 4;
  p4d.between_latency_s = 20e-6;
  p4d.between_bytes_per_s = 100 * kGbit * kOfWire;
  p4d.message_s = 1e-6;
  p4d.memory_bytes_per_s = 1.55e12;
  p4d.flops_per_s = 312e12;

  NetworkModel p5 = p4d;
  p5.name = "p5";
  p5.inside_bytes_per_s = 450e9 * kOfWire;
  p5.cards_per_host = 32;
  p5.memory_bytes_per_s = 3.35e12;
  p5.flops_per_s = 989e12;

  NetworkModel ethernet = p4d;
  ethernet.name = "100g";
  ethernet.cards_per_host = 1;
  ethernet.between_latency_s = 50e-6;
  ethernet.message_s = 4e-6;
  return {p4d, p5, ethernet};
}

}  // namespace

absl::StatusOr<NetworkModel> NetworkPreset(const std::string& name) {
  for (NetworkModel& preset : Presets()) {
    if (preset.name == name) return preset;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "expected one of ", absl::StrJoin(NetworkPresetNames(), ", "), ", got \"", name, "\""));
}

std::vector<std::string> NetworkPresetNames() {
  std::vector<std::string> names;
  for (const NetworkModel& preset : Presets()) names.push_back(preset.name);
  return names;
}

}  // namespace muster
