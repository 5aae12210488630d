#include "collectives/engine/fingerprint.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/dtype.h"
#include "collectives/reduce/reduce_op.h"
#include "collectives/schedule/schedule.h"
#include "collectives/transport/wire.h"

namespace muster {
namespace {

std::string CollectiveName(uint8_t value) {
  for (const Collective collective : kAllCollectives) {
    if (static_cast<uint8_t>(collective) == value) return Name(collective);
  }
  return absl::StrCat("collective ", static_cast<int>(value));
}

bool HasRoot(uint8_t value) {
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter}) {
    if (static_cast<uint8_t>(collective) == value) return true;
  }
  return false;
}

bool HasContributors(uint8_t value) {
  return value == static_cast<uint8_t>(Collective::kPush) ||
         value == static_cast<uint8_t>(Collective::kPull);
}

std::string AlgorithmName(uint8_t value) {
  // A number without a name has one that all such numbers share.
  const char* const name = Name(static_cast<Algorithm>(value));
  const bool known = absl::string_view(name) != Name(static_cast<Algorithm>(0xff));
  return known ? std::string(name) : absl::StrCat("algorithm ", static_cast<int>(value));
}

}  // namespace

std::array<std::byte, kFingerprintBytes> EncodeFingerprint(const Fingerprint& fingerprint) {
  std::array<std::byte, kFingerprintBytes> bytes = {};
  std::byte* out = PutInteger(bytes.data(), fingerprint.sequence);
  out = PutInteger(out, fingerprint.collective);
  out = PutInteger(out, fingerprint.algorithm);
  out = PutInteger(out, fingerprint.dtype);
  out = PutInteger(out, fingerprint.op);
  out = PutInteger(out, fingerprint.root);
  out = PutInteger(out, fingerprint.count);
  out = PutInteger(out, fingerprint.counts_hash);
  out = PutInteger(out, fingerprint.segment_bytes);
  PutInteger(out, fingerprint.scope);
  return bytes;
}

Fingerprint DecodeFingerprint(absl::Span<const std::byte> bytes) {
  MUSTER_CHECK_EQ(bytes.size(), static_cast<size_t>(kFingerprintBytes));
  Fingerprint fingerprint;
  const std::byte* in = GetInteger(bytes.data(), &fingerprint.sequence);
  in = GetInteger(in, &fingerprint.collective);
  in = GetInteger(in, &fingerprint.algorithm);
  in = GetInteger(in, &fingerprint.dtype);
  in = GetInteger(in, &fingerprint.op);
  in = GetInteger(in, &fingerprint.root);
  in = GetInteger(in, &fingerprint.count);
  in = GetInteger(in, &fingerprint.counts_hash);
  in = GetInteger(in, &fingerprint.segment_bytes);
  GetInteger(in, &fingerprint.scope);
  return fingerprint;
}

std::string Describe(const Fingerprint& fingerprint) {
  std::string text =
      absl::StrCat(CollectiveName(fingerprint.collective), " #", fingerprint.sequence);
  if ((fingerprint.scope & kPairScope) != 0) {
    absl::StrAppend(&text, " from rank ", (fingerprint.scope & ~kPairScope) >> 16, " to rank ",
                    fingerprint.scope & 0xffff);
  } else if (fingerprint.scope != 0) {
    absl::StrAppend(&text, " of group ", absl::Hex(fingerprint.scope));
  }
  text += " (";
  if (fingerprint.collective != static_cast<uint8_t>(Collective::kBarrier)) {
    const auto dtype = DTypeFromWire(fingerprint.dtype);
    absl::StrAppend(&text,
                    dtype.ok() ? std::string(Name(*dtype))
                               : absl::StrCat("dtype ", static_cast<int>(fingerprint.dtype)),
                    ", ");
    if (fingerprint.op != 0) {
      const auto op = ReduceOpFromWire(fingerprint.op);
      absl::StrAppend(
          &text,
          op.ok() ? std::string(Name(*op)) : absl::StrCat("op ", static_cast<int>(fingerprint.op)),
          ", ");
    }
    absl::StrAppend(&text, fingerprint.count, " elements, ");
    if (fingerprint.counts_hash != 0) {
      absl::StrAppend(&text, "parts ", absl::Hex(fingerprint.counts_hash), ", ");
    }
    if (HasRoot(fingerprint.collective)) {
      absl::StrAppend(&text, "root ", fingerprint.root, ", ");
    }
    if (HasContributors(fingerprint.collective)) {
      absl::StrAppend(&text, fingerprint.root, " contributors, ");
    }
  }
  absl::StrAppend(&text, AlgorithmName(fingerprint.algorithm), ", segments of ",
                  fingerprint.segment_bytes, " bytes)");
  return text;
}

absl::Status MismatchedCalls(const Fingerprint& ours, Rank our_rank, const Fingerprint& theirs,
                             Rank their_rank) {
  return absl::InvalidArgumentError(
      absl::StrCat("calls do not match: rank ", our_rank, " called ", Describe(ours), ", but rank ",
                   their_rank, " called ", Describe(theirs),
                   "; all ranks must issue the same collectives in the same order"));
}

}  // namespace muster
