#include "common/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>

namespace ramspan {
namespace {

constexpr int kAnswerTimeoutMs = 60'000;

bool ReadYes(int terminal) {
  pollfd ready{.fd = terminal, .events = POLLIN, .revents = 0};
  if (poll(&ready, 1, kAnswerTimeoutMs) != 1) return false;
  std::array<char, 64> answer{};
  const ssize_t n = read(terminal, answer.data(), answer.size());
  return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
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
    yes = write(terminal, question.data(), question.size()) > 0 && ReadYes(terminal);
  }
  close(terminal);
  return yes;
}

}  // namespace ramspan
