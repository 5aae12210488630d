// `muster doctor`: looks at this host before a job does.
#ifndef MUSTER_CLIENT_COMMANDS_DOCTOR_H_
#define MUSTER_CLIENT_COMMANDS_DOCTOR_H_

#include <string>

#include "client/output/console.h"

namespace muster {

struct DoctorOptions {
  std::string coordinator;  // to be reached from here; empty: not tried
  bool json = false;        // {"level", "subject", "found", "advice"}, one object a line
};

// 0; 1 if there is an error among the findings, or they could not be written.
int DoctorCommand(const DoctorOptions& options, Console* console);

}  // namespace muster

#endif  // MUSTER_CLIENT_COMMANDS_DOCTOR_H_
