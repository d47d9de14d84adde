#include "launch/run_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace ramspan {
namespace {

constexpr char kPrefix[] = "ramspan-run-";
constexpr size_t kParentMax = 70;  // a socket's path has 107 bytes

}  // namespace

Result<std::string> MakeRunFolder(const std::string& parent) {
  std::string name = (parent.empty() || parent.size() > kParentMax ? "/tmp" : parent) + "/" + kPrefix + "XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    return Unavailable("cannot make a folder " + name + ": " + std::strerror(errno) + "; set TMPDIR");
  }
  return name;
}

void RemoveRunFolder(const std::string& folder) {
  const std::filesystem::path path(folder);
  std::error_code ignored;
  if (path.filename().string().rfind(kPrefix, 0) == 0) std::filesystem::remove_all(path, ignored);
}

}  // namespace ramspan
