// The library as a guest in the program's process, with data where RAMSPAN_TEST_BED says: in files, in the memory of servers that are
// reached over libfabric or MPI, near ones (load/store) and far ones (over the network). thread_state_test.cc, process_state_test.cc and
// vector_state_test.cc look at the same things one by one, with files; here is what a transport brings along: other libraries with threads,
// descriptors and handlers of their own. One process for all tests, because each start costs a job.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/guest/extension_calls.h"
#include "tests/guest/surroundings.h"
#include "tests/guest/thread_watch.h"

namespace ramspan {
namespace {

std::string BedName() {
  const char* bed = std::getenv("RAMSPAN_TEST_BED");
  return bed == nullptr ? "files" : bed;
}
bool BedIs(const std::string& part) { return BedName().find(part) != std::string::npos; }

// What is written to standard output and error from the first moment of this object to the last is in a file.
class OutputAside {
 public:
  OutputAside() : file_(memfd_create("output", MFD_CLOEXEC)), out_(fcntl(1, F_DUPFD_CLOEXEC, 3)), err_(fcntl(2, F_DUPFD_CLOEXEC, 3)) {
    std::fflush(stdout);
    dup2(file_, 1);
    dup2(file_, 2);
  }
  ~OutputAside() { End(); }
  std::string End() {
    if (file_ < 0) return {};
    std::fflush(stdout);
    dup2(out_, 1);
    dup2(err_, 2);
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), '\0');
    if (pread(file_, text.data(), text.size(), 0) < 0) text = "the test cannot read it";
    for (const int one : {file_, out_, err_}) close(one);
    file_ = -1;
    std::fputs(text.c_str(), stderr);
    return text;
  }

 private:
  int file_, out_, err_;
};

// What a child that was started with exec has open.
std::string SeenByAChild() {
  std::string seen;
  std::FILE* child = popen("ls -l /proc/self/fd", "re");
  char line[512];
  while (child != nullptr && std::fgets(line, sizeof line, child) != nullptr) seen += line;
  if (child != nullptr) pclose(child);
  return seen;
}

// Whether a signal that asks the process to end has had a handler that is not the program's, be it for a moment.
class EndHandlersWatch {
 public:
  EndHandlersWatch() : thread_([this] {
    while (!ends_.load(std::memory_order_relaxed)) foreign_ += HandlerOf(SIGINT) != interrupt_ || HandlerOf(SIGTERM) != terminate_;
  }) {}
  ~EndHandlersWatch() { End(); }
  int End() {
    ends_ = true;
    if (thread_.joinable()) thread_.join();
    return foreign_;
  }

 private:
  static sighandler_t HandlerOf(int number) {
    struct sigaction action;
    return sigaction(number, nullptr, &action) == 0 ? action.sa_handler : nullptr;
  }

  const sighandler_t interrupt_ = HandlerOf(SIGINT), terminate_ = HandlerOf(SIGTERM);
  std::atomic<bool> ends_{false};
  int foreign_ = 0;  // the thread's, until it has ended
  std::thread thread_;
};

struct Seen {
  std::vector<void*> handlers;
  std::map<int, std::string> files;
  std::string surroundings, inherited;
  size_t arenas = 0;
};
Seen Look() { return {guest::Handlers(), guest::OpenFiles(), guest::Surroundings(), SeenByAChild(), guest::Arenas()}; }

