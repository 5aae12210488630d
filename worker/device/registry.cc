#include "worker/device/registry.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "worker/device/cpu_device.h"

namespace muster {

namespace {

struct Backend {
  const char* name;
  absl::StatusOr<std::unique_ptr<Device>> (*create)(const DeviceOptions& options);
};

// Each backend that is linked in has its line here, and nowhere else.
constexpr Backend kBackends[] = {
    {"cpu", [](const DeviceOptions& options) { return CreateCpuDevice(options.cpu); }},
};

}  // namespace

std::vector<std::string> DeviceNames() {
  std::vector<std::string> names;
  for (const Backend& backend : kBackends) names.emplace_back(backend.name);
  return names;
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(absl::string_view name,
                                                     const DeviceOptions& options) {
  for (const Backend& backend : kBackends) {
    if (name == backend.name) return backend.create(options);
  }
  return absl::NotFoundError(absl::StrFormat("this build has no device \"%s\"; it has: %s", name,
                                             absl::StrJoin(DeviceNames(), ", ")));
}

}  // namespace muster
