// The tables of a server, by name.
//
// Thread-compatible: whoever shares it holds a mutex of its own for it. Tables are handed out as
// shared pointers, so that one that is dropped lives until the last call on it is over; for their
// own locking see table.h.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_DIRECTORY_H_
#define MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_DIRECTORY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/parameter_server/core/dense_table.h"
#include "server/parameter_server/core/memory_account.h"
#include "server/parameter_server/core/sparse_table.h"
#include "server/parameter_server/core/table.h"

namespace muster {

// Exactly one is set.
struct AnyTable {
  std::shared_ptr<DenseTable> dense;
  std::shared_ptr<SparseTable> sparse;
  Table& get() const { return dense != nullptr ? static_cast<Table&>(*dense) : *sparse; }
};

class TableDirectory {
 public:
  struct Options {
    int64_t max_tables = 1024;
    TableLimits limits;  // of each
  };

  // `account` must outlive all tables.
  TableDirectory(const Options& options, MemoryAccount& account);

  struct Opened {
    AnyTable table;
    bool created = false;
  };
  // The table of this spec, which is created if there is none of its name. INVALID_ARGUMENT: the
  // spec; FAILED_PRECONDITION: there is one of another spec (the first difference is named);
  // RESOURCE_EXHAUSTED: memory, or the number of tables.
  absl::StatusOr<Opened> Open(const TableSpec& spec);

  // NOT_FOUND names the tables there are.
  absl::StatusOr<AnyTable> Find(absl::string_view name) const;
  // It is out of the directory; the caller answers its waiting calls.
  absl::StatusOr<AnyTable> Drop(absl::string_view name);
  std::vector<AnyTable> All() const;
  size_t size() const { return tables_.size(); }

 private:
  const Options options_;
  MemoryAccount& account_;
  std::map<std::string, AnyTable> tables_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_CORE_TABLE_DIRECTORY_H_