class Bed : public testing::Test {
 protected:
  // What is wrong with the calls themselves is a failure of the suite.
  static void SetUpTestSuite() {
    before_ = Look();
    if (BedIs("ofi")) {  // others load no such library; and of a program with several threads MPI's descriptors are not marked
      EndHandlersWatch end_handlers;
      StatsJson();  // begins
      foreign_end_handlers_ = end_handlers.End();
    }
    {
      OutputAside aside;
      guest::ThreadWatch watch;
      // One size: a transfer to a far server of MPI's takes a time slice of a busy machine.
      guest::EveryCall(watch, {60001});
      guest::CallsOnOtherSwaps(watch);
      EXPECT_GT(watch.calls(), 100'000u);
      output_ = aside.End();
    }
    // What a server of another host has connected late is marked soon, by the mover.
    for (int i = 0; i < 500 && IsAnyInheritedNow(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    after_ = Look();
  }
  static bool IsAnyInheritedNow() {
    const auto files = guest::OpenFiles();
    return std::any_of(files.begin(), files.end(), [](const auto& file) { return before_.files.count(file.first) == 0 && (fcntl(file.first, F_GETFD) & FD_CLOEXEC) == 0; });
  }

  static inline Seen before_, after_;
  static inline std::string output_;
  static inline int foreign_end_handlers_ = 0;
};

TEST_F(Bed, HeldTheData) {
  const nlohmann::json tiers = nlohmann::json::parse(StatsJson())["tiers"];
  const char* const tier = BedIs("files") ? "file" : "remote";
  ASSERT_TRUE(tiers.contains(tier)) << tiers;
  EXPECT_GT(tiers[tier]["ops_in"].get<uint64_t>(), 100u) << tiers;
  for (const auto& server : tiers[tier].value("servers", nlohmann::json::array())) EXPECT_EQ(server["near"].get<bool>(), BedIs("near")) << tiers;
}

TEST_F(Bed, PrintsNothing) { EXPECT_EQ(output_, ""); }

TEST_F(Bed, OnlyTheSignalOfTheStatisticsGetsAHandler) {
  std::vector<void*> after = after_.handlers;
  EXPECT_NE(after[SIGUSR1 - 1], before_.handlers[SIGUSR1 - 1]);
  after[SIGUSR1 - 1] = before_.handlers[SIGUSR1 - 1];
  EXPECT_EQ(before_.handlers, after);
}

// One that libinfinipath sets when it is loaded ended programs with status 1, which ^C or SIGTERM reached while libfabric began: through another thread than the one that
// loads it and blocks signals.
TEST_F(Bed, NoSignalThatAsksForTheEndGetsAnotherHandlerForAMoment) { EXPECT_EQ(foreign_end_handlers_, 0); }

TEST_F(Bed, EnvironmentFolderLocaleMaskTimersAndLimitsStay) { EXPECT_EQ(before_.surroundings, after_.surroundings); }

TEST_F(Bed, NoChildInheritsADescriptor) {
  size_t brought = 0;
  for (const auto& [number, target] : after_.files) {
    if (before_.files.count(number) != 0) continue;
    ++brought;
    EXPECT_NE(fcntl(number, F_GETFD) & FD_CLOEXEC, 0) << number << " -> " << target;
  }
  RecordProperty("descriptors", std::to_string(brought));
  EXPECT_LE(brought, BedIs("files") || BedIs("ofi-near") ? 5u : BedIs("ofi-far") ? 16u : 18u) << "as docs/architecture.md says";
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  EXPECT_EQ(lines(before_.inherited), lines(after_.inherited)) << after_.inherited;
}

TEST_F(Bed, NoHandlerRunsOnTheLibrarysThreads) {
  const std::vector<guest::OtherThread> others = guest::OtherThreads();
  size_t of_mpi = 0;  // which block little or nothing
  for (const guest::OtherThread& thread : others) {
    if (BedIs("mpi") && (thread.blocked >> (SIGTERM - 1) & 1) == 0) ++of_mpi;
    else guest::ExpectNoHandlerRunsOn(thread);
  }
  EXPECT_LE(of_mpi, 1u) << "UCX's";
  std::string names;
  for (const guest::OtherThread& thread : others) names += thread.name + "\n";
  RecordProperty("threads", std::to_string(others.size()));
  // The mover. MPI: UCX's; and where servers are far, the watchdog of waits. libfabric: that of the links, and that which looks for servers.
  EXPECT_EQ(others.size(), BedIs("files") ? 1u : BedIs("mpi-near") ? 2u : 3u) << names;
}

TEST_F(Bed, TheLibrarysThreadsAddFewArenas) {
  RecordProperty("arenas", std::to_string(after_.arenas - before_.arenas));
  EXPECT_LE(after_.arenas, before_.arenas + guest::OtherThreads().size());
}

TEST_F(Bed, NothingGrowsWithTime) {
  std::vector<managedPtr<double>> data;
  for (int i = 0; i < 100; ++i) data.emplace_back(size_t{8192}, 1.0);  // 6 MiB
  for (int sweep = 0; sweep < 4; ++sweep) guest::Sweep(data);
  const auto files = guest::OpenFiles();
  const size_t heap = mallinfo2().uordblks, threads = guest::OtherThreads().size();
  const uint64_t reads = GetStatistics().reads;
  for (int sweep = 0; sweep < 6; ++sweep) guest::Sweep(data);
  EXPECT_GT(GetStatistics().reads, reads + 100);
  // What is in flight at the moment of asking is a few hundred bytes a transfer.
  EXPECT_LT(mallinfo2().uordblks, heap + (64 << 10));
  EXPECT_EQ(guest::OpenFiles(), files);
  EXPECT_EQ(guest::OtherThreads().size(), threads);
}

TEST_F(Bed, AMissNeedsLittleStack) {
#if !defined(__OPTIMIZE__)
  GTEST_SKIP() << "stacks are larger in unoptimised builds";
#endif
  std::vector<managedPtr<double>> data;
  for (int i = 0; i < 100; ++i) data.emplace_back(size_t{8192}, 1.0);
  // The mover may fetch all that one sweep needs.
  const size_t misses = guest::StackDepthOf([&] {
    const uint64_t before = GetStatistics().misses;
    for (int sweep = 0; sweep < 100 && GetStatistics().misses < before + 50; ++sweep) guest::Sweep(data);
  });
  RecordProperty("miss_stack_bytes", std::to_string(misses));
  EXPECT_LT(misses, size_t{BedIs("ofi-far") ? 40u : 24u} << 10);
  EXPECT_GT(misses, 1100u) << "the test does not see the stack";
}

}  // namespace
}  // namespace ramspan
