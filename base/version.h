// The version of this software. Whether workers fit together is not told by it but by the
// protocol's number (proto Hello.protocol_version).
#ifndef MUSTER_BASE_VERSION_H_
#define MUSTER_BASE_VERSION_H_

namespace muster {

inline constexpr char kSoftwareVersion[] = "0.1.0";

}  // namespace muster

#endif  // MUSTER_BASE_VERSION_H_
