// Small lives of programs for end_test.cc. usage: end_program LIFE
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ramspan/detail/object.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"
#include "tests/support/send_signal.h"

namespace {

std::atomic<int> allocations_left{-1};  // -1: the heap does not end

}  // namespace

// Not inline, where g++ would find that what free() gets came from new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  const int left = allocations_left;
  if (left > 0) --allocations_left;
  void* const at = left == 0 ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace {

using ramspan::managedPtr;

int Touch() {
  managedPtr<double> data(1 << 16);
  ADHERETOLOC(double, data, p);
  p[5] = 2;
  return p[5] == 2 ? 0 : 1;
}

// More than memory has, pinned at once by the only thread.
int PinTooMuch() {
  constexpr size_t kLength = size_t{1} << 17, kPieces = 16;
  std::vector<managedPtr<double>> more;
  for (size_t i = 0; i < kPieces; ++i) more.emplace_back(kLength);
  int refused = 0;
  const std::function<void(size_t)> pin = [&](size_t i) {
    try {
      ramspan::adhereTo<double> held(more[i]);
      *static_cast<double*>(held) = 1;
      if (i + 1 < kPieces) pin(i + 1);
    } catch (const ramspan::OutOfMemory&) {
      ++refused;
    }
  };
  for (int i = 0; i < 20; ++i) pin(0);
  return refused == 20 ? 0 : 1;
}

// The report runs on a thread of Ramspan's, as MPI's handler of a lost connection does, which calls exit() too.
int ExitOnMover() {
  ramspan::SetSignalReport(SIGUSR1, [] { std::exit(3); });
  if (Touch() != 0) return 1;
  kill(getpid(), SIGUSR1);
  for (;;) pause();
}

int ExitOnThread() {
  if (Touch() != 0) return 1;
  std::thread([] { std::exit(4); }).join();
  return 1;
}

int ReportThrows() {
  static std::atomic<bool> reported{false};
  ramspan::SetSignalReport(SIGUSR1, [] {
    if (reported.exchange(true)) std::exit(Touch() == 0 ? 5 : 1);
    throw std::runtime_error("no ink");
  });
  if (Touch() != 0) return 1;
  kill(getpid(), SIGUSR1);
  while (!reported) usleep(1000);
  kill(getpid(), SIGUSR1);  // the thread still reports
  for (;;) pause();
}

int ReportThrowsANumber() {
  static std::atomic<bool> reported{false};
  ramspan::SetSignalReport(SIGUSR1, [] {
    if (reported.exchange(true)) std::exit(5);
    throw 7;
  });
  if (Touch() != 0) return 1;
  kill(getpid(), SIGUSR1);
  while (!reported) usleep(1000);
  kill(getpid(), SIGUSR1);
  for (;;) pause();
}

// The handler of the signal stays when the program takes its report back.
int ReportTakenBack() {
  if (Touch() != 0) return 1;
  ramspan::SetSignalReport(SIGUSR1, nullptr);
  kill(getpid(), SIGUSR1);
  static std::atomic<bool> reported{false};
  ramspan::SetSignalReport(SIGUSR2, [] { reported = true; });
  for (int i = 0; i < 2000 && !reported; ++i) {  // the mover looks at both signals in turn
    kill(getpid(), SIGUSR2);
    usleep(10'000);
  }
  return reported ? 0 : 1;
}

// A thread holds the ingredients when another one forks: the child has nobody who would ever let them go.
int IngredientsInChild() {
  if (Touch() != 0) return 1;
  std::promise<void> taken, end;
  std::thread holder([&] {
    LISTOFINGREDIENTS
    taken.set_value();
    end.get_future().wait();
  });
  taken.get_future().wait();
  const pid_t child = fork();
  if (child == 0) {
    { LISTOFINGREDIENTS }
    _exit(0);
  }
  int status = -1;
  for (int i = 0; i < 400 && waitpid(child, &status, WNOHANG) == 0; ++i) usleep(50'000);
  if (status == -1) SendSignal(child, SIGKILL);
  end.set_value();
  holder.join();
  return status == 0 ? 0 : 1;
}

// Threads ask all the time which objects are pinned, so in some of the children the mutex of that question is held for ever.
int DescribeInChild() {
  managedPtr<double> data(1 << 16);
  {
    ADHERETOLOC(double, data, p);
    p[5] = 2;
  }
  const ramspan::detail::ChunkHead* const chunk = ramspan::detail::ObjectOf()(data).chunk();
  std::atomic<bool> end{false};
  std::vector<std::thread> askers;
  for (int i = 0; i < 2; ++i) {
    askers.emplace_back([&] {
      while (!end) ramspan::detail::DescribeChunk(chunk);
    });
  }
  int status = 0;
  for (int i = 0; i < 100 && status == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(ramspan::detail::DescribeChunk(chunk) == std::string("in memory") ? 0 : 1);
    status = -1;
    for (int waits = 0; waits < 20'000 && waitpid(child, &status, WNOHANG) == 0; ++waits) usleep(1000);
    if (status == -1) SendSignal(child, SIGKILL);
  }
  end = true;
  for (std::thread& asker : askers) asker.join();
  return status == 0 ? 0 : 1;
}

// More data than memory; wrong by one bit is seen. The sum is printed, because a program may also end without it.
int SweepAll() {
  std::vector<managedPtr<uint64_t>> data;
  constexpr uint64_t kObjects = 96, kWords = 1 << 15;  // of 256 KiB, 24 MiB together
  for (uint64_t i = 0; i < kObjects; ++i) {
    data.emplace_back(kWords);
    ADHERETOLOC(uint64_t, data.back(), p);
    for (uint64_t k = 0; k < kWords; ++k) p[k] = i * kWords + k;
  }
  uint64_t sum = 0;
  for (const auto& one : data) {
    ADHERETOLOCCONST(uint64_t, one, p);
    for (uint64_t k = 0; k < kWords; ++k) sum += p[k];
  }
  constexpr uint64_t kAll = kObjects * kWords;
  std::printf("sum %s\n", sum == kAll * (kAll - 1) / 2 ? "right" : "wrong");
  return 0;
}

// What is destroyed at the end of the process that made it. In a child it would be destroyed behind a mutex that a thread may
// have held at the fork, and that nobody lets go there.
int ExitInChild() {
  if (Touch() != 0) return 1;
  static const pid_t parent = getpid();
  ramspan::detail::CallBeforeEnd([] {
    std::fputs(getpid() == parent ? "the parent's end\n" : "the child's end\n", stderr);
  });
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}

// 120 MiB together, each in places of 64.
int PinThree() {
  constexpr size_t kWords = size_t{5} << 20;
  const managedPtr<uint64_t> a(kWords), b(kWords), c(kWords);
  ADHERETOLOC(uint64_t, a, x);
  ADHERETOLOC(uint64_t, b, y);
  ADHERETOLOC(uint64_t, c, z);
  x[0] = y[0] = z[0] = 1;
  std::printf("three pinned\n");
  return 0;
}

int AdhereToOutlivesItsData() {
  auto* data = new managedPtr<double>(1 << 16);
  {
    ramspan::adhereTo<double> glue(*data);
    static_cast<double*>(glue)[0] = 1;
    delete data;
  }
  return 0;
}

// The end has something to say (unchanged writes, statistics), and HEAP_AT_END allocations for it.
int EndWithoutHeap() {
  std::vector<managedPtr<uint64_t>> data;
  for (int i = 0; i < 24; ++i) data.emplace_back(1 << 17);  // of 1 MiB
  for (int round = 0; round < 3; ++round) {
    for (auto& one : data) {
      ramspan::adhereTo<uint64_t> glue(one);
      static_cast<void>(static_cast<uint64_t*>(glue));
    }
  }
  allocations_left = std::atoi(std::getenv("HEAP_AT_END"));
  return 0;
}

long EntriesOf(const char* folder) { return std::distance(std::filesystem::directory_iterator(folder), {}); }

// REQUIRES: a configuration that cannot work.
int StartInVain() {
  const auto fails = [] {
    try {
      const managedPtr<double> data(1000);
      return false;
    } catch (const ramspan::ConfigError&) {
      return true;
    }
  };
  if (!fails()) return 1;
  const long threads = EntriesOf("/proc/self/task"), descriptors = EntriesOf("/proc/self/fd");
  for (int i = 0; i < 3; ++i) {
    if (!fails()) return 1;
  }
  std::printf("%ld threads and %ld descriptors more\n", EntriesOf("/proc/self/task") - threads, EntriesOf("/proc/self/fd") - descriptors);
  return 0;
}

// One of its calls comes while the other thread's start is under way, and waits for that.
int ReconfigureBesideStart() {
  std::thread starts([] { Touch(); });
  std::string error;
  bool started = false;
  while (!started && error.empty()) {
    started = ramspan::Started();
    try {
      ramspan::Reconfigure({.preemptive = false});
    } catch (const std::exception& e) {
      error = e.what();
    }
  }
  starts.join();
  if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
  return error.empty() && !*ramspan::EffectiveOptions().preemptive ? 0 : 1;
}

std::vector<ramspan::managedPtr<int>>* of_handlers;
size_t pulls_of_handlers = 0;
void PullNext(int) {
  ramspan::adhereTo<int> glue((*of_handlers)[pulls_of_handlers++ % of_handlers->size()]);
  static_cast<int*>(glue)[0] = 1;
}
void ExitLater(int) {
  if (++pulls_of_handlers == 20) exit(3);
}
// Sooner or later one interrupts the program where it is in the engine.
int SweepUnder(void (*handler)(int)) {
  static std::vector<ramspan::managedPtr<int>> program, handlers;  // which exit() destroys
  for (int i = 0; i < 600; ++i) {
    program.emplace_back(4096);
    handlers.emplace_back(4096);
  }
  of_handlers = &handlers;
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  const itimerval often = {{0, 500}, {0, 500}};
  if (sigaction(SIGALRM, &action, nullptr) != 0 || setitimer(ITIMER_REAL, &often, nullptr) != 0) return 1;
  for (size_t i = 0;; ++i) {
    ramspan::adhereTo<int> glue(program[i % program.size()]);
    static_cast<int*>(glue)[1] = 1;
  }
}
int GoOn() {
  Touch();
  for (;;) pause();
}
int PullInHandlers() { return SweepUnder(PullNext); }
int ExitInHandlers() { return SweepUnder(ExitLater); }

}  // namespace

int main(int, char** argv) try {
  const std::map<std::string, std::function<int()>> lives = {{"touch", Touch},
                                                             {"go-on", GoOn},
                                                             {"exit-on-mover", ExitOnMover},
                                                             {"pin-too-much", PinTooMuch},
                                                             {"exit-on-thread", ExitOnThread},
                                                             {"report-throws", ReportThrows},
                                                             {"report-throws-a-number", ReportThrowsANumber},
                                                             {"report-taken-back", ReportTakenBack},
                                                             {"ingredients-in-child", IngredientsInChild},
                                                             {"describe-in-child", DescribeInChild},
                                                             {"sweep", SweepAll},
                                                             {"pin-three", PinThree},
                                                             {"pull-in-handlers", PullInHandlers},
                                                             {"exit-in-handlers", ExitInHandlers},
                                                             {"exit-in-child", ExitInChild},
                                                             {"end-without-heap", EndWithoutHeap},
                                                             {"start-in-vain", StartInVain},
                                                             {"reconfigure-beside-start", ReconfigureBesideStart},
                                                             {"outlive", AdhereToOutlivesItsData}};
  return lives.at(argv[1])();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
