#include "common/check.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "common/log.h"

namespace ramspan::detail {

void CheckFailed(const char* file, int line, const char* condition, const char* format, ...) {
  std::fprintf(stderr, "%s%s:%d: check failed: %s: ", LogPrefix(), file, line, condition);
  va_list args;
  va_start(args, format);
  std::vfprintf(stderr, format, args);
  va_end(args);
  std::fputs("\nThis is a bug in Ramspan; please report it with these lines.\n", stderr);
  std::abort();
}

}  // namespace ramspan::detail
