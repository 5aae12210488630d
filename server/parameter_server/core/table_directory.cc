#include "server/parameter_server/core/table_directory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace muster {
namespace {

// Names of tables that an error lists, at most.
constexpr size_t kNamesListed = 8;

}  // namespace

TableDirectory::TableDirectory(const Options& options, MemoryAccount& account)
    : options_(options), account_(account) {}

absl::StatusOr<TableDirectory::Opened> TableDirectory::Open(const TableSpec& spec) {
  MUSTER_ASSIGN_OR_RETURN(const TableSpec resolved, Resolve(spec));
  if (const auto it = tables_.find(spec.name); it != tables_.end()) {
    const auto difference = FirstDifference(it->second.get().spec(), resolved);
    if (!difference.has_value()) return Opened{.table = it->second};
    return absl::FailedPreconditionError(
        absl::StrCat("table \"", spec.name, "\" is here with another spec: ", *difference,
                     "; attach with the spec it has, or take another name"));
  }
  if (static_cast<int64_t>(tables_.size()) >= options_.max_tables) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table \"", spec.name, "\": the server has ", tables_.size(),
                     " tables, as many as it may; drop one, or raise the limit"));
  }
  AnyTable table;
  if (resolved.dense()) {
    MUSTER_ASSIGN_OR_RETURN(table.dense, DenseTable::Create(resolved, options_.limits, account_));
  } else {
    MUSTER_ASSIGN_OR_RETURN(table.sparse, SparseTable::Create(resolved, options_.limits, account_));
  }
  tables_.emplace(spec.name, table);
  return Opened{.table = std::move(table), .created = true};
}

absl::StatusOr<AnyTable> TableDirectory::Find(absl::string_view name) const {
  const auto it = tables_.find(std::string(name));
  if (it != tables_.end()) return it->second;
  std::vector<absl::string_view> names;
  for (const auto& [known, table] : tables_) {
    if (names.size() < kNamesListed) names.push_back(known);
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no table \"", name, "\"; ",
      tables_.empty()
          ? std::string("there is none at all; create it first")
          : absl::StrCat("there ", tables_.size() == 1 ? "is " : "are ", absl::StrJoin(names, ", "),
                         tables_.size() > names.size() ? ", ..." : "")));
}

absl::StatusOr<AnyTable> TableDirectory::Drop(absl::string_view name) {
  MUSTER_ASSIGN_OR_RETURN(AnyTable table, Find(name));
  tables_.erase(std::string(name));
  return table;
}

std::vector<AnyTable> TableDirectory::All() const {
  std::vector<AnyTable> all;
  for (const auto& [name, table] : tables_) all.push_back(table);
  return all;
}

}  // namespace muster
