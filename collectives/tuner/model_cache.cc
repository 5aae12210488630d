#include "collectives/tuner/model_cache.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr int64_t kMostFileBytes = 1 << 20;

// The first two lines of a file; its text follows.
std::string Header(const MeshIdentity& identity, absl::string_view text) {
  return absl::StrFormat("mesh %s\nchecksum %016x\n", Describe(identity), StableHash(text));
}

}  // namespace

std::string Describe(const MeshIdentity& identity) {
  std::map<std::string, int> ranks_of;
  for (const std::string& host : identity.hosts) ++ranks_of[host];
  std::string text =
      absl::StrCat(identity.transport, identity.provider.empty() ? "" : " ", identity.provider,
                   identity.any_order ? " any-order" : "", " muster-", identity.software_version);
  for (const auto& [host, ranks] : ranks_of) absl::StrAppend(&text, " ", host, ":", ranks);
  return text;
}

std::string ModelPath(const std::string& directory, const MeshIdentity& identity) {
  return JoinPath(directory, absl::StrFormat("links-%016x.txt", StableHash(Describe(identity))));
}

absl::StatusOr<LinkModel> LoadModel(FileSystem& files, const std::string& directory,
                                    const MeshIdentity& identity) {
  const std::string path = ModelPath(directory, identity);
  absl::StatusOr<std::string> file = ReadFile(files, path, kMostFileBytes);
  if (!file.ok()) return file.status();
  const auto damaged = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(path, ": ", std::string(why)));
  };
  absl::string_view text = *file;
  // Behind the second line.
  const size_t first = text.find('\n');
  const size_t second = first == text.npos ? text.npos : text.find('\n', first + 1);
  if (second == text.npos) return damaged("too short");
  const absl::string_view header = text.substr(0, second + 1);
  text.remove_prefix(second + 1);
  if (header != Header(identity, text)) {
    return damaged("its first lines are not those of this mesh and of what follows");
  }
  absl::StatusOr<LinkModel> model = LinkModelFromText(text);
  if (!model.ok()) return damaged(model.status().message());
  if (model->transport != identity.transport ||
      model->ranks != static_cast<int>(identity.hosts.size())) {
    return damaged("the model is that of another mesh");
  }
  if (const absl::Status measured = CheckMeasured(*model); !measured.ok()) {
    return damaged(measured.message());
  }
  return model;
}

absl::Status StoreModel(FileSystem& files, const std::string& directory,
                        const MeshIdentity& identity, const LinkModel& model) {
  MUSTER_RETURN_IF_ERROR(Annotate(CheckMeasured(model), "no model is kept"));
  MUSTER_RETURN_IF_ERROR(files.CreateDirectories(directory));
  const std::string text = ToText(model);
  return ReplaceFileAtomically(files, ModelPath(directory, identity),
                               absl::StrCat(Header(identity, text), text));
}

}  // namespace muster
