// What `muster doctor` thinks of a host. Pure, thread-safe.
#ifndef MUSTER_CLIENT_DOCTOR_HOST_CHECKS_H_
#define MUSTER_CLIENT_DOCTOR_HOST_CHECKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/doctor/host_facts.h"

namespace muster {

enum class FindingLevel : uint8_t {
  kOk,
  kNote,     // worth knowing; nothing need be done
  kWarning,  // works, but not as it might, or not for every job
  kError,    // a job on this host will fail
};
const char* Name(FindingLevel level);

struct Finding {
  FindingLevel level = FindingLevel::kOk;
  std::string subject;
  std::string found;
  std::string advice;  // what to do; empty where nothing need be
};

// One finding or more per subject: name, interfaces, files, memory lock, ports, shared memory, huge
// pages, cores, devices, topology.
std::vector<Finding> CheckHost(const HostFacts& facts);

}  // namespace muster

#endif  // MUSTER_CLIENT_DOCTOR_HOST_CHECKS_H_
