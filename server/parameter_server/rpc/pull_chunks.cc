#include "server/parameter_server/rpc/pull_chunks.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/float16.h"
#include "base/status_macros.h"
#include "muster/v1/parameter_server.pb.h"
#include "proto/rpc/bulk.h"
#include "proto/rpc/payload_frame.h"

namespace muster {
namespace {

constexpr int64_t kChunkElements = kBulkChunkBytes / static_cast<int64_t>(sizeof(float));

// Keeps the memory that a pull shows.
class Pin {
 public:
  Pin(std::shared_ptr<TableHost> host, PinId id) : host_(std::move(host)), id_(id) {}
  ~Pin() {
    // The host goes with the call: it may have no other owner.
    TableHost* const host = host_.get();
    host->Run([owner = std::move(host_), id = id_](const TableHost::Access& access) {
      access.table.dense->Release(id);
      return std::nullopt;
    });
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  std::shared_ptr<TableHost> host_;
  const PinId id_;
};

// Values of a sparse pull, in memory of the account.
struct CopiedRows {
  CopiedRows(std::shared_ptr<SharedAccount> account_in, size_t count)
      : account(std::move(account_in)), values(count) {}
  ~CopiedRows() { account->Return(static_cast<int64_t>(values.size() * sizeof(float))); }
  const std::shared_ptr<SharedAccount> account;
  std::vector<float> values;
};

// The pieces, cut into chunks of `chunk_elements`; `unit` elements count as one of what is left.
std::vector<PullChunk> Cut(absl::Span<const absl::Span<const float>> pieces, Version version,
                           int64_t chunk_elements, int64_t unit,
                           const std::shared_ptr<const void>& owner) {
  int64_t left = 0;
  for (absl::Span<const float> piece : pieces) left += static_cast<int64_t>(piece.size());
  std::vector<PullChunk> chunks;
  int64_t room = 0;
  for (absl::Span<const float> piece : pieces) {
    while (!piece.empty()) {
      if (room == 0) {
        chunks.push_back({.version = version, .owner = owner});
        room = chunk_elements;
      }
      const int64_t here = std::min<int64_t>(room, static_cast<int64_t>(piece.size()));
      chunks.back().pieces.push_back(piece.first(here));
      piece.remove_prefix(here);
      room -= here;
      left -= here;
      chunks.back().left = left / unit;
    }
  }
  if (chunks.empty()) chunks.push_back({.version = version});
  return chunks;
}

grpc::Slice Narrow(const PullChunk& chunk, DType type) {
  auto narrowed = std::make_shared<std::vector<uint16_t>>();
  for (const absl::Span<const float> piece : chunk.pieces) {
    for (const float value : piece) {
      narrowed->push_back(type == DType::kF16 ? F32ToF16(value) : F32ToBF16(value));
    }
  }
  const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(narrowed->data()),
                                         narrowed->size() * sizeof(uint16_t));
  return SliceOver(bytes, std::move(narrowed));
}

}  // namespace

grpc::ByteBuffer EncodeChunk(const PullChunk& chunk, DType type) {
  v1::TransferResponse head;
  head.mutable_pulled()->set_version(chunk.version);
  head.mutable_pulled()->set_left(chunk.left);
  std::vector<grpc::Slice> slices;
  if (type != DType::kF32) {
    slices.push_back(Narrow(chunk, type));
  } else {
    for (const absl::Span<const float> piece : chunk.pieces) {
      const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(piece.data()),
                                             piece.size() * sizeof(float));
      slices.push_back(SliceOver(bytes, chunk.owner));
    }
  }
  return EncodeFrame(head, slices);
}

