#include "common/log.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include "common/announced_servers.h"
#include "common/write_signals_blocked.h"

namespace ramspan {
namespace {

enum class Level { kOff, kWarn, kInfo };

// LoadConfig has refused any other word before the first message that matters, so none is reported here.
Level ReadLevel() {
  const char* text = std::getenv("RAMSPAN_LOG");
  if (text == nullptr) return Level::kWarn;
  if (std::string_view(text) == "off") return Level::kOff;
  if (std::string_view(text) == "info") return Level::kInfo;
  return Level::kWarn;
}

[[gnu::format(printf, 2, 0)]] void Write(Level level, const char* format, va_list args) {
  static const Level enabled = ReadLevel();
  if (level > enabled) return;
  const int saved_errno = errno;  // callers log between a failure and its handling
  char line[1024];
  const int prefix = std::snprintf(line, sizeof line, "%s", LogPrefix());
  const int room = static_cast<int>(sizeof line) - prefix - 1;  // one kept for the newline
  const int wanted = std::vsnprintf(line + prefix, static_cast<size_t>(room), format, args);
  int length = prefix + std::clamp(wanted, 0, room - 1);
  line[length++] = '\n';
  {
    // A message that cannot be written has nowhere to be reported, and does not end the program.
    const WriteSignalsBlocked blocked;
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, static_cast<size_t>(length));
  }
  errno = saved_errno;
}

}  // namespace

const char* LogPrefix() {
  struct Prefix {
    char text[32] = "ramspan: ";
    Prefix() {
      if (const int rank = AnnouncedRankOfSeveral(); rank >= 0) std::snprintf(text, sizeof text, "ramspan[%d]: ", rank);
    }
  };
  static const Prefix prefix;
  return prefix.text;
}

void LogWarning(const char* format, ...) {
  va_list args;
  va_start(args, format);
  Write(Level::kWarn, format, args);
  va_end(args);
}

void LogInfo(const char* format, ...) {
  va_list args;
  va_start(args, format);
  Write(Level::kInfo, format, args);
  va_end(args);
}

}  // namespace ramspan
