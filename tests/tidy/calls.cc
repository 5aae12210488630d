#include "tests/tidy/text.h"
#include "tests/tidy/tidy.h"

namespace muster {
namespace {

struct Ban {
  const char* call;
  const char* why;
  // Whether the ban holds in this file.
  bool (*applies)(const std::string& path);
};

bool IsLibrary(const std::string& path) {
  return !IsMain(path) && !IsUnder(path, "tests") && !IsUnder(path, "bench");
}
bool OutsideMain(const std::string& path) { return !IsMain(path); }
bool OutsideCheck(const std::string& path) { return IsLibrary(path) && path != "base/check.h"; }
bool Everywhere(const std::string&) { return true; }
bool InTests(const std::string& path) {
  return IsUnder(path, "tests") && path != "tests/wait_until.h" &&
         path != "tests/integration/harness.py";
}

constexpr char kNoSleep[] = "a test waits for what it needs: tests/wait_until.h, or wait_until";

constexpr Ban kBans[] = {
    {"std::cout", "output goes through client/output or base/log.h", IsLibrary},
    {"std::cerr", "errors are returned or logged", IsLibrary},
    {"getenv(", "only *_main.cc reads the environment", OutsideMain},
    {"setenv(", "only *_main.cc changes the environment, for its children", OutsideMain},
    {"exit(", "only *_main.cc ends the process", IsLibrary},
    {"abort(", "use MUSTER_CHECK", OutsideCheck},
    {"rand(", "use base/random.h", Everywhere},
    {"srand(", "use base/random.h", Everywhere},
    {"assert(", "use MUSTER_CHECK, which stays on in release builds", IsLibrary},
    {"SleepFor(", kNoSleep, InTests},
    {"sleep_for(", kNoSleep, InTests},
    {"sleep_until(", kNoSleep, InTests},
    {"sleep(", kNoSleep, InTests},
    {"usleep(", kNoSleep, InTests},
    {"nanosleep(", kNoSleep, InTests},
    {"time.sleep(", kNoSleep, InTests},
    {"strcpy(", "has no limit", Everywhere},
    {"sprintf(", "has no limit; use absl::StrFormat", Everywhere},
    {"#pragma once", "use include guards", Everywhere},
    {"using namespace std", "names are spelled out", Everywhere},
};

// The call by its whole name: not the end of another one, nor a member of the same name, as in
// app.exit(error). _exit( is another name.
bool Contains(const std::string& code, absl::string_view call) {
  for (size_t at = code.find(std::string(call)); at != std::string::npos;
       at = code.find(std::string(call), at + 1)) {
    const char before = at == 0 ? ' ' : code[at - 1];
    if (!absl::ascii_isalnum(before) && before != '_' && before != '.' && before != '>')
      return true;
  }
  return false;
}

}  // namespace

void CheckCalls(const SourceFile& file, Problems* problems) {
  if (!IsCpp(file.path) && !absl::EndsWith(file.path, ".py")) return;
  const std::vector<std::string> lines = Lines(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string code = CodeOnly(lines[i]);
    for (const Ban& ban : kBans) {
      if (ban.applies(file.path) && Contains(code, ban.call)) {
        problems->push_back(Problem(file, i + 1, absl::StrCat(ban.call, " is banned: ", ban.why)));
      }
    }
  }
}

}  // namespace muster
