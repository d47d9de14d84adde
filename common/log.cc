#include "common/log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <string_view>
#include <unistd.h>

#include "common/announced_servers.h"
#include "common/last_words.h"
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

// Static TLS, as all of a library that is loaded (tests/house/static_tls.sh): the first use of another kind takes heap.
thread_local constinit bool may_wait __attribute__((tls_model("initial-exec"))) = true;

// What standard error did not take. Who finds it in use by another thread does without.
class KeptLines {
 public:
  void Keep(std::string_view line) {
    // Acquire, release: who had it before has done with the text.
    if (busy_.test_and_set(std::memory_order_acquire)) return static_cast<void>(left_out_.fetch_add(1, std::memory_order_relaxed));
    if (bytes_ + line.size() <= sizeof text_ - kNoteBytes) {
      std::memcpy(text_ + bytes_, line.data(), line.size());
      bytes_ += line.size();
    } else {
      left_out_.fetch_add(1, std::memory_order_relaxed);
    }
    is_some_.store(true, std::memory_order_relaxed);
    busy_.clear(std::memory_order_release);
  }

  // In a forked child: the parent has them, and the thread that had them is not there.
  void BeginAnew() {
    bytes_ = 0;
    left_out_.store(0, std::memory_order_relaxed);
    is_some_.store(false, std::memory_order_relaxed);
    busy_.clear(std::memory_order_relaxed);
  }

  void Write() {
    if (!is_some_.load(std::memory_order_relaxed) || !StderrTakesALine(std::chrono::milliseconds(0)) || busy_.test_and_set(std::memory_order_acquire)) return;
    if (const unsigned left_out = left_out_.exchange(0, std::memory_order_relaxed); left_out > 0) {
      char* const end = text_ + bytes_;
      bytes_ += static_cast<size_t>(std::snprintf(end, kNoteBytes, "%s%u more messages are left out, because standard error took none\n", LogPrefix(), left_out));
    }
    const WriteSignalsBlocked blocked;
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_, bytes_);
    bytes_ = 0;
    is_some_.store(false, std::memory_order_relaxed);
    busy_.clear(std::memory_order_release);
  }

 private:
  static constexpr size_t kNoteBytes = 128;
  std::atomic_flag busy_;
  std::atomic<bool> is_some_{false};  // only a hint
  size_t bytes_ = 0;
  std::atomic<unsigned> left_out_{0};
  char text_[4096] = {};  // what a pipe takes at once (StderrTakesALine)
};
constinit KeptLines kept;
[[maybe_unused]] const int child_begins_without = pthread_atfork(nullptr, nullptr, [] { kept.BeginAnew(); });

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
  kept.Write();
  if (!may_wait && !StderrTakesALine(std::chrono::milliseconds(0))) {
    kept.Keep({line, static_cast<size_t>(length)});
  } else {
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

void LogWithoutWaiting() { may_wait = false; }

void LogWhatWasKept() { kept.Write(); }

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
