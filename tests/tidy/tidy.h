// The rules of the source tree that no compiler checks (CONTRIBUTING.md, "Rules a test checks").
// Pure: works on a list of files, so that its own test can show it broken ones.
#ifndef MUSTER_TESTS_TIDY_TIDY_H_
#define MUSTER_TESTS_TIDY_TIDY_H_

#include <string>
#include <vector>

namespace muster {

struct SourceFile {
  std::string path;  // relative to the root, for example "server/core/view.cc"
  std::string text;
};

// One problem each, "path:line: what".
using Problems = std::vector<std::string>;

// Includes point along the arrows of docs/design.md; pure folders see nothing of the outside world.
void CheckIncludes(const SourceFile& file, Problems* problems);
// Length of files and lines, include guards, no paths of one machine.
void CheckForm(const SourceFile& file, Problems* problems);
// Calls that only main functions, or nobody, may make.
void CheckCalls(const SourceFile& file, Problems* problems);
// Each .cc is named in the CMakeLists.txt of its folder or of one above.
void CheckRegistration(const std::vector<SourceFile>& files, Problems* problems);

// All of the above.
Problems CheckTree(const std::vector<SourceFile>& files);

}  // namespace muster

#endif  // MUSTER_TESTS_TIDY_TIDY_H_
