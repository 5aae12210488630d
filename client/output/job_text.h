// How jobs and members read, for people. Pure and thread-safe.
#ifndef MUSTER_CLIENT_OUTPUT_JOB_TEXT_H_
#define MUSTER_CLIENT_OUTPUT_JOB_TEXT_H_

#include <string>
#include <vector>

#include "muster/v1/coordinator.pb.h"

namespace muster {

// "running", "death", "idle".
std::string Name(v1::JobState state);
std::string Name(v1::ViewChangeCause cause);
std::string Name(v1::WorkerPhase phase);

// How gradients meet: "all-reduce (ring) over tcp"; how far it is known.
std::string SyncPathText(const v1::Job& job);

// Directory of the job's last checkpoint, or of the newest complete one if it has not succeeded;
// empty if there is none.
std::string NewestCheckpoint(const v1::Job& job);

// 950, 31.2k, 4.5M.
std::string ShortNumber(double value);
// "42s", "3m05s", "2h07m".
std::string ShortDuration(double seconds);

// "[=====>    ]  42%  step 492/1175  loss 0.3412  31.2k samples/s  ETA 12s  4 workers  all-reduce
// (ring)", as much as fits `columns`, the least important last. A job that does not run gives its
// state and reason instead.
std::string ProgressBar(const v1::Job& job, int columns);

// The same facts as a line for a log: "job-1 running: step 492/1175 loss 0.3412 ...".
std::string ProgressLine(const v1::Job& job);

// "step 60 on worker-0, worker-1: no space left on device".
std::string FailedCheckpointText(const v1::FailedCheckpoint& failed);

// "epoch 3: death of worker-2; 3 workers, training went on after 84 ms".
std::string ViewChangeText(const v1::ViewChange& change);

// Several lines.
std::string JobDetails(const v1::Job& job);
// "stage 2, 1 replica": in a few words.
std::string StrategyText(const v1::Strategy& strategy);
std::string JobTable(const std::vector<v1::Job>& jobs);
std::string MemberTable(const v1::ListMembersResponse& members);

// Columns padded to their widest cell, two spaces apart, one row a line.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace muster

#endif  // MUSTER_CLIENT_OUTPUT_JOB_TEXT_H_
