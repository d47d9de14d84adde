#include "common/pmi.h"

#include <poll.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "common/running_clock.h"

namespace ramspan {
namespace {

constexpr std::chrono::seconds kPatience{30};

int PmiConnection() {
  const char* text = std::getenv("PMI_FD");
  int fd = -1;
  if (text == nullptr) return fd;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), fd);
  return error == std::errc() && *end == '\0' ? fd : -1;
}

// One command line out, one line back; the answer's beginning is checked.
Status Exchange(int fd, std::string_view command, std::string_view answer, const std::function<void()>& progress) {
  if (write(fd, command.data(), command.size()) != static_cast<ssize_t>(command.size())) {
    return Unavailable("the process manager does not listen");
  }
  const auto deadline = RunningClock::ProcessNow() + kPatience;
  std::string line;
  while (line.find('\n') == std::string::npos) {
    progress();
    pollfd readable{fd, POLLIN, 0};
    char byte = 0;
    if (poll(&readable, 1, 1) > 0) {
      if (read(fd, &byte, 1) != 1) return Unavailable("the process manager hung up");
      line += byte;
    } else if (RunningClock::ProcessNow() > deadline) {
      return Unavailable("the process manager does not answer");
    }
  }
  if (!line.starts_with(answer)) return Unavailable("the process manager answered " + line);
  return {};
}

}  // namespace

bool CanSayPmiGoodbye() { return PmiConnection() >= 0; }

Status SayPmiGoodbye(const std::function<void()>& progress) {
  const int fd = PmiConnection();
  if (Status s = Exchange(fd, "cmd=barrier_in\n", "cmd=barrier_out", progress); !s.ok()) return s;
  return Exchange(fd, "cmd=finalize\n", "cmd=finalize_ack", [] {});
}

}  // namespace ramspan
