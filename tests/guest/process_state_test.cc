// What belongs to the program's process and not to one thread: signal handlers, open files, standard output, locale, working
// folder, environment, timers, heap, stacks, page cache. docs/architecture.md says what is promised. Each test wants a
// process of its own, as ctest gives it one: what is looked at begins with the first use of the library.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include "common/units.h"
#include "tests/guest/extension_calls.h"
#include "tests/guest/guest.h"
#include "tests/guest/surroundings.h"

#define NEEDS_A_FRESH_PROCESS() \
  if (Started()) GTEST_SKIP() << "needs a process of its own"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using guest::Arenas;
using guest::Handlers;
using guest::OpenFiles;
using guest::StackDepthOf;
using guest::Surroundings;
using guest::Swapped;
using guest::Sweep;

void UseEverything() {
  const auto call_it = [](const char*, auto&& call) { call(); };
  guest::EveryCall(call_it, {8192});
  guest::CallsOnOtherSwaps(call_it);
}

// ---- signals -------------------------------------------------------------------------------------------------------

TEST(ProcessState, OnlyTheSignalOfTheStatisticsGetsAHandler) {
  NEEDS_A_FRESH_PROCESS();
  std::vector<void*> before = Handlers();
  UseEverything();
  std::vector<void*> after = Handlers();
  EXPECT_NE(after[SIGUSR1 - 1], before[SIGUSR1 - 1]);
  after[SIGUSR1 - 1] = before[SIGUSR1 - 1];
  EXPECT_EQ(before, after);
}

TEST(ProcessState, HandlersOfTheProgramStay) {
  NEEDS_A_FRESH_PROCESS();
  for (const int one : {SIGUSR1, SIGUSR2, SIGINT, SIGTERM, SIGSEGV, SIGFPE, SIGCHLD}) signal(one, [](int) {});
  const std::vector<void*> before = Handlers();
  UseEverything();
  EXPECT_EQ(before, Handlers());
}

// ---- open files ----------------------------------------------------------------------------------------------------

// What the library keeps open is not inherited by programs that the program starts, and does not become more.
TEST(ProcessState, FewFilesAreOpenAllOfThemCloseOnExecAndNoMoreWithTime) {
  NEEDS_A_FRESH_PROCESS();
  const auto before = OpenFiles();
  UseEverything();
  const auto once = OpenFiles();
  for (const auto& [fd, target] : once) {
    if (before.count(fd) != 0) continue;
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << fd << " -> " << target;
  }
  // Configured swap files: one for each piece of the limit that was needed, here one.
  EXPECT_LE(once.size(), before.size() + 4) << testing::PrintToString(once);
  UseEverything();
  EXPECT_EQ(OpenFiles().size(), once.size()) << testing::PrintToString(OpenFiles());
}

// ---- standard output, exit status, environment, folder, locale, timers ---------------------------------------------

// Of a child process that runs `body` and exits with its result.
struct ChildOutcome {
  int status = -1;
  std::string out;  // both of its outputs
};

template <class Body>
ChildOutcome InAChild(Body&& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    std::exit(body());
  }
  close(ends[1]);
  ChildOutcome outcome;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) outcome.out.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  return outcome;
}

TEST(ProcessState, AHealthyRunPrintsNothingAndKeepsItsExitStatus) {
  NEEDS_A_FRESH_PROCESS();
  const ChildOutcome outcome = InAChild([] {
    UseEverything();
    return 37;
  });
  EXPECT_EQ(outcome.status, 37);
  EXPECT_EQ(outcome.out, "");
}

TEST(ProcessState, EnvironmentFolderLocaleMaskTimersAndLimitsStay) {
  NEEDS_A_FRESH_PROCESS();
  const std::string before = Surroundings();
  UseEverything();
  EXPECT_EQ(before, Surroundings());
}

