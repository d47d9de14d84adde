// Scenarios of `ramspan run --pages` (preloaded.cc): programs that are started beside threads that change the environment, children that have their parent's memory (vfork, clone), and what libc allocates itself.
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/pages/preloaded.h"

// The first large allocation of all is libc's, whose kernel calls nobody sees: it left, and what had been written was lost. REQUIRES: standard output is a file.
void FirstBuffer() {
  std::puts("good");
  Sweep();
  Sweep();
  std::exit(0);  // which writes it; nothing has touched it since
}

namespace {

void Put(char** at, char* text) { __atomic_store_n(at, text, __ATOMIC_RELAXED); }

// Does it again and again, as long as it lives.
class Beside {
 public:
  template <typename Do>
  explicit Beside(const Do& act) : thread_([this, act] { while (!stop_.load()) act(); }) {}
  ~Beside() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

int StatusOf(pid_t pid) {
  int status = -1;
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

constexpr size_t kNames = 2000;
char texts[kNames][16];
char* names[kNames + 1];

}  // namespace

// What another thread does to the environment between two looks at it.
void Environments() {
  New(kMiB)[0] = 1;
  for (size_t i = 0; i < kNames; ++i) {
    std::snprintf(texts[i], sizeof(texts[i]), "V%zu=x", i);
    names[i] = texts[i];
  }
  environ = names;
  char* arguments[] = {const_cast<char*>("true"), nullptr};
  {
    const Beside shorter([] {
      unsetenv("V0");
      for (size_t i = 0; i < kNames; ++i) Put(names + i, texts[i]);
    });
    for (int round = 0; round < 40; ++round) {
      const int status = system("exit 3");
      CHECK(status == 3 << 8 || status == 127 << 8 || status == -1);  // the kernel looks twice, too, and says EFAULT
      pid_t pid = -1;
      CHECK(posix_spawnp(&pid, "true", nullptr, nullptr, arguments, names + kNames) == 0 && StatusOf(pid) == 0);
    }
  }
  // From short to long: the copy had no end.
  constexpr size_t kTexts = 12, kLong = 100'000, kApart = 128 << 10;
  char* const memory = New((kTexts + 1) * kApart);
  const auto of = [memory](size_t i) { return memory + i * kApart; };
  for (size_t i = 0; i <= kTexts; ++i) {
    std::memset(of(i), 'a', i == kTexts ? 10 : kLong);
    of(i)[i == kTexts ? 10 : kLong] = 0;
  }
  static char* own[kTexts + 1];
  for (size_t i = 0; i < kTexts; ++i) own[i] = of(kTexts);
  environ = own;
  const Beside longer([of] {
    for (size_t i = 0; i < kTexts; ++i) Put(own + i, of(i));
    for (size_t i = 0; i < kTexts; ++i) Put(own + i, of(kTexts));
  });
  for (int round = 0; round < 50; ++round) {
    pid_t pid = -1;
    const int error = posix_spawn(&pid, "/bin/true", nullptr, nullptr, arguments, own);
    CHECK(error == ENOMEM || (error == 0 && StatusOf(pid) == 0));
    pid = vfork();
    if (pid == 0) _exit(execv("/bin/true", arguments) == -1 && errno == ENOMEM ? 0 : 1);
    CHECK(StatusOf(pid) == 0);
  }
}

// A child of _Fork has its parent's handler for pages, and the program's behind it is its own: what it sets was ignored.
void SignalsOfUnknownChildren() {
#if __GLIBC_PREREQ(2, 34)
  New(kMiB)[0] = 1;
  for (const int number : {SIGBUS, SIGSEGV}) {
    const pid_t child = _Fork();
    if (child == 0) {
      struct sigaction action = {}, now = {};
      action.sa_handler = [](int) { _exit(7); };
      sigaction(number, &action, nullptr);
      sigaction(number, nullptr, &now);
      if (now.sa_handler == action.sa_handler) raise(number);
      _exit(1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
#endif
}

// What a child does to its signals before it starts a program is none of its parent's business.
namespace {
std::atomic<int> handled{0};
void OfSignal(int) { handled.fetch_add(1); }
}  // namespace
void SignalsOfVfork() {
  New(kMiB)[0] = 1;
  for (const int number : {SIGBUS, SIGSEGV}) {
    struct sigaction action = {};
    action.sa_handler = OfSignal;
    CHECK(sigaction(number, &action, nullptr) == 0);
    const pid_t child = vfork();
    if (child == 0) {
      struct sigaction none = {}, before = {};
      none.sa_handler = SIG_DFL;
      const bool good = sigaction(number, &none, &before) == 0 && before.sa_handler == OfSignal;
      signal(number, SIG_IGN);
      _exit(good ? 0 : 1);
    }
    CHECK(StatusOf(child) == 0);
    handled.store(0);
    CHECK(raise(number) == 0 && handled.load() == 1);
    const int in_forked = InChild([number] {
      signal(number, SIG_IGN);
      return raise(number) == 0 && handled.load() == 1 ? 0 : 1;
    });
    CHECK(in_forked == 0 && raise(number) == 0 && handled.load() == 2);
  }
}

// The word that clone promises to clear when the child has left its parent's memory.
namespace {
struct Starts {
  const char* name;
  char** arguments;
};
int StartIt(void* what) {
  const Starts& it = *static_cast<Starts*>(what);
  execve(it.name, it.arguments, it.arguments);
  return errno == ENOENT ? 3 : 4;
}
}  // namespace
void WordsOfClone() {
  char** const arguments = reinterpret_cast<char**>(New(kMiB));
  arguments[0] = std::strcpy(New(kMiB), "true");
  arguments[1] = nullptr;
  static char stack[64 << 10];
  for (int round = 0; round < 40; ++round) {
    Starts what = {round % 2 == 0 ? "/bin/true" : "/nowhere/true", arguments};
    pid_t word = 77;
    const pid_t child = clone(StartIt, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | CLONE_CHILD_CLEARTID | SIGCHLD, &what, nullptr, nullptr, &word);
    CHECK(StatusOf(child) == (round % 2 == 0 ? 0 : 3) && word == 0);
  }
}

// Where the kernel looks at the arguments itself, it says what is wrong with them.
void BadPointers() {
  New(kMiB)[0] = 1;
  const char* const faults = getenv("RAMSPAN_PAGE_FAULTS");
  const char* const moves = getenv("RAMSPAN_PAGE_MOVES");
  if (faults == nullptr || std::strcmp(faults, "thread") != 0 || moves == nullptr || std::strcmp(moves, "auto") != 0) return;
  char** const nothing = reinterpret_cast<char**>(8);
  char* wrong[] = {reinterpret_cast<char*>(8), nullptr};
  CHECK(execve("/bin/true", nothing, environ) == -1 && errno == EFAULT);
  CHECK(execve("/bin/true", wrong, environ) == -1 && errno == EFAULT);
  CHECK(execve("/bin/true", environ, wrong) == -1 && errno == EFAULT);
}

// Of a terminal, what it is to be like.
void Terminals() {
  auto* const size = reinterpret_cast<winsize*>(New(kMiB));
  auto* const how = reinterpret_cast<termios*>(New(kMiB));
  *size = {33, 77, 0, 0};
  int ends[2] = {-1, -1};
  CHECK(openpty(ends, ends + 1, nullptr, nullptr, nullptr) == 0 && tcgetattr(ends[1], how) == 0);
  how->c_lflag &= ~static_cast<tcflag_t>(ECHO);
  close(ends[0]);
  close(ends[1]);
  const auto is_right = [](int fd) {
    winsize now = {};
    termios is = {};
    return ioctl(fd, TIOCGWINSZ, &now) == 0 && now.ws_row == 33 && now.ws_col == 77 && tcgetattr(fd, &is) == 0 && (is.c_lflag & ECHO) == 0;
  };
  Sweep();
  CHECK(openpty(ends, ends + 1, nullptr, how, size) == 0 && is_right(ends[1]));
  Sweep();
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, how, size);
  if (child == 0) _exit(is_right(STDIN_FILENO) ? 0 : 1);
  CHECK(StatusOf(child) == 0);
}
