// Threads of the library's take no part in the program's signals, from their first moment on.
#include "common/own_thread.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace ramspan {
namespace {

pid_t ThreadId() { return static_cast<pid_t>(syscall(SYS_gettid)); }

std::atomic<pid_t> program_thread{0};
std::atomic<int> here{0}, elsewhere{0};  // runs of the handler; read when the signals have ended
extern "C" void CountThread(int) { ++(ThreadId() == program_thread ? here : elsewhere); }

// Signals to the process, every 20 us: one that this thread is busy with is another thread's, if that lets it come.
class ManySignals {
 public:
  ManySignals() {
    program_thread = ThreadId();
    struct sigaction action {};
    action.sa_handler = CountThread;
    action.sa_flags = SA_RESTART;
    sigaction(SIGRTMIN + 2, &action, &before_);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMIN + 2;
    timer_create(CLOCK_MONOTONIC, &event, &timer_);
    const itimerspec every{{0, 20'000}, {0, 20'000}};
    timer_settime(timer_, 0, &every, nullptr);
  }
  ~ManySignals() {
    timer_delete(timer_);
    sigaction(SIGRTMIN + 2, &before_, nullptr);
  }

 private:
  timer_t timer_{};
  struct sigaction before_ {};
};

// They were blocked by the thread itself, as the first thing that it did: what came before ran the program's handler there.
TEST(OwnThread, NoSignalOfTheProgramsComesBeforeItsFirstInstruction) {
  here = elsewhere = 0;
  {
    const ManySignals signals;
    for (int i = 0; i < 500 || (here < 100 && i < 50'000); ++i) {
      std::thread thread = StartOwnThread([] {});
      thread.join();
    }
  }
  EXPECT_GE(here, 100) << "the signals do not come";
  EXPECT_EQ(elsewhere, 0) << "of " << here + elsewhere << " runs of the handler";
}

TEST(OwnThread, TheMaskOfTheThreadThatStartsItStays) {
  sigset_t before, after;
  sigemptyset(&before);
  sigaddset(&before, SIGUSR2);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::thread thread = StartOwnThread([] {});
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  thread.join();
  EXPECT_EQ(sigismember(&after, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&after, SIGUSR1), 0);
  sigemptyset(&before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(OwnThread, IsNoneOfTheProgram) {
  const int before = ThreadsOfProgram();
  std::atomic<bool> ends{false}, runs{false};
  std::thread own = StartOwnThread([&] {
    runs = true;
    while (!ends) usleep(100);
  });
  while (!runs) usleep(100);
  EXPECT_EQ(ThreadsOfProgram(), before);
  runs = false;
  std::thread programs([&] {
    runs = true;  // libc has begun it with all signals blocked
    while (!ends) usleep(100);
  });
  while (!runs) usleep(100);
  EXPECT_EQ(ThreadsOfProgram(), before + 1);
  ends = true;
  own.join();
  programs.join();
}

}  // namespace
}  // namespace ramspan
