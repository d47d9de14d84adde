#include "common/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

namespace ramspan {
namespace {

constexpr std::chrono::seconds kAnswerTimeout{60};

// Handlers of the program's may run meanwhile: a signal is no answer.
bool ReadYes(int terminal) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + kAnswerTimeout;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
    std::array<char, 64> answer{};
    const int ready_now = left.count() > 0 ? poll(&ready, 1, static_cast<int>(left.count())) : 0;
    const ssize_t n = ready_now == 1 ? read(terminal, answer.data(), answer.size()) : ready_now;
    if (n < 0 && errno == EINTR) continue;
    return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
  }
}

bool Write(int terminal, const std::string& text) {
  ssize_t n = 0;
  do {
    n = write(terminal, text.data(), text.size());
  } while (n < 0 && errno == EINTR);
  return n > 0;
}

}  // namespace

bool AskOnTerminal(const std::string& message) {
  int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
  if (terminal < 0 && isatty(STDIN_FILENO)) terminal = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  if (terminal < 0) return false;
  const pid_t foreground = tcgetpgrp(terminal);
  bool yes = false;
  if (foreground < 0 || foreground == getpgrp()) {
    const std::string question = "ramspan: " + message + " [y/N] ";
    yes = Write(terminal, question) && ReadYes(terminal);
  }
  close(terminal);
  return yes;
}

}  // namespace ramspan
