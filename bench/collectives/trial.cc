#include "bench/collectives/trial.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace muster::bench {
namespace {

struct KindRow {
  const char* name;
  bool reduces;
  bool has_root;
  bool in_place;
  bool in_parts;  // `count` is of one rank's part
};

// In the order of Kind.
constexpr KindRow kKinds[] = {
    {"all-reduce", true, false, true, false},     {"reduce-scatter", true, false, true, true},
    {"all-gather", false, false, true, true},     {"broadcast", false, true, true, false},
    {"reduce", true, true, true, false},          {"gather", false, true, true, true},
    {"scatter", false, true, true, true},         {"all-to-all", false, false, false, true},
    {"send-receive", false, false, false, false}, {"barrier", false, false, false, false},
};
constexpr const char* kTypes[] = {"f32", "f64", "f16", "bf16", "i32"};
constexpr size_t kSizes[] = {4, 8, 2, 2, 4};
constexpr const char* kRedops[] = {"sum", "average", "min", "max"};

const KindRow& RowOf(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

template <typename Enum, size_t n>
std::optional<Enum> Find(const char* const (&names)[n], const std::string& name) {
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

const char* Name(Kind kind) { return RowOf(kind).name; }
const char* Name(ElementType type) { return kTypes[static_cast<size_t>(type)]; }
const char* Name(Redop redop) { return kRedops[static_cast<size_t>(redop)]; }

std::optional<Kind> KindFromName(const std::string& name) {
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (name == kKinds[i].name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}
std::optional<ElementType> TypeFromName(const std::string& name) {
  return Find<ElementType>(kTypes, name);
}
std::optional<Redop> RedopFromName(const std::string& name) { return Find<Redop>(kRedops, name); }

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const KindRow& row : kKinds) names.emplace_back(row.name);
  return names;
}
std::vector<std::string> TypeNames() { return {std::begin(kTypes), std::end(kTypes)}; }
std::vector<std::string> RedopNames() { return {std::begin(kRedops), std::end(kRedops)}; }

size_t SizeOf(ElementType type) { return kSizes[static_cast<size_t>(type)]; }
bool Reduces(Kind kind) { return RowOf(kind).reduces; }
bool HasRoot(Kind kind) { return RowOf(kind).has_root; }
bool WorksInPlace(Kind kind) { return RowOf(kind).in_place; }

uint64_t CountOf(Kind kind, ElementType type, int ranks, uint64_t bytes) {
  if (kind == Kind::kBarrier) return 0;
  const uint64_t parts = RowOf(kind).in_parts ? static_cast<uint64_t>(ranks) : 1;
  return std::max<uint64_t>(1, bytes / SizeOf(type) / parts);
}

uint64_t WholeCount(const Trial& trial, int ranks) {
  return trial.count * (RowOf(trial.kind).in_parts ? static_cast<uint64_t>(ranks) : 1);
}

uint64_t InputCount(const Trial& trial, int rank, int ranks) {
  switch (trial.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kSendReceive:
    case Kind::kAllGather:
    case Kind::kGather:
      return trial.count;
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
      return WholeCount(trial, ranks);
    case Kind::kBroadcast:
    case Kind::kScatter:
      return rank == trial.root ? WholeCount(trial, ranks) : 0;
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

uint64_t OutputCount(const Trial& trial, int rank, int ranks) {
  switch (trial.kind) {
    case Kind::kAllReduce:
    case Kind::kBroadcast:
    case Kind::kSendReceive:
    case Kind::kReduceScatter:
    case Kind::kScatter:
      return trial.count;
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return WholeCount(trial, ranks);
    case Kind::kReduce:
    case Kind::kGather:
      return rank == trial.root ? WholeCount(trial, ranks) : 0;
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

uint64_t InputOffsetInPlace(const Trial& trial, int rank) {
  const bool own_part =
      trial.kind == Kind::kAllGather || (trial.kind == Kind::kGather && rank == trial.root);
  return own_part ? static_cast<uint64_t>(rank) * trial.count : 0;
}

uint64_t OutputOffsetInPlace(const Trial& trial, int rank) {
  const bool own_part =
      trial.kind == Kind::kReduceScatter || (trial.kind == Kind::kScatter && rank == trial.root);
  return own_part ? static_cast<uint64_t>(rank) * trial.count : 0;
}

double BusFactor(Kind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case Kind::kAllReduce:
      return 2 * (n - 1) / n;
    case Kind::kReduceScatter:
    case Kind::kAllGather:
    case Kind::kGather:
    case Kind::kScatter:
    case Kind::kAllToAll:
      return (n - 1) / n;
    case Kind::kBroadcast:
    case Kind::kReduce:
    case Kind::kSendReceive:
      return 1;
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

std::string Format(const Trial& trial) {
  std::ostringstream line;
  line << Name(trial.kind) << ' ' << Name(trial.type) << ' ' << Name(trial.redop) << ' '
       << trial.count << ' ' << trial.root << ' ' << trial.in_place << ' ' << trial.iterations
       << ' ' << trial.variant;
  return line.str();
}

std::optional<Trial> ParseTrial(const std::string& line) {
  std::istringstream words(line);
  std::string kind, type, redop, variant;
  Trial trial;
  words >> kind >> type >> redop >> trial.count >> trial.root >> trial.in_place >>
      trial.iterations >> variant;
  const auto known_kind = KindFromName(kind);
  const auto known_type = TypeFromName(type);
  const auto known_redop = RedopFromName(redop);
  if (!words || !known_kind || !known_type || !known_redop || trial.iterations < 1 ||
      variant.size() >= sizeof(trial.variant)) {
    return std::nullopt;
  }
  trial.kind = *known_kind;
  trial.type = *known_type;
  trial.redop = *known_redop;
  std::snprintf(trial.variant, sizeof(trial.variant), "%s", variant.c_str());
  return trial;
}

}  // namespace muster::bench