absl::StatusOr<std::unique_ptr<PullChunks>> PullChunks::Create(std::shared_ptr<TableHost> host,
                                                               PullHeader header) {
  std::unique_ptr<PullChunks> chunks(new PullChunks(std::move(host), std::move(header)));
  const PullHeader& asked = chunks->header_;
  if (!chunks->host_->dense()) {
    const int64_t width = chunks->host_->constants().sparse->width();
    const int64_t most = kMaxSparsePullBytes / (width * static_cast<int64_t>(sizeof(float)));
    if (asked.range != Range()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "pull: table \"%s\" is sparse and is pulled by rows, not by offset and count",
          asked.table));
    }
    if (static_cast<int64_t>(asked.rows.size()) > most) {
      return absl::InvalidArgumentError(
          absl::StrFormat("pull.rows: must be at most %d rows of width %d in one pull, got %d",
                          most, width, asked.rows.size()));
    }
    return chunks;
  }
  if (!asked.rows.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "pull.rows: table \"%s\" is dense and is pulled by offset and count", asked.table));
  }
  const Range range = chunks->host_->constants().dense->range();
  chunks->left_ = asked.range == Range() ? range : asked.range;
  if (!range.Contains(chunks->left_)) {
    return absl::OutOfRangeError(absl::StrFormat(
        "pull: elements [%d, %d) of table \"%s\" are not all here; this server has [%d, %d)",
        asked.range.offset, asked.range.end(), asked.table, range.offset, range.end()));
  }
  return chunks;
}

absl::StatusOr<std::variant<Wait, PullChunks::Fetched>> PullChunks::Fetch(
    const TableHost::Access& access) {
  return host_->dense() ? FetchDense(access) : FetchSparse(access);
}

absl::StatusOr<std::variant<Wait, PullChunks::Fetched>> PullChunks::FetchDense(
    const TableHost::Access& access) {
  DenseTable& table = *access.table.dense;
  DensePull pull = {.from = header_.from, .range = left_, .min_version = header_.min_version};
  if (table.spec().visibility == Visibility::kSegments) {
    // What is there goes out before the rest has come: a segment, and those behind it that need no
    // wait, up to a chunk.
    const int64_t into = (left_.offset - table.range().offset) % kSegmentElements;
    pull.range.count = std::min(left_.count, kSegmentElements - into);
    while (pull.range.count < left_.count) {
      const Range next = {pull.range.end(),
                          std::min(kSegmentElements, left_.count - pull.range.count)};
      if (pull.range.count + next.count > kChunkElements) break;
      if (!table.Has(next, pull.min_version)) break;
      pull.range.count += next.count;
    }
  }
  MUSTER_ASSIGN_OR_RETURN(DensePullResult result, table.Pull(pull, access.now));
  if (result.wait.has_value()) return *result.wait;
  left_ = {pull.range.end(), left_.count - pull.range.count};
  Fetched fetched = {.chunks = Cut(result.pieces, result.version, kChunkElements, 1,
                                   std::make_shared<const Pin>(host_, result.pin)),
                     .more = left_.count > 0};
  for (PullChunk& chunk : fetched.chunks) chunk.left += left_.count;
  return fetched;
}

absl::StatusOr<std::variant<Wait, PullChunks::Fetched>> PullChunks::FetchSparse(
    const TableHost::Access& access) {
  SparseTable& table = *access.table.sparse;
  const size_t count = header_.rows.size() * static_cast<size_t>(table.width());
  const auto bytes = static_cast<int64_t>(count * sizeof(float));
  const std::shared_ptr<SharedAccount>& answers = host_->answers();
  if (!answers->TryTakeOrBeAlone(bytes)) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "pull: the answer needs %d bytes; other answers have taken %d of %d (--in-flight-bytes); "
        "try again later, or with fewer rows",
        bytes, answers->taken_bytes(), answers->budget_bytes()));
  }
  const auto copied = std::make_shared<CopiedRows>(answers, count);
  MUSTER_ASSIGN_OR_RETURN(
      const SparsePullResult result,
      table.Pull({.from = header_.from, .rows = header_.rows, .min_version = header_.min_version},
                 absl::MakeSpan(copied->values), access.now));
  if (result.wait.has_value()) return *result.wait;
  const int64_t rows_in_chunk = std::max<int64_t>(1, kChunkElements / table.width());
  const absl::Span<const float> values = copied->values;
  return Fetched{
      .chunks = Cut({values}, result.version, rows_in_chunk * table.width(), table.width(), copied),
      .more = false};
}

}  // namespace muster
