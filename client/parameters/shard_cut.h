// How a table is cut over servers: contiguous ranges, as equal as the unit allows, in the order of
// the servers. Pure; thread-safe.
#ifndef MUSTER_CLIENT_PARAMETERS_SHARD_CUT_H_
#define MUSTER_CLIENT_PARAMETERS_SHARD_CUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "muster/v1/parameter_server.pb.h"
#include "state/shard_map.h"

namespace muster {

// The map of a space of `count` elements or rows, whose shards begin at multiples of `unit` and
// differ by one unit at most. INVALID_ARGUMENT if a server would have nothing.
absl::StatusOr<ShardMap> CutEvenly(int64_t count, int64_t unit, int servers);

// The map of a table. INVALID_ARGUMENT names what is wrong with its shape.
absl::StatusOr<ShardMap> CutTable(const v1::TableSpec& spec, int servers);

// The table as one server is to have it.
v1::TableSpec SpecOfPart(const v1::TableSpec& spec, Range part);

}  // namespace muster

#endif  // MUSTER_CLIENT_PARAMETERS_SHARD_CUT_H_
