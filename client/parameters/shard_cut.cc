#include "client/parameters/shard_cut.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "state/layout.h"

namespace muster {
namespace {

// Where a server's own default is taken.
constexpr int64_t kDefaultBucketElements = int64_t{1} << 18;

}  // namespace

absl::StatusOr<ShardMap> CutEvenly(int64_t count, int64_t unit, int servers) {
  const int64_t units = (count + unit - 1) / unit;
  if (servers < 1 || units < servers) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a table of %d, in units of %d, cannot be cut over %d servers: name at most %d", count,
        unit, servers, units));
  }
  std::vector<Shard> shards;
  int64_t begin = 0;
  for (int server = 0; server < servers; ++server) {
    const int64_t end = std::min(count, units * (server + 1) / servers * unit);
    shards.push_back({.range = {begin, end - begin}, .holders = {server}});
    begin = end;
  }
  return ShardMap::Create(count, servers, std::move(shards));
}

absl::StatusOr<ShardMap> CutTable(const v1::TableSpec& spec, int servers) {
  if (spec.has_sparse()) return CutEvenly(spec.sparse().rows(), 1, servers);
  std::vector<TensorSpec> tensors;
  for (const v1::DenseTensor& from : spec.dense().tensors()) {
    TensorSpec& tensor = tensors.emplace_back();
    tensor.name = from.name();
    tensor.shape.assign(from.shape().begin(), from.shape().end());
    tensor.block = from.block();
  }
  const int64_t bucket_elements =
      spec.dense().bucket_elements() == 0 ? kDefaultBucketElements : spec.dense().bucket_elements();
  MUSTER_ASSIGN_OR_RETURN(const Layout layout, Layout::Create(std::move(tensors), bucket_elements));
  return CutEvenly(layout.padded_count(), Layout::kAlignment, servers);
}

v1::TableSpec SpecOfPart(const v1::TableSpec& spec, Range part) {
  v1::TableSpec result = spec;
  if (result.has_sparse()) {
    result.mutable_sparse()->set_offset(part.offset);
    result.mutable_sparse()->set_count(part.count);
  } else {
    result.mutable_dense()->set_offset(part.offset);
    result.mutable_dense()->set_count(part.count);
  }
  return result;
}

}  // namespace muster
