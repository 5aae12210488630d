// Views for tests of who holds what.
#ifndef MUSTER_TESTS_BASE_CONTROL_VIEW_OF_HOSTS_H_
#define MUSTER_TESTS_BASE_CONTROL_VIEW_OF_HOSTS_H_

#include <string>
#include <vector>

#include "base/control/messages.h"

namespace muster {

// A worker on each of the hosts; its incarnation is its rank + 1.
inline View ViewOfHosts(const Strategy& strategy, const std::vector<std::string>& hosts) {
  View view;
  view.strategy = strategy;
  for (const std::string& host : hosts) {
    Member member;
    member.incarnation = Incarnation{view.members.size() + 1};
    member.host = host;
    view.members.push_back(member);
  }
  return view;
}

}  // namespace muster

#endif  // MUSTER_TESTS_BASE_CONTROL_VIEW_OF_HOSTS_H_
