#include "base/control/messages.h"

namespace muster {

const char* Name(MemberRole role) {
  switch (role) {
    case MemberRole::kWorker:
      return "worker";
    case MemberRole::kParameterServer:
      return "parameter server";
  }
  return "unknown";
}

const char* Name(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kIdle:
      return "idle";
    case WorkerPhase::kLearning:
      return "learning";
    case WorkerPhase::kQuiesced:
      return "quiesced";
    case WorkerPhase::kActivating:
      return "activating";
    case WorkerPhase::kRunning:
      return "running";
    case WorkerPhase::kPaused:
      return "paused";
    case WorkerPhase::kFinished:
      return "finished";
    case WorkerPhase::kFailed:
      return "failed";
    case WorkerPhase::kOrphaned:
      return "orphaned";
  }
  return "unknown";
}

const char* Name(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return "queued";
    case JobState::kStarting:
      return "starting";
    case JobState::kRunning:
      return "running";
    case JobState::kWaiting:
      return "waiting";
    case JobState::kSucceeded:
      return "succeeded";
    case JobState::kFailed:
      return "failed";
    case JobState::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

const char* Name(ViewChangeCause cause) {
  switch (cause) {
    case ViewChangeCause::kStart:
      return "start";
    case ViewChangeCause::kDeath:
      return "death";
    case ViewChangeCause::kJoin:
      return "join";
    case ViewChangeCause::kLeave:
      return "leave";
    case ViewChangeCause::kDrain:
      return "drain";
    case ViewChangeCause::kSwitch:
      return "switch";
    case ViewChangeCause::kRestart:
      return "restart";
  }
  return "unknown";
}

}  // namespace muster
