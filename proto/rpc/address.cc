#include "proto/rpc/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace muster {
namespace {

absl::Status BadAddress(absl::string_view address, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrFormat(
      "address \"%s\": %s; expected host:port, for example 127.0.0.1:7070 or [::1]:7070",
      TextForPeople(address, address.size()), why));
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

bool IsIpv6Character(char c) {
  return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.' || c == '%' ||
         absl::ascii_isalnum(static_cast<unsigned char>(c));
}

// The bytes of an IPv4 or IPv6 address; an IPv4 one in IPv6 form is the IPv4 one. Empty: it is
// neither.
std::string AddressBytes(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const in_addr& four = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return std::string(reinterpret_cast<const char*>(&four), sizeof four);
  }
  if (address->sa_family != AF_INET6) return "";
  const in6_addr& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  const std::string bytes(reinterpret_cast<const char*>(&six), sizeof six);
  return IN6_IS_ADDR_V4MAPPED(&six) ? bytes.substr(12) : bytes;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  constexpr size_t kMaxLength = 300;
  if (address.size() > kMaxLength) {
    return BadAddress(address.substr(0, kMaxLength), "is longer than 300 bytes");
  }
  HostPort result;
  absl::string_view port;
  if (!address.empty() && address.front() == '[') {
    const size_t close = address.find(']');
    if (close == absl::string_view::npos) return BadAddress(address, "has no closing bracket");
    result.host = std::string(address.substr(1, close - 1));
    absl::string_view rest = address.substr(close + 1);
    if (rest.empty() || rest.front() != ':') return BadAddress(address, "has no port");
    port = rest.substr(1);
    for (char c : result.host) {
      if (!IsIpv6Character(c)) return BadAddress(address, "has no IPv6 address in the brackets");
    }
    if (result.host.find(':') == std::string::npos) {
      return BadAddress(address, "has no IPv6 address in the brackets");
    }
  } else {
    const size_t colon = address.rfind(':');
    if (colon == absl::string_view::npos) return BadAddress(address, "has no port");
    result.host = std::string(address.substr(0, colon));
    port = address.substr(colon + 1);
    if (result.host.empty()) return BadAddress(address, "has no host");
    if (result.host.find(':') != std::string::npos) {
      return BadAddress(address, "has more than one colon (an IPv6 address needs brackets)");
    }
    for (char c : result.host) {
      if (!IsHostCharacter(c)) return BadAddress(address, "has a host with unexpected characters");
    }
  }
  const bool digits_only = port.find_first_not_of("0123456789") == absl::string_view::npos;
  if (port.empty() || !digits_only || !absl::SimpleAtoi(port, &result.port) ||
      result.port > 65'535) {
    return BadAddress(address, "has a port that is not a number from 0 to 65535");
  }
  return result;
}

absl::StatusOr<HostPort> ParseAddressToDial(absl::string_view address) {
  absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (parsed.ok() && parsed->port == 0) return BadAddress(address, "has port 0, where nobody is");
  return parsed;
}

std::string ToString(const HostPort& address) {
  if (address.host.find(':') != std::string::npos) {
    return absl::StrCat("[", address.host, "]:", address.port);
  }
  return absl::StrCat(address.host, ":", address.port);
}

bool IsThisMachine(const std::string& host) {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) == 0 && absl::EqualsIgnoreCase(host, name)) return true;
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const std::string bytes = AddressBytes(found->ai_addr);
  const bool is_any = std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; });
  const bool is_loopback =
      bytes.size() == 4 ? bytes[0] == 127 : bytes == std::string(15, '\0') + '\1';
  if (is_any || is_loopback) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces_owner(interfaces, &freeifaddrs);
  for (const ifaddrs* at = interfaces; at != nullptr; at = at->ifa_next) {
    if (AddressBytes(at->ifa_addr) == bytes) return true;
  }
  return false;
}

absl::Status ProbeListen(const HostPort& address) {
  const std::string text = ToString(address);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrFormat("cannot listen on %s: %s", text, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0) continue;
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool bound = bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 1) == 0;
    const int reason = errno;
    close(fd);
    if (bound) continue;
    const char* advice = "";
    if (reason == EADDRINUSE) {
      advice = "; stop the process that has the port or choose another port";
    } else if (reason == EADDRNOTAVAIL) {
      advice = "; it must be an address of this host, or 0.0.0.0 for all";
    }
    return absl::UnavailableError(
        absl::StrFormat("cannot listen on %s: %s%s", text, std::strerror(reason), advice));
  }
  return absl::OkStatus();
}

}  // namespace muster
