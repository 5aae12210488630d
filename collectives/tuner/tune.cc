#include "collectives/tuner/tune.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// What a rank has to offer; the greatest of all ranks is taken. Wire values.
enum Offer : int64_t { kNothing = 0, kOfLargerMesh = 1, kInFile = 2, kKnown = 3 };

bool Contains(const MeshIdentity& larger, const MeshIdentity& smaller) {
  std::vector<std::string> all = larger.hosts, some = smaller.hosts;
  std::sort(all.begin(), all.end());
  std::sort(some.begin(), some.end());
  return larger.transport == smaller.transport && larger.provider == smaller.provider &&
         larger.any_order == smaller.any_order &&
         std::includes(all.begin(), all.end(), some.begin(), some.end());
}

std::string SourceText(Offer offer, Rank rank, const LinkModel& model) {
  switch (offer) {
    case kKnown:
      return absl::StrCat("known to rank ", rank);
    case kInFile:
      return absl::StrCat("from a file of rank ", rank);
    case kOfLargerMesh:
      return absl::StrCat("measured with ", model.ranks, " ranks, known to rank ", rank);
    case kNothing:
      break;
  }
  return "";
}

}  // namespace

absl::StatusOr<Tuned> TuneCommunicator(Communicator& communicator, FileSystem& files,
                                       const TuneOptions& options, const KnownModel* known) {
  const int size = communicator.world_size();
  MUSTER_CHECK_EQ(options.identity.hosts.size(), static_cast<size_t>(size));
  Tuned tuned;
  int64_t own = kNothing;
  std::string text;
  const bool has_known = known != nullptr && known->model != nullptr;
  if (has_known && Describe(known->identity) == Describe(options.identity)) {
    own = kKnown;
    text = ToText(*known->model);
  } else if (!options.cache_directory.empty()) {
    const absl::StatusOr<LinkModel> kept =
        LoadModel(files, options.cache_directory, options.identity);
    if (kept.ok()) {
      own = kInFile;
      text = ToText(*kept);
    } else if (!absl::IsNotFound(kept.status())) {
      tuned.warnings.emplace_back(kept.status().message());
    }
  }
  if (own == kNothing && has_known && Contains(known->identity, options.identity)) {
    own = kOfLargerMesh;
    text = ToText(*known->model);
  }

  std::vector<int64_t> offers(static_cast<size_t>(size));
  CollectiveOptions waiting;
  waiting.label = "link model";
  waiting.caller_waits = true;
  waiting.algorithm = Algorithm::kDirect;
  const std::vector<int64_t> ones(static_cast<size_t>(size), 1);
  MUSTER_RETURN_IF_ERROR(
      communicator.AllGather(&own, offers.data(), ones, DType::kI64, waiting).Wait());
  const auto best = std::max_element(offers.begin(), offers.end());
  if (*best != kNothing) {
    const auto from = static_cast<Rank>(best - offers.begin());
    MUSTER_ASSIGN_OR_RETURN(text, BroadcastText(communicator, from, text));
    MUSTER_ASSIGN_OR_RETURN(LinkModel model, LinkModelFromText(text));
    tuned.source = SourceText(static_cast<Offer>(*best), from, model);
    tuned.model = std::make_shared<const LinkModel>(std::move(model));
  } else {
    const absl::Time start = absl::Now();
    MUSTER_ASSIGN_OR_RETURN(LinkModel model, MeasureLinks(communicator, options.measure));
    tuned.source =
        absl::StrFormat("measured in %d ms", absl::ToInt64Milliseconds(absl::Now() - start));
    tuned.model = std::make_shared<const LinkModel>(std::move(model));
    if (communicator.rank() == 0 && !options.cache_directory.empty()) {
      const absl::Status stored =
          StoreModel(files, options.cache_directory, options.identity, *tuned.model);
      if (!stored.ok()) tuned.warnings.emplace_back(stored.message());
    }
  }
  communicator.SetModel(tuned.model);
  return tuned;
}

}  // namespace muster
