// Where the coordinator's decisions are written down before they are spoken of.
//
// Implementations are called under the coordinator's lock, one call at a time, and need no lock of
// their own.
#ifndef MUSTER_SERVER_RPC_RECORD_STORE_H_
#define MUSTER_SERVER_RPC_RECORD_STORE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "server/core/persistent.h"

namespace muster {

// A job's description as the client gave it and as workers get it; serialised JobDescriptions.
struct StoredDescription {
  std::string submitted;
  std::string resolved;
  int64_t submitted_at_unix_ms = 0;
};

class RecordStore {
 public:
  virtual ~RecordStore() = default;

  // Everything written so far, folded.
  virtual absl::StatusOr<PersistentState> Load(const PersistentLimits& limits) = 0;
  virtual absl::StatusOr<std::map<JobId, StoredDescription>> LoadDescriptions() = 0;

  // Durable once it returns OK. After an error the coordinator stops: it must not act on what it
  // could not write down.
  virtual absl::Status Append(const PersistentRecord& record) = 0;
  virtual absl::Status PutDescription(const JobId& job, const StoredDescription& description) = 0;
  // Nothing if there is none.
  virtual absl::Status DropDescription(const JobId& job) = 0;
};

// Keeps everything for as long as the object lives: a coordinator that is started again over the
// same object goes on where it was.
class MemoryStore final : public RecordStore {
 public:
  absl::StatusOr<PersistentState> Load(const PersistentLimits& limits) override {
    limits_ = limits;
    return state_;
  }
  absl::StatusOr<std::map<JobId, StoredDescription>> LoadDescriptions() override {
    return descriptions_;
  }
  absl::Status Append(const PersistentRecord& record) override {
    Apply(record, limits_, &state_);
    return absl::OkStatus();
  }
  absl::Status PutDescription(const JobId& job, const StoredDescription& description) override {
    descriptions_[job] = description;
    return absl::OkStatus();
  }
  absl::Status DropDescription(const JobId& job) override {
    descriptions_.erase(job);
    return absl::OkStatus();
  }

 private:
  PersistentLimits limits_;
  PersistentState state_;
  std::map<JobId, StoredDescription> descriptions_;
};

}  // namespace muster

#endif  // MUSTER_SERVER_RPC_RECORD_STORE_H_
