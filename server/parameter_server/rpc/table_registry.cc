#include "server/parameter_server/rpc/table_registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "server/parameter_server/core/table_spec.h"
#include "server/parameter_server/rpc/table_convert.h"

namespace muster {

TableRegistry::TableRegistry(const TableDirectory::Options& options,
                             std::shared_ptr<SharedAccount> account,
                             std::shared_ptr<SharedAccount> answers, std::shared_ptr<WorkPool> pool)
    : account_(std::move(account)),
      answers_(std::move(answers)),
      pool_(std::move(pool)),
      directory_(options, *account_) {}

absl::StatusOr<TableRegistry::Opened> TableRegistry::Open(const v1::TableSpec& spec) {
  MUSTER_ASSIGN_OR_RETURN(const TableSpec converted, TableSpecFromProto(spec));
  absl::MutexLock open_lock(&open_mutex_);
  MUSTER_ASSIGN_OR_RETURN(TableDirectory::Opened opened, directory_.Open(converted));
  absl::MutexLock lock(&mutex_);
  if (!closed_.ok()) return closed_;
  std::shared_ptr<TableHost>& host = hosts_[converted.name];
  if (opened.created) {
    host = std::make_shared<TableHost>(std::move(opened.table), spec, account_, answers_, pool_);
  }
  return Opened{.host = host, .created = opened.created};
}

absl::StatusOr<std::shared_ptr<TableHost>> TableRegistry::Find(absl::string_view name) const {
  constexpr size_t kNamed = 10;
  absl::MutexLock lock(&mutex_);
  const auto found = hosts_.find(std::string(name));
  if (found != hosts_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [other, host] : hosts_) {
    if (names.size() == kNamed) {
      names.push_back("...");
      break;
    }
    names.push_back(other);
  }
  return absl::NotFoundError(
      absl::StrCat("there is no table \"", TextForPeople(name, TableSpec::kMaxName), "\" here; ",
                   names.empty() ? "there is none at all: make it with CreateTable"
                                 : absl::StrCat("there are: ", absl::StrJoin(names, ", "))));
}

absl::Status TableRegistry::Drop(absl::string_view name) {
  absl::MutexLock open_lock(&open_mutex_);
  MUSTER_ASSIGN_OR_RETURN(const std::shared_ptr<TableHost> host, Find(name));
  MUSTER_RETURN_IF_ERROR(directory_.Drop(name).status());
  {
    absl::MutexLock lock(&mutex_);
    hosts_.erase(host->name());
  }
  host->Close(absl::NotFoundError(absl::StrCat("table \"", name, "\" was dropped")));
  return absl::OkStatus();
}

std::vector<std::shared_ptr<TableHost>> TableRegistry::All() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<TableHost>> all;
  for (const auto& [name, host] : hosts_) all.push_back(host);
  return all;
}

void TableRegistry::CloseAll(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    closed_ = reason;
  }
  for (const std::shared_ptr<TableHost>& host : All()) host->Close(reason);
}

}  // namespace muster
