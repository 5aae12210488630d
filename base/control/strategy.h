// How a job trains: where its state lives and how gradients meet. Part of the view, so that ranks
// never choose apart (rule 16). A plain value.
#ifndef MUSTER_BASE_CONTROL_STRATEGY_H_
#define MUSTER_BASE_CONTROL_STRATEGY_H_

#include <cstdint>
#include <string>

namespace muster {

enum class SyncPath : uint8_t {
  kAllReduce = 1,  // collectives among the workers
  kParameterServer =
      2,  // gradients are pushed to the owners of shards, parameters pulled from them
};

// What collectives use; kAutomatic leaves it to the workers, who choose alike.
enum class SyncAlgorithm : uint8_t {
  kAutomatic,
  kRing,
  kDirect,
  kRecursiveDoubling,
  kHalvingDoubling,
  kDoubleTree,
  kHierarchical,
  kStar,
  kWindow,
  kOneShot,
};
enum class SyncTransport : uint8_t { kAutomatic, kTcp, kSharedMemory, kLibfabric, kGrpc };

struct Strategy {
  SyncPath sync = SyncPath::kAllReduce;
  // What is cut into shards (the ZeRO paper's stages): 0 nothing, every member holds everything; 1
  // optimizer state; 2 gradients as well; 3 parameters as well.
  int32_t stage = 0;
  // Of sharded state: how many members besides the owner hold each shard, where there are so many.
  // As many deaths at a time lose no step. With several groups the others hold the replicas.
  int32_t replicas = 1;
  // Hybrid sharding, of stages 1 to 3 (shard_groups.h): as many workers share a copy of the state
  // among them, or those of each host. Neither: all workers do.
  int32_t group_size = 0;
  bool host_groups = false;
  // kParameterServer: the most members that serve only, the owners of the shards. While there is
  // none, workers own them.
  int32_t servers = 0;
  // Workers own a part beside dedicated servers, so large that every member's link is equally busy.
  bool mixed = false;
  SyncAlgorithm algorithm = SyncAlgorithm::kAutomatic;
  SyncTransport transport = SyncTransport::kAutomatic;

  bool serves() const { return sync == SyncPath::kParameterServer; }
  bool sharded() const { return stage > 0 || serves(); }
  bool grouped() const { return stage > 0 && (group_size > 0 || host_groups); }
  // What of the state is in shards: workers that push and pull keep as much as in stage 2.
  int32_t sharded_stage() const { return serves() ? 2 : stage; }
  bool operator==(const Strategy&) const = default;
};

// What somebody asks for. `automatic`: the coordinator chooses path, stage and servers; the rest is
// as in `strategy`.
struct AskedStrategy {
  Strategy strategy;
  bool automatic = false;
  bool operator==(const AskedStrategy&) const = default;
};

// A change of strategy that a job's description asks for: steps after `after` are taken by
// `strategy`, or what the coordinator makes of it.
struct StrategySwitch {
  int64_t after = 0;
  Strategy strategy;
  bool automatic = false;
  bool operator==(const StrategySwitch&) const = default;
};

inline constexpr int32_t kMaxStage = 3;
inline constexpr int32_t kMaxReplicas = 8;
inline constexpr int32_t kMaxServers = 512;
inline constexpr int32_t kMaxGroupSize = 1024;

const char* Name(SyncAlgorithm algorithm);
const char* Name(SyncTransport transport);

// "replicated, ring", "stage 2, 1 replica, tcp", "stage 3 within each host",
// "up to 2 parameter servers, 1 replica": for people.
std::string ToString(const Strategy& strategy);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_STRATEGY_H_
