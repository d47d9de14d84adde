#include "common/limit_of_files.h"

#include <sys/resource.h>

#include <cerrno>

#include "common/errno_guard.h"

namespace ramspan {
namespace {

// A memory server starts with 24 descriptors, over tcp. At half of this number one may be missing, whatever a library calls it; at twice of
// it, hardly.
constexpr rlim_t kFewFiles = 64;

}  // namespace

std::string LimitOfFiles(int error) {
  const ErrnoGuard guard;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  const bool is_reason = error == EMFILE || ((error == EIO || error == ENODATA || error == ENODEV) && limit.rlim_cur < kFewFiles);
  if (!is_reason) return "";
  return " (this process may have " + std::to_string(limit.rlim_cur) + " files open: raise the limit, `ulimit -n`)";
}

}  // namespace ramspan
