#include "launch/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

void Block(int signal_number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

// A child that has come to what it does for good when the constructor returns.
class Child {
 public:
  template <typename F>
  explicit Child(const F& prepare) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prepare(ready[1]);
      for (;;) pause();
    }
    close(ready[1]);
    char byte;
    came_ = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
  }
  ~Child() {
    SendSignal(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  bool came() const { return came_; }

 private:
  pid_t pid_ = -1;
  bool came_ = false;
};
void Tell(int ready) { static_cast<void>(!write(ready, "!", 1)); }

TEST(Hears, WhoHandlesTheSignalOrHasItBlocked) {
  const Child handles([](int ready) {
    signal(SIGUSR1, [](int) {});
    Tell(ready);
  });
  const Child blocks([](int ready) {
    Block(SIGUSR1);
    Tell(ready);
  });
  const Child does_not([](int ready) { Tell(ready); });
  ASSERT_TRUE(handles.came() && blocks.came() && does_not.came());
  EXPECT_TRUE(Hears(handles.pid(), SIGUSR1));
  EXPECT_TRUE(Hears(blocks.pid(), SIGUSR1));
  EXPECT_FALSE(Hears(does_not.pid(), SIGUSR1));
}

// A shell blocks all signals until the child that it has made by vfork calls exec, which takes as long as it likes on a busy machine. What it was sent ended it afterwards.
TEST(Hears, NotWhoHasItBlockedWhileItMakesAChild) {
  const Child makes([](int ready) {
    Block(SIGUSR1);
    if (vfork() == 0) {
      Tell(ready);
      usleep(300'000);
      _exit(0);
    }
    signal(SIGUSR1, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
  });
  ASSERT_TRUE(makes.came());
  EXPECT_FALSE(Hears(makes.pid(), SIGUSR1));
}

}  // namespace
}  // namespace ramspan
