// A pull, as the chunks it is answered with. What it sends of a dense table is the table's own
// memory, pinned until gRPC has let go of it; of a sparse one it is a copy.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_PULL_CHUNKS_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_PULL_CHUNKS_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "server/parameter_server/rpc/table_convert.h"
#include "server/parameter_server/rpc/table_host.h"

namespace muster {

// Most bytes of values, as f32, in one pull of a sparse table.
inline constexpr int64_t kMaxSparsePullBytes = int64_t{64} << 20;

struct PullChunk {
  Version version = 0;
  int64_t left = 0;  // elements or rows that come after it
  std::vector<absl::Span<const float>> pieces;
  std::shared_ptr<const void> owner;  // of the pieces' memory
};

// As a TransferResponse.
grpc::ByteBuffer EncodeChunk(const PullChunk& chunk, DType type);

// Thread-compatible; fetched from within calls of the host, one at a time.
class PullChunks {
 public:
  // INVALID_ARGUMENT and OUT_OF_RANGE: what the table cannot be asked for.
  static absl::StatusOr<std::unique_ptr<PullChunks>> Create(std::shared_ptr<TableHost> host,
                                                            PullHeader header);

  struct Fetched {
    std::vector<PullChunk> chunks;
    bool more = false;  // Fetch again
  };
  // The next chunks, or the wait before them.
  absl::StatusOr<std::variant<Wait, Fetched>> Fetch(const TableHost::Access& access);

 private:
  PullChunks(std::shared_ptr<TableHost> host, PullHeader header)
      : host_(std::move(host)), header_(std::move(header)) {}
  absl::StatusOr<std::variant<Wait, Fetched>> FetchDense(const TableHost::Access& access);
  absl::StatusOr<std::variant<Wait, Fetched>> FetchSparse(const TableHost::Access& access);

  const std::shared_ptr<TableHost> host_;
  PullHeader header_;
  Range left_;  // dense
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_PULL_CHUNKS_H_
