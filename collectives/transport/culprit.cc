#include "collectives/transport/culprit.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace muster {
namespace {

constexpr char kPayloadUrl[] = "muster/culprit-rank";

}  // namespace

absl::Status WithCulprit(absl::Status status, std::optional<Rank> rank) {
  if (rank.has_value()) status.SetPayload(kPayloadUrl, absl::Cord(absl::StrCat(*rank)));
  return status;
}

std::optional<Rank> CulpritOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  Rank rank = -1;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) return std::nullopt;
  return rank;
}

}  // namespace muster
