// What a worker tells of its communication, for people: the path it takes, and the collective that
// keeps it waiting. Plain values; measurements, on which nothing is decided.
#ifndef MUSTER_BASE_CONTROL_COMMUNICATION_H_
#define MUSTER_BASE_CONTROL_COMMUNICATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace muster {

// An algorithm that collectives of one kind take, and the sizes seen so far.
struct AlgorithmInUse {
  std::string collective;   // "all-reduce"
  std::string algorithm;    // "ring"
  int64_t least_bytes = 0;  // of the whole vectors
  int64_t most_bytes = 0;
  bool automatic = false;  // nobody asked for it by name
  std::string why;
  bool operator==(const AlgorithmInUse&) const = default;
};

// How the ranks of a view reach each other.
struct CommunicationPath {
  std::string transport;  // "shm", "tcp", "ofi", "grpc"
  std::string provider;   // of libfabric; empty with other transports
  std::string why;        // why it is this one
  std::vector<AlgorithmInUse> algorithms;
  bool operator==(const CommunicationPath&) const = default;
};

// A collective that has not moved for a while, since it waits for its peers.
struct CollectiveWait {
  std::string operation;        // "all-reduce #5 (...)"
  std::string label;            // "bucket 3"
  Step step = 0;                // 0: of none
  std::vector<Rank> waits_for;  // in the view in force
  int64_t waited_ms = 0;
  bool late = false;  // beyond the job's limit: there is a straggler
  bool operator==(const CollectiveWait&) const = default;
};

// In a line: "shm (all 4 ranks share a host); all-reduce of 280 B to 1 MiB: window (auto: ...)".
std::string Describe(const CommunicationPath& path);

}  // namespace muster

#endif  // MUSTER_BASE_CONTROL_COMMUNICATION_H_
