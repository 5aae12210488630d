// Every fuzz target, by the file that defines it. Constants.
#ifndef MUSTER_TESTS_FUZZ_TARGETS_H_
#define MUSTER_TESTS_FUZZ_TARGETS_H_

#include <array>

#include "absl/strings/string_view.h"
#include "tests/fuzz/fuzz_target.h"

namespace muster {

extern const FuzzTarget kAddressTarget;          // address_fuzz.cc
extern const FuzzTarget kManifestTarget;         // checkpoint_fuzz.cc
extern const FuzzTarget kSafetensorsTarget;      // checkpoint_fuzz.cc
extern const FuzzTarget kCodedGradientTarget;    // coded_gradient_fuzz.cc
extern const FuzzTarget kCommitRecordTarget;     // commit_record_fuzz.cc
extern const FuzzTarget kSessionRequestTarget;   // control_messages_fuzz.cc
extern const FuzzTarget kSessionResponseTarget;  // control_messages_fuzz.cc
extern const FuzzTarget kJobDescriptionTarget;   // control_messages_fuzz.cc
extern const FuzzTarget kFingerprintTarget;      // fingerprint_fuzz.cc
extern const FuzzTarget kGzipTarget;             // idx_fuzz.cc
extern const FuzzTarget kIdxTarget;              // idx_fuzz.cc
extern const FuzzTarget kJobYamlTarget;          // job_file_fuzz.cc
extern const FuzzTarget kJobJsonTarget;          // job_file_fuzz.cc
extern const FuzzTarget kJobTextprotoTarget;     // job_file_fuzz.cc
extern const FuzzTarget kLogLineTarget;          // log_line_fuzz.cc
extern const FuzzTarget kLearnRequestTarget;     // state_transfer_fuzz.cc
extern const FuzzTarget kPayloadFrameTarget;     // payload_frame_fuzz.cc
extern const FuzzTarget kStateTransferTarget;    // state_transfer_fuzz.cc
extern const FuzzTarget kMeshStreamTarget;       // mesh_stream_fuzz.cc
extern const FuzzTarget kTcpDataHeaderTarget;    // tcp_frame_fuzz.cc
extern const FuzzTarget kTcpControlTarget;       // tcp_frame_fuzz.cc
extern const FuzzTarget kTcpHelloTarget;         // tcp_handshake_fuzz.cc
extern const FuzzTarget kTcpAnswerTarget;        // tcp_handshake_fuzz.cc

inline constexpr std::array kAllFuzzTargets = {&kAddressTarget,        &kManifestTarget,
                                               &kSafetensorsTarget,    &kCommitRecordTarget,
                                               &kSessionRequestTarget, &kSessionResponseTarget,
                                               &kJobDescriptionTarget, &kFingerprintTarget,
                                               &kGzipTarget,           &kIdxTarget,
                                               &kJobYamlTarget,        &kJobJsonTarget,
                                               &kJobTextprotoTarget,   &kLogLineTarget,
                                               &kLearnRequestTarget,   &kPayloadFrameTarget,
                                               &kStateTransferTarget,  &kTcpDataHeaderTarget,
                                               &kTcpControlTarget,     &kTcpHelloTarget,
                                               &kTcpAnswerTarget,      &kMeshStreamTarget,
                                               &kCodedGradientTarget};

// Null if there is none of that name.
inline const FuzzTarget* FindFuzzTarget(absl::string_view name) {
  for (const FuzzTarget* target : kAllFuzzTargets) {
    if (target->name == name) return target;
  }
  return nullptr;
}

}  // namespace muster

#endif  // MUSTER_TESTS_FUZZ_TARGETS_H_
