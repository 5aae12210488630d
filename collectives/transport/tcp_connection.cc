#include "collectives/transport/tcp_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace muster {
namespace {

constexpr size_t kMaxParts = 48;  // of one sendmsg
// How much is read beyond a large message: enough for the header of another large one, whose bytes
// then go straight to where they belong.
constexpr size_t kShortLookAheadBytes = 4 << 10;
constexpr std::align_val_t kCacheLine{64};

}  // namespace

void StagingBuffer::Free::operator()(std::byte* pointer) const {
  ::operator delete[](pointer, kCacheLine);
}

StagingBuffer::StagingBuffer()
    : memory(static_cast<std::byte*>(::operator new[](kCarry + kBytes, kCacheLine))) {}

TcpConnection::TcpConnection(UniqueFd fd, ReceiveTable* receives, StagingBuffer* staging)
    : fd_(std::move(fd)),
      receives_(receives),
      staging_(staging),
      look_ahead_(static_cast<std::byte*>(::operator new[](kLookAheadBytes, kCacheLine))) {}

void TcpConnection::QueueSend(uint64_t tag, absl::Span<const std::byte> bytes, uint64_t token) {
  sends_.push_back({EncodeDataHeader({tag, static_cast<int64_t>(bytes.size())}), bytes, token});
}