// A locale with a decimal comma and points between thousands, made for this test, because few machines have one.
class CommaLocale {
 public:
  CommaLocale() {
    std::string folder = testing::TempDir() + "ramspan-locale-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return;
    folder_ = folder;
    const std::string command = "localedef -i de_DE -f UTF-8 '" + folder + "/de_DE.UTF-8' >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0 && !fs::exists(folder_ / "de_DE.UTF-8")) return;
#if defined(__SANITIZE_ADDRESS__)
    const __lsan::ScopedDisabler glibc_forgets_what_it_made_of_the_path;
#endif
    setenv("LOCPATH", folder.c_str(), 1);
    works_ = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr && *std::localeconv()->decimal_point == ',';
    if (works_) std::locale::global(std::locale("de_DE.UTF-8"));
  }
  ~CommaLocale() {
    std::locale::global(std::locale::classic());
    unsetenv("LOCPATH");
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  bool works() const { return works_; }

 private:
  fs::path folder_;
  bool works_ = false;
};

TEST(ProcessState, SizesAreReadAndWrittenAlikeInALocaleWithADecimalComma) {
  NEEDS_A_FRESH_PROCESS();
  const CommaLocale locale;
  if (!locale.works()) GTEST_SKIP() << "localedef cannot make a locale with a decimal comma here";
  EXPECT_EQ(FormatBytes(uint64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(ParseBytes("1.5 GiB").value(), uint64_t{3} << 29);
  setenv("RAMSPAN_MEMORY", "4.5 MiB", 1);
  EXPECT_EQ(MemoryLimit(), uint64_t{9} << 19);
  const std::string json = StatsJson();
  EXPECT_NE(json.find("4718592"), std::string::npos) << json;
  EXPECT_EQ(json.find("4.718.592"), std::string::npos) << json;
}

// ---- heap and stack ------------------------------------------------------------------------------------------------

TEST(ProcessState, MissesDoNotGrowTheHeapOnceWarm) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the heap is the sanitizer's";
#endif
  auto data = Swapped();
  for (int sweep = 0; sweep < 20; ++sweep) Sweep(data);
  const size_t before = mallinfo2().uordblks;
  for (int sweep = 0; sweep < 40; ++sweep) Sweep(data);
  const size_t after = mallinfo2().uordblks;
  // What is in flight at the moment of asking is a few hundred bytes a transfer.
  EXPECT_LT(after, before + (64 << 10)) << "over 10 000 misses";
}

TEST(ProcessState, TheLibrarysThreadsAddOneArenaAtMost) {
  NEEDS_A_FRESH_PROCESS();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the heap is the sanitizer's";
#endif
  const size_t before = Arenas();
  UseEverything();
  EXPECT_LE(Arenas(), before + 1);
}

// The program's handlers run on the program's threads, whatever is sent to the process.
TEST(ProcessState, TheLibrarysThreadsBlockAllSignals) {
  NEEDS_A_FRESH_PROCESS();
  UseEverything();
  const std::vector<guest::OtherThread> others = guest::OtherThreads();
  for (const guest::OtherThread& thread : others) guest::ExpectNoHandlerRunsOn(thread);
#if !defined(__SANITIZE_THREAD__)  // which has a thread of its own
  EXPECT_EQ(others.size(), 1u) << "the mover";
#endif
}

// A program may give its threads small stacks (thread pools, coroutines). What a miss needs is far below 64 KiB, the least
// that is of any use with glibc, whose own thread data are in there, too.
TEST(ProcessState, AMissNeedsLittleStack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "stacks are larger in instrumented and unoptimised builds";
#endif
  auto data = Swapped();
  const size_t misses = StackDepthOf([&] {
    for (int sweep = 0; sweep < 3; ++sweep) Sweep(data);
  });
  RecordProperty("miss_stack_bytes", std::to_string(misses));
  EXPECT_LT(misses, size_t{24} << 10);
  EXPECT_GT(misses, 1100u) << "the test does not see the stack";
}

// The first use reads configuration, looks at the machine and makes the swap files.
TEST(ProcessState, TheFirstUseNeedsModerateStack) {
  NEEDS_A_FRESH_PROCESS();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "stacks are larger in instrumented and unoptimised builds";
#endif
  const size_t start = StackDepthOf([] { managedPtr<double> first(size_t{8192}, 1.0); });
  RecordProperty("start_stack_bytes", std::to_string(start));
  EXPECT_LT(start, size_t{128} << 10);
}

TEST(ProcessState, AThreadWithAStackOf64KibPullsAndMisses) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
  GTEST_SKIP() << "stacks are larger in instrumented and unoptimised builds";
#endif
  auto data = Swapped();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, std::max<size_t>(64 << 10, static_cast<size_t>(PTHREAD_STACK_MIN))), 0);
  pthread_t thread;
  const auto run = [](void* what) -> void* {
    for (int sweep = 0; sweep < 3; ++sweep) Sweep(*static_cast<std::vector<managedPtr<double>>*>(what));
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &data), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  const adhereTo<double> glue(data.back());
  const double* p = glue;
  EXPECT_EQ(p[0], 4.0);
}

// ---- page cache ----------------------------------------------------------------------------------------------------

struct FilePages {
  size_t all = 0, cached = 0;
  bool direct = false;
};

// Of the files that were opened since `before`: swap files have no name. mincore counts pages of a file in the page cache,
// whoever brought them there.
FilePages CachedPages(const std::map<int, std::string>& before) {
  FilePages pages;
  for (const auto& [fd, target] : OpenFiles()) {
    if (before.count(fd) != 0) continue;
    struct stat status = {};
    fstat(fd, &status);
    const auto bytes = static_cast<size_t>(status.st_size);
    void* mapped = bytes == 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) continue;
    std::vector<unsigned char> in_memory((bytes + 4095) / 4096);
    if (mincore(mapped, bytes, in_memory.data()) == 0) {
      pages.all += in_memory.size();
      pages.cached += static_cast<size_t>(std::count_if(in_memory.begin(), in_memory.end(), [](unsigned char c) { return c & 1; }));
    }
    munmap(mapped, bytes);
    pages.direct |= (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
  }
  return pages;
}

// With enableDMA swap does not push the program's files out of the page cache.
TEST(ProcessState, DirectSwapFilesAreNotInThePageCache) {
  auto data = Swapped();
  for (const bool direct : {true, false}) {
    const auto before = OpenFiles();
    SwapFiles files;
    files.mask = testing::TempDir() + "ramspan-guest-%d-%d.swap";
    files.bytes = 64 << 20;
    files.direct = direct;
    const SwapId id = AddSwapFiles(files);
    UseSwap(id);
    for (int sweep = 0; sweep < 3; ++sweep) Sweep(data);
    const FilePages pages = CachedPages(before);
    EXPECT_GT(pages.all, 1000u);
    if (!direct) {
      EXPECT_GT(pages.cached, 100u) << "the test cannot see the page cache";
    } else if (pages.direct) {
      EXPECT_LT(pages.cached, pages.all / 100);
    }
    RemoveSwap(id);
  }
}

}  // namespace
}  // namespace ramspan
