// The version of this software. Workers of another version are refused by the protocol's number, not
// by this one (proto Hello.protocol_version).
#ifndef MUSTER_BASE_VERSION_H_
#define MUSTER_BASE_VERSION_H_

namespace muster {

inline constexpr char kSoftwareVersion[] = "0.1.0";

}  // namespace muster

#endif  // MUSTER_BASE_VERSION_H_
