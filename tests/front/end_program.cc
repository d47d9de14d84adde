// Small lives of programs for end_test.cc. usage: end_program LIFE
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ramspan/detail/object.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"

namespace {

using ramspan::managedPtr;

int Touch() {
  managedPtr<double> data(1 << 16);
  ADHERETOLOC(double, data, p);
  p[5] = 2;
  return p[5] == 2 ? 0 : 1;
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
  if (status == -1) kill(child, SIGKILL);
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
    if (status == -1) kill(child, SIGKILL);
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

}  // namespace

int main(int, char** argv) try {
  const std::map<std::string, std::function<int()>> lives = {{"touch", Touch},
                                                             {"exit-on-mover", ExitOnMover},
                                                             {"exit-on-thread", ExitOnThread},
                                                             {"report-throws", ReportThrows},
                                                             {"report-taken-back", ReportTakenBack},
                                                             {"ingredients-in-child", IngredientsInChild},
                                                             {"describe-in-child", DescribeInChild},
                                                             {"sweep", SweepAll},
                                                             {"pin-three", PinThree},
                                                             {"exit-in-child", ExitInChild},
                                                             {"outlive", AdhereToOutlivesItsData}};
  return lives.at(argv[1])();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
