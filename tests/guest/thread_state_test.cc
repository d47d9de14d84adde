// What belongs to the program's thread is as it was when a call returns: floating-point environment, errno, signal mask,
// affinity, name. docs/architecture.md says what is promised.
#include <fenv.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/guest/extension_calls.h"
#include "tests/guest/guest.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ramspan {
namespace {

constexpr int kOdd = 4711;  // no error has this number

TEST(ThreadState, ErrnoIsLeftAloneByCallsThatSucceed) {
  const auto check = [](const char* name, auto&& call) {
    errno = kOdd;
    call();
    const int after = errno;
    EXPECT_EQ(after, kOdd) << name << ": " << std::strerror(after);
  };
  guest::EveryCall(check);
  guest::CallsOnOtherSwaps(check);
}

TEST(ThreadState, TheSignalMaskIsLeftAlone) {
  sigset_t before;
  sigemptyset(&before);
  sigaddset(&before, SIGUSR2);
  sigaddset(&before, SIGRTMIN + 3);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const auto check = [&](const char* name, auto&& call) {
    call();
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (int signal = 1; signal < SIGRTMAX; ++signal) {
      if (signal == SIGRTMIN - 1 || signal == SIGRTMIN - 2) continue;  // glibc's own
      EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << name << ", signal " << signal;
    }
  };
  guest::EveryCall(check, {8192});
  guest::CallsOnOtherSwaps(check);
}

TEST(ThreadState, AffinityAndNameAreLeftAloneAlsoInThreadsThatStartLater) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof before, &before), 0);
  char name_before[16];
  pthread_getname_np(pthread_self(), name_before, sizeof name_before);
  const auto compare = [&](const char* name) {
    cpu_set_t after;
    CPU_ZERO(&after);
    pthread_getaffinity_np(pthread_self(), sizeof after, &after);
    EXPECT_TRUE(CPU_EQUAL(&before, &after)) << name;
    char name_after[16];
    pthread_getname_np(pthread_self(), name_after, sizeof name_after);
    EXPECT_STREQ(name_before, name_after) << name;
    int policy = -1;
    sched_param parameters{};
    pthread_getschedparam(pthread_self(), &policy, &parameters);
    EXPECT_EQ(policy, SCHED_OTHER) << name;
  };
  const auto check = [&](const char* name, auto&& call) {
    call();
    compare(name);
  };
  guest::EveryCall(check, {8192});
  guest::CallsOnOtherSwaps(check);
  std::thread([&] { compare("a later thread"); }).join();
}

#if defined(__x86_64__)

// Rounding, flush-to-zero, denormals-are-zero and the masks of traps; the low six bits are flags of what has happened.
constexpr unsigned kMxcsrFlags = 0x3f;

struct X87 {  // FNSTENV
  uint16_t control, u0, status, u1, tags, u2;
  uint32_t rest[4];
};

X87 ReadX87() {
  X87 x87;
  __asm__ volatile("fnstenv %0\n\tfldcw %0" : "+m"(x87));  // fnstenv masks all traps: put the control word back
  return x87;
}

class FpEnvironment : public testing::Test {
 protected:
  ~FpEnvironment() override { fesetenv(FE_DFL_ENV); }

  // What a program may set: another rounding, flush-to-zero for speed, and some flags that it has not looked at yet.
  static void MakeOdd() {
    fesetround(FE_UPWARD);
    feclearexcept(FE_ALL_EXCEPT);
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
  }
};

TEST_F(FpEnvironment, RoundingAndDenormalsAreLeftAlone) {
  MakeOdd();
  const unsigned control = _mm_getcsr() & ~kMxcsrFlags;
  const X87 x87 = ReadX87();
  const auto check = [&](const char* name, auto&& call) {
    call();
    EXPECT_EQ(_mm_getcsr() & ~kMxcsrFlags, control) << name;
    const X87 after = ReadX87();
    EXPECT_EQ(after.control, x87.control) << name;
    EXPECT_EQ(after.tags, 0xffff) << name << ": the x87 stack is not empty";
  };
  guest::EveryCall(check);
  guest::CallsOnOtherSwaps(check);
}

// Inexact is raised by nearly every calculation and every conversion of a count: nobody can ask for it around calls.
constexpr int kNeverRaised = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW;

TEST_F(FpEnvironment, NoFlagButInexactIsRaisedAndNoneIsCleared) {
  const auto check = [&](const char* name, auto&& call) {
    feclearexcept(FE_ALL_EXCEPT);
    call();
    EXPECT_EQ(fetestexcept(kNeverRaised), 0) << name;
    feraiseexcept(kNeverRaised);
    EXPECT_EQ(fetestexcept(kNeverRaised), kNeverRaised) << name;
  };
  const auto flags_stay = [&](const char* name, auto&& call) {
    feraiseexcept(FE_ALL_EXCEPT);
    call();
    EXPECT_EQ(fetestexcept(FE_ALL_EXCEPT), FE_ALL_EXCEPT) << name;
  };
  guest::EveryCall(check);
  guest::EveryCall(flags_stay, {8192});
  guest::CallsOnOtherSwaps(check);
}

// A program that wants to be stopped by its own mistakes (feenableexcept, -ffpe-trap) is not stopped by the library's
// arithmetic, on its threads or on the library's, which would inherit its traps.
TEST_F(FpEnvironment, TrapsOfTheProgramCatchNothingOfTheLibrary) {
  feclearexcept(FE_ALL_EXCEPT);
  feenableexcept(kNeverRaised);
  guest::EveryCall([](const char*, auto&& call) { call(); }, {8192});
  guest::CallsOnOtherSwaps([](const char*, auto&& call) { call(); });
  EXPECT_EQ(fegetexcept(), kNeverRaised);
  fedisableexcept(FE_ALL_EXCEPT);
}

// Inexact traps cannot be asked for around calls, but a thread that starts Ramspan may have any: its own threads start with
// the default environment, and not with that of whoever was first.
TEST_F(FpEnvironment, TheLibrarysThreadsDoNotInheritTheProgramsTraps) {
  if (Started()) GTEST_SKIP() << "needs a process of its own";
  class RoundingStore : public MapStore {
   public:
    RoundingStore() : MapStore(256 << 20), program_(std::this_thread::get_id()) {}
    bool Write(uint64_t slot, const void* data, size_t bytes) override {
      if (std::this_thread::get_id() != program_) {
        ++by_mover;
        if (fegetround() != FE_TONEAREST || (_mm_getcsr() & 0x8040) != 0) ++odd;
      }
      return MapStore::Write(slot, data, bytes);
    }
    std::atomic<int> by_mover{0}, odd{0};  // counts; read by a thread that polls for them

   private:
    const std::thread::id program_;
  } store;
  MakeOdd();
  const SwapId id = AddSwap(&store);
  UseSwap(id);
  {
    std::vector<managedPtr<double>> data;
    for (int i = 0; i < 200; ++i) data.emplace_back(size_t{8192});
    for (int sweep = 0; sweep < 1000 && store.by_mover < 20; ++sweep) {
      for (auto& one : data) {
        adhereTo<double> glue(one);
        double* p = glue;
        p[0] = sweep;
      }
    }
  }
  RemoveSwap(id);
  EXPECT_GE(store.by_mover, 20);
  EXPECT_EQ(store.odd, 0);
}

#endif

}  // namespace
}  // namespace ramspan
