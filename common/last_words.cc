#include "common/last_words.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

namespace ramspan {
namespace {
constexpr std::chrono::milliseconds kPatience{1000};
}  // namespace

// A pipe that says it is writable takes PIPE_BUF bytes (4096) at once.
bool StderrTakesALine(std::chrono::milliseconds wait) {
  const int saved_errno = errno;
  pollfd standard_error{STDERR_FILENO, POLLOUT, 0};
  const bool takes = poll(&standard_error, 1, static_cast<int>(wait.count())) > 0 && (standard_error.revents & POLLOUT) != 0;
  errno = saved_errno;
  return takes;
}

void EndProcessSaying(const char* text) {
  if (StderrTakesALine(kPatience)) [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, strlen(text));
  try {
    // In a thread of its own: the program may hold the lock of a stream, or a stream may be such a pipe.
    std::thread([] {
      std::fflush(nullptr);
      _exit(1);
    }).detach();
  } catch (const std::exception&) {  // no thread, or no memory for one
  }
  std::this_thread::sleep_for(kPatience);
  _exit(1);
}

}  // namespace ramspan
