#include "worker/sync/compressed_sums.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "collectives/reduce/half.h"

namespace muster {
namespace {

size_t Size(int64_t count) { return static_cast<size_t>(count); }

Range Both(Range a, Range b) {
  const int64_t from = std::max(a.offset, b.offset);
  return {from, std::min(a.end(), b.end()) - from};
}

}  // namespace

CompressedSums::CompressedSums(Communicator& communicator, const Layout& layout, const ViewMap& map,
                               bool shared, const GradientCompression& compression)
    : communicator_(communicator),
      layout_(layout),
      map_(map),
      shared_(shared),
      workers_(map.order.owners()),
      codec_(compression) {
  cuts_.reserve(layout.buckets().size());
  for (int i = 0; i < map.order.bucket_count(); ++i) cuts_.emplace_back(layout, i, codec_);
}

bool CompressedSums::EverybodySums(int bucket) const {
  const BlockCut& cut = cuts_[Size(bucket)];
  const int64_t codes = cut.BytesOf(cut.all());
  const int64_t sums = layout_.buckets()[Size(bucket)].count * int64_t{sizeof(uint16_t)};
  return shared_ && workers_ * codes < codes + sums;
}

Range CompressedSums::SummedHere(int bucket) const {
  const Bucket& whole = layout_.buckets()[Size(bucket)];
  if (EverybodySums(bucket)) return {whole.offset, whole.count};
  return map_.slices.SliceOf(bucket, communicator_.rank());
}

std::vector<std::byte> CompressedSums::TakeBuffer(int64_t bytes) {
  std::vector<std::byte> buffer;
  if (!spare_.empty()) {
    buffer = std::move(spare_.back());
    spare_.pop_back();
  }
  buffer.resize(Size(bytes));
  return buffer;
}

void CompressedSums::Encode(int bucket, int block, float* contribution, std::byte* bytes) const {
  const BlockCut::Block coded = cuts_[Size(bucket)].At(block);
  const int64_t from = coded.elements.offset - layout_.buckets()[Size(bucket)].offset;
  codec_.Encode({contribution + from, Size(coded.elements.count)}, {bytes, Size(coded.bytes)});
}

void CompressedSums::CodeForOwners(int bucket, float* contribution,
                                   std::vector<std::byte>& sent) const {
  const BlockCut& cut = cuts_[Size(bucket)];
  std::byte* at = sent.data();
  int coded = 0;  // so many blocks are
  const std::byte* last = nullptr;
  for (Rank owner = 0; owner < map_.slices.owners(); ++owner) {
    const BlockCut::Blocks theirs = cut.Touching(map_.slices.SliceOf(bucket, owner));
    for (int block = theirs.first; block < theirs.last; ++block) {
      const int64_t bytes = cut.At(block).bytes;
      if (block < coded) {
        std::memcpy(at, last, Size(bytes));  // the one before has a part of it, too
      } else {
        Encode(bucket, block, contribution, at);
        coded = block + 1;
      }
      last = at;
      at += bytes;
    }
  }
  MUSTER_CHECK_EQ(at - sent.data(), static_cast<int64_t>(sent.size()));
}

CompressedSums::Exchange CompressedSums::Start(int bucket, float* contribution,
                                               const CollectiveOptions& options) {
  const BlockCut& cut = cuts_[Size(bucket)];
  Exchange exchange{.bucket = bucket};
  const Rank self = communicator_.rank();
  if (EverybodySums(bucket)) {
    const int64_t bytes = cut.BytesOf(cut.all());
    exchange.received = TakeBuffer(workers_ * bytes);
    std::byte* const mine = exchange.received.data() + self * bytes;
    for (int block = 0; block < cut.all().last; ++block) {
      Encode(bucket, block, contribution, mine + cut.BytesAt(block, cut.all()));
    }
    exchange.work =
        communicator_.AllGather(mine, exchange.received.data(),
                                std::vector<int64_t>(Size(workers_), bytes), DType::kU8, options);
    return exchange;
  }
  // Each worker's codes of an owner's slice go to that owner.
  const int ranks = communicator_.world_size();
  std::vector<int64_t> counts(Size(ranks) * Size(ranks), 0);
  int64_t all = 0;
  for (Rank owner = 0; owner < ranks; ++owner) {
    const int64_t bytes = cut.BytesOf(cut.Touching(map_.slices.SliceOf(bucket, owner)));
    for (Rank worker = 0; worker < workers_; ++worker) {
      counts[Size(worker) * Size(ranks) + Size(owner)] = bytes;
    }
    all += bytes;
    if (owner == self) exchange.received = TakeBuffer(workers_ * bytes);
  }
  if (self < workers_) {
    exchange.sent = TakeBuffer(all);
    CodeForOwners(bucket, contribution, exchange.sent);
  }
  exchange.work = communicator_.AllToAllV(exchange.sent.data(), exchange.received.data(), counts,
                                          DType::kU8, options);
  return exchange;
}

absl::Status CompressedSums::Sum(Exchange exchange, uint16_t* sums) {
  const int bucket = exchange.bucket;
  const BlockCut& cut = cuts_[Size(bucket)];
  const int64_t begin = layout_.buckets()[Size(bucket)].offset;
  const Range mine = SummedHere(bucket);
  const BlockCut::Blocks held = cut.Touching(mine);
  const int64_t bytes_each = cut.BytesOf(held);
  std::array<float, GradientCodec::kMostBlockElements> sum;
  for (const OwnedRange& piece : map_.order.PiecesOf(mine)) {
    const BlockCut::Blocks blocks = cut.Touching(piece.range);
    for (int i = blocks.first; i < blocks.last; ++i) {
      const BlockCut::Block block = cut.At(i);
      const Range part = Both(block.elements, piece.range);
      const absl::Span<float> into(sum.data(), Size(part.count));
      for (int k = 1; k <= workers_; ++k) {
        const Rank from = (piece.owner + k) % workers_;
        const int64_t at = from * bytes_each + cut.BytesAt(i, held);
        const absl::Status added =
            codec_.Add({exchange.received.data() + at, Size(block.bytes)}, block.elements.count,
                       part.offset - block.elements.offset, k == 1, into);
        if (added.ok()) continue;
        culprit_ = from;
        return absl::DataLossError(absl::StrCat("bucket ", bucket, ", gradient from rank ", from,
                                                ", elements ", block.elements.offset, " to ",
                                                block.elements.end(), ": ", added.message()));
      }
      NarrowToHalf(DType::kBF16, sum.data(), sums + (part.offset - begin), part.count);
    }
  }
  if (!exchange.sent.empty()) spare_.push_back(std::move(exchange.sent));
  if (!exchange.received.empty()) spare_.push_back(std::move(exchange.received));
  return absl::OkStatus();
}

}  // namespace muster
