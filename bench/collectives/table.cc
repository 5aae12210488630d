#include "bench/collectives/table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster::bench {
namespace {

uint64_t BytesOf(const Row& row) {
  return WholeCount(row.trial, row.ranks) * SizeOf(row.trial.type);
}

// GB/s.
double Algbw(const Row& row, const Measurement& measured) {
  return static_cast<double>(BytesOf(row)) / measured.time_us / 1e3;
}
double Busbw(const Row& row, const Measurement& measured) {
  return Algbw(row, measured) * BusFactor(row.trial.kind, row.ranks);
}

std::string Columns(const Row& row, const std::optional<Measurement>& measured) {
  if (!measured.has_value()) {
    return absl::StrFormat(" %10s %8s %8s %6s", "N/A", "N/A", "N/A", "N/A");
  }
  return absl::StrFormat(" %10.1f %8.3f %8.3f %6d", measured->time_us, Algbw(row, *measured),
                         Busbw(row, *measured), measured->wrong);
}

void AddJson(const Row& row, const std::optional<Measurement>& measured, const char* prefix,
             nlohmann::json* to) {
  if (!measured.has_value()) return;
  (*to)[absl::StrCat(prefix, "time_us")] = measured->time_us;
  (*to)[absl::StrCat(prefix, "algbw_gbps")] = Algbw(row, *measured);
  (*to)[absl::StrCat(prefix, "busbw_gbps")] = Busbw(row, *measured);
  (*to)[absl::StrCat(prefix, "errors")] = measured->wrong;
}

}  // namespace

std::string HeaderLines() {
  return absl::StrFormat(
      "# %-8s %-6s %-18s %10s %12s %5s %7s %4s %s%s\n"
      "# %-8s %-6s %-18s %10s %12s %5s %7s %4s %10s %8s %8s %6s %10s %8s %8s %6s\n",
      "", "", "", "size", "count", "type", "redop", "root", "            out-of-place            ",
      "             in-place", "impl", "via", "algorithm", "(B)", "(elements)", "", "", "",
      "time(us)", "algbw", "busbw", "#wrong", "time(us)", "algbw", "busbw", "#wrong");
}

std::string Line(const Row& row) {
  const std::string redop = Reduces(row.trial.kind) ? Name(row.trial.redop) : "none";
  const std::string root = HasRoot(row.trial.kind) ? absl::StrCat(row.trial.root) : "-1";
  return absl::StrFormat("  %-8s %-6s %-18s %10d %12d %5s %7s %4s%s%s\n", row.implementation,
                         row.transport, row.variant, BytesOf(row), row.trial.count,
                         Name(row.trial.type), redop, root, Columns(row, row.out_of_place),
                         Columns(row, row.in_place));
}

nlohmann::json ToJson(const Row& row) {
  nlohmann::json json = {{"collective", Name(row.trial.kind)},
                         {"implementation", row.implementation},
                         {"transport", row.transport},
                         {"algorithm", row.variant},
                         {"ranks", row.ranks},
                         {"dtype", Name(row.trial.type)},
                         {"bytes", BytesOf(row)},
                         {"count", row.trial.count}};
  if (Reduces(row.trial.kind)) json["redop"] = Name(row.trial.redop);
  if (HasRoot(row.trial.kind)) json["root"] = row.trial.root;
  AddJson(row, row.out_of_place, "", &json);
  AddJson(row, row.in_place, "in_place_", &json);
  return json;
}

}  // namespace muster::bench
