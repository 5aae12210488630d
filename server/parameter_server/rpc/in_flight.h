// How many bytes of requests a server has in hand: read, and not yet added to a table.
//
// Every stream may have one message in hand, so that none can keep another from going on; to read
// ahead beyond that it needs room here. So no more than the limit and one message for each stream
// is in hand. Thread-safe.
#ifndef MUSTER_SERVER_PARAMETER_SERVER_RPC_IN_FLIGHT_H_
#define MUSTER_SERVER_PARAMETER_SERVER_RPC_IN_FLIGHT_H_

#include <atomic>
#include <cstdint>

namespace muster {

class InFlight {
 public:
  explicit InFlight(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  bool HasRoom() const { return bytes() < limit_bytes_; }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // The most there were at once.
  int64_t peak_bytes() const { return peak_bytes_.load(std::memory_order_relaxed); }

  // Bytes in hand, for as long as the object lives.
  class Held {
   public:
    Held(InFlight& in_flight, int64_t bytes) : in_flight_(in_flight), bytes_(bytes) {
      const int64_t now = in_flight.bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
      int64_t peak = in_flight.peak_bytes();
      while (peak < now && !in_flight.peak_bytes_.compare_exchange_weak(peak, now)) {
      }
    }
    ~Held() { in_flight_.bytes_.fetch_sub(bytes_, std::memory_order_relaxed); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    InFlight& in_flight_;
    const int64_t bytes_;
  };

 private:
  const int64_t limit_bytes_;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<int64_t> peak_bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_SERVER_PARAMETER_SERVER_RPC_IN_FLIGHT_H_