absl::Status TcpConnection::Flush(std::vector<uint64_t>* completed) {
  static constexpr std::byte kZeros[kFrameAlignment] = {};
  while (!sends_.empty()) {
    iovec parts[kMaxParts];
    size_t used = 0;
    size_t total = 0;
    size_t skip = head_written_;
    const auto add = [&](const std::byte* data, size_t size) {
      const size_t skipped = std::min(skip, size);
      skip -= skipped;
      if (size == skipped) return;
      parts[used++] = {const_cast<std::byte*>(data) + skipped, size - skipped};
      total += size - skipped;
    };
    for (const Outgoing& send : sends_) {
      if (used + 3 > kMaxParts) break;
      add(send.header.data(), send.header.size());
      add(send.bytes.data(), send.bytes.size());
      add(kZeros, static_cast<size_t>(PaddingOf(static_cast<int64_t>(send.bytes.size()))));
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = used;
    const ssize_t result = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return absl::OkStatus();
      if (errno == EINTR) continue;
      return absl::UnavailableError(absl::StrCat("sending failed: ", std::strerror(errno)));
    }
    const size_t written = static_cast<size_t>(result);
    head_written_ += written;
    while (!sends_.empty()) {
      const auto length = static_cast<int64_t>(sends_.front().bytes.size());
      const size_t frame = kDataHeaderBytes + static_cast<size_t>(length + PaddingOf(length));
      if (head_written_ < frame) break;
      head_written_ -= frame;
      completed->push_back(sends_.front().token);
      sends_.pop_front();
    }
    if (written < total) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status TcpConnection::Begin(const TcpDataHeader& header, std::vector<uint64_t>* completed) {
  header_ = header;
  received_ = 0;
  current_ = receives_->Take(header.tag);
  if (current_.has_value()) {
    if (current_->length != header.length) {
      return LengthMismatch(header.tag, current_->length, header.length);
    }
  } else {
    early_bytes_ = receives_->Reserve(header.tag, header.length);
    if (early_bytes_ == nullptr) {
      held_back_ = header;
      return absl::OkStatus();
    }
    early_ = true;
  }
  held_back_.reset();
  padding_left_ = static_cast<size_t>(PaddingOf(header.length));
  return FinishIfWhole(completed);
}

absl::Status TcpConnection::FinishIfWhole(std::vector<uint64_t>* completed) {
  if (received_ < header_.length) return absl::OkStatus();
  MUSTER_CHECK(carried_ == 0);
  if (current_.has_value()) {
    receives_->Finished(*current_);
    completed->push_back(current_->token);
    paused_ = current_->standing;
    current_.reset();
  } else {
    early_ = false;
    uint64_t token = 0;
    MUSTER_ASSIGN_OR_RETURN(const bool served, receives_->Deliver(header_.tag, &token));
    if (served) completed->push_back(token);
  }
  return absl::OkStatus();
}

void TcpConnection::DeliverToConsumer(std::byte* start, size_t size) {
  const size_t element = static_cast<size_t>(current_->element_bytes);
  const size_t rest = size % element;
  const int64_t offset = received_ - static_cast<int64_t>(carried_);
  if (size > rest) {
    current_->consumer->Consume(current_->token, offset, absl::MakeConstSpan(start, size - rest));
  }
  std::memcpy(carry_.data(), start + (size - rest), rest);
  received_ = offset + static_cast<int64_t>(size);
  carried_ = rest;
}

void TcpConnection::TakeFromLookAhead(const std::byte* bytes, size_t size) {
  if (!current_.has_value()) {
    std::memcpy(early_bytes_ + received_, bytes, size);
  } else if (current_->consumer == nullptr) {
    std::memcpy(current_->destination + received_, bytes, size);
  } else {
    const auto address = reinterpret_cast<uintptr_t>(bytes);
    if (carried_ == 0 && address % static_cast<uintptr_t>(current_->element_bytes) == 0) {
      DeliverToConsumer(const_cast<std::byte*>(bytes), size);
    } else {
      std::byte* const staging = staging_->data();
      std::memcpy(staging, carry_.data(), carried_);
      std::memcpy(staging + carried_, bytes, size);
      DeliverToConsumer(staging, carried_ + size);
    }
    return;
  }
  received_ += static_cast<int64_t>(size);
}

absl::Status TcpConnection::Parse(std::vector<uint64_t>* completed) {
  while (!paused_) {
    const size_t there = end_ - begin_;
    if (mid_message()) {
      const size_t take = std::min(there, static_cast<size_t>(header_.length - received_));
      if (take > 0) TakeFromLookAhead(look_ahead_.get() + begin_, take);
      begin_ += take;
      MUSTER_RETURN_IF_ERROR(FinishIfWhole(completed));
      if (mid_message()) {
        begin_ = end_ = 0;
        return absl::OkStatus();
      }
    } else if (padding_left_ > 0) {
      const size_t take = std::min(there, padding_left_);
      begin_ += take;
      padding_left_ -= take;
      if (padding_left_ > 0) {
        begin_ = end_ = 0;
        return absl::OkStatus();
      }
    } else if (held_back_.has_value()) {
      MUSTER_RETURN_IF_ERROR(Begin(TcpDataHeader(*held_back_), completed));
      if (held_back_.has_value()) return absl::OkStatus();
    } else if (there < kDataHeaderBytes) {
      // Frames start at multiples of kFrameAlignment here, so that elements lie aligned.
      std::memmove(look_ahead_.get(), look_ahead_.get() + begin_, there);
      begin_ = 0;
      end_ = there;
      return absl::OkStatus();
    } else {
      const auto header =
          DecodeDataHeader(absl::MakeConstSpan(look_ahead_.get() + begin_, kDataHeaderBytes));
      if (!header.ok()) return header.status();
      begin_ += kDataHeaderBytes;
      MUSTER_RETURN_IF_ERROR(Begin(*header, completed));
      if (held_back_.has_value()) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> TcpConnection::ReadOnce(size_t* wanted) {
  std::byte padding[kFrameAlignment];
  iovec parts[3];
  int used = 0;
  size_t payload = 0;
  std::byte* target = nullptr;
  bool to_the_end = true;
  if (mid_message()) {
    payload = static_cast<size_t>(header_.length - received_);
    if (!current_.has_value()) {
      target = early_bytes_ + received_;
    } else if (current_->consumer == nullptr) {
      target = current_->destination + received_;
    } else {
      target = staging_->data() + carried_;
      to_the_end = payload <= StagingBuffer::kBytes;
      payload = std::min(payload, StagingBuffer::kBytes);
    }
    parts[used++] = {target, payload};
  }
  size_t skipped = 0;
  size_t room = 0;
  if (to_the_end) {
    skipped = padding_left_;
    if (skipped > 0) parts[used++] = {padding, skipped};
    room = kLookAheadBytes - end_;
    parts[used++] = {look_ahead_.get() + end_,
                     payload > kLookAheadBytes ? std::min(room, kShortLookAheadBytes) : room};
  }
  const ssize_t result = readv(fd_.get(), parts, used);
  if (result < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    at_end_ = true;
    return absl::UnavailableError(absl::StrCat("receiving failed: ", std::strerror(errno)));
  }
  if (result == 0) {
    at_end_ = true;
    return 0;
  }
  // Where a message goes by, the look-ahead part counts as asked for only when the rest was filled.
  *wanted = payload > 0 ? payload : skipped + room;
  size_t left = static_cast<size_t>(result);
  if (payload > 0) {
    const size_t got = std::min(left, payload);
    left -= got;
    if (current_.has_value() && current_->consumer != nullptr) {
      std::memcpy(staging_->data(), carry_.data(), carried_);
      DeliverToConsumer(staging_->data(), carried_ + got);
    } else {
      received_ += static_cast<int64_t>(got);
    }
  }
  const size_t dropped = std::min(left, skipped);
  padding_left_ -= dropped;
  end_ += left - dropped;
  return static_cast<size_t>(result);
}

absl::Status TcpConnection::Read(int64_t budget_bytes, std::vector<uint64_t>* completed,
                                 bool* more) {
  *more = false;
  paused_ = false;
  int64_t total = 0;
  MUSTER_RETURN_IF_ERROR(Parse(completed));
  while (!held_back_.has_value() && !at_end_ && !paused_) {
    size_t wanted = 0;
    MUSTER_ASSIGN_OR_RETURN(const size_t got, ReadOnce(&wanted));
    if (got == 0) return absl::OkStatus();
    MUSTER_RETURN_IF_ERROR(Parse(completed));
    if (got < wanted) return absl::OkStatus();
    total += static_cast<int64_t>(got);
    if (total >= budget_bytes) {
      *more = true;
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace muster
