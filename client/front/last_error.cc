#include "client/front/last_error.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>

namespace ramspan {
namespace {

thread_local constinit char thrown_last[1024] = {};
std::atomic<bool> ends{false};
std::terminate_handler handler_before = nullptr;

void Terminate() {
  while (ends.exchange(true)) ::pause();  // another thread's message is on its way, and then the end of the process
  if (std::current_exception() == nullptr && thrown_last[0] != '\0') {
    std::fprintf(stderr, "ramspan: std::terminate was called without an exception that it could name. The latest error that this thread has met: %s\n", thrown_last);
    std::fflush(stderr);
  }
  handler_before();
}

}  // namespace

void NoteThrown(const char* words) noexcept {
  std::strncpy(thrown_last, words, sizeof(thrown_last) - 1);
}

void SayErrorsAtTerminate() {
  static const bool once = [] {
    handler_before = std::set_terminate(Terminate);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace ramspan
