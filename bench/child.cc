#include "bench/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/process.h"

namespace ramspan::bench {
namespace {

int StatusOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// The handlers of the parent are not the child's: a signal before its exec would be taken by them, and not end it.
void LetSignalsEnd(const sigset_t& mask) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

[[noreturn]] void Become(std::vector<std::string>* words, const Child::Environment& environment, pid_t parent, int output, int input, const sigset_t& mask) {
  LetSignalsEnd(mask);
  prctl(PR_SET_PDEATHSIG, output >= 0 ? SIGKILL : SIGTERM);
  if (getppid() != parent) _exit(0);  // it died before the line above
  if (output >= 0) dup2(output, STDOUT_FILENO);
  if (input >= 0) dup2(input, STDIN_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> line = Pointers(words);
  execv(line[0], line.data());
  std::fprintf(stderr, "ramspan-bench: cannot start %s: %s\n", line[0], std::strerror(errno));
  _exit(127);
}

}  // namespace

Child::Child(std::vector<std::string> words, const Environment& environment, bool server) {
  int output[2] = {-1, -1}, input[2] = {-1, -1};
  // Its stdin ends when this process does.
  if (server && (pipe2(output, O_CLOEXEC) != 0 || pipe2(input, O_CLOEXEC) != 0)) {
    throw std::runtime_error(std::string("no pipe: ") + std::strerror(errno));
  }
  const pid_t self = getpid();
  sigset_t all, mask;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &mask);
  pid_ = fork();
  if (pid_ == 0) Become(&words, environment, self, output[1], input[0], mask);
  const int error = errno;
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  if (server) {
    close(output[1]);
    close(input[0]);
    output_ = output[0];
    input_ = input[1];
  }
  if (pid_ < 0) throw std::runtime_error(std::string("no process can be made: ") + std::strerror(error));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), output_(std::exchange(other.output_, -1)), input_(std::exchange(other.input_, -1)),
      read_(std::move(other.read_)) {}

Child::~Child() {
  if (input_ >= 0) close(input_);
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    for (int i = 0; i < 500 && pid_ > 0; ++i) {
      if (waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
      if (pid_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
  }
  if (output_ >= 0) close(output_);
}

std::string Child::ReadLine() {
  for (;;) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      const std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    char some[4096];
    const ssize_t n = read(output_, some, sizeof some);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::exchange(read_, {});
    read_.append(some, static_cast<size_t>(n));
  }
}

int Child::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) return 1;
  }
  pid_ = -1;
  return StatusOf(status);
}

}  // namespace ramspan::bench
