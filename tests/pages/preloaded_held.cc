// Scenarios of `ramspan run --pages` (preloaded.cc), what a reader found: calls on stacks that are swapped themselves, addresses that are given back in pieces, forks beside what a device holds, and
// locks where descriptors have taken most of the limit.
#include <linux/io_uring.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/pages/preloaded.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kStack = 2 * kMiB;
constexpr auto kLong = std::chrono::milliseconds(600);

// Calls that take locks of Ramspan's, or make others' memory leave, while the stack under them may leave: they waited for themselves, or ended the process.
void* CallsOnOwnStack(void*) {
  volatile char deep[kStack / 2];  // below what stays because a thread begins there
  deep[0] = 1;
  char* const memory = Map(2 * kMiB);
  std::memset(memory, 1, 2 * kMiB);
  for (const auto begin = Clock::now(); Clock::now() - begin < kLong;) {
    Sweep();
    CHECK(mprotect(memory, 2 * kMiB, PROT_READ) == 0 && memory[kMiB] == 1);
    CHECK(mprotect(memory, 2 * kMiB, PROT_READ | PROT_WRITE) == 0);
    CHECK(mlock(memory, 2 * kMiB) == 0 && munlock(memory, 2 * kMiB) == 0);
  }
  long rounds = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < kLong; ++rounds) {
    CHECK(madvise(memory, 2 * kMiB, MADV_NORMAL) == 0);
    char* const more = Map(2 * kMiB);
    for (size_t i = 0; i < 2 * kMiB; i += 65536) more[i] = 1;
    CHECK(munmap(more, 2 * kMiB) == 0);
  }
  // What blocks all signals, those by which pages come too: in libc, and in Ramspan for the handler that the program sets of such a signal.
  for (const auto begin = Clock::now(); Clock::now() - begin < kLong;) {
    for (const int number : {SIGBUS, SIGSEGV, SIGUSR1}) {
      struct sigaction own = {}, before = {};
      own.sa_handler = [](int) {};
      CHECK(sigaction(number, &own, &before) == 0 && sigaction(number, &before, &own) == 0);
    }
    pthread_t other;
    CHECK(pthread_create(&other, nullptr, [](void*) -> void* { return pause(), nullptr; }, nullptr) == 0);
    CHECK(pthread_kill(other, 0) == 0 && pthread_cancel(other) == 0 && pthread_join(other, nullptr) == 0);
  }
  // Calls put signals off, with a mask that lay on the stack when the kernel looked.
  sigset_t mask;
  CHECK(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0 && sigismember(&mask, SIGUSR1) == 0 && sigismember(&mask, SIGBUS) == 0);
  CHECK(rounds > 0 && deep[0] == 1 && memory[2 * kMiB - 1] == 1);
  return nullptr;
}

char leaves_with;

}  // namespace

void CallsOnStacks() {
  void* const stack = aligned_alloc(65536, kStack);
  std::memset(stack, 0, kStack);
  Sweep();
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, kStack) == 0);
  std::atomic<bool> stop{false};
  char* const much = New(24 * kMiB);
  std::thread sweeper([&] {
    while (!stop.load()) {
      for (size_t i = 0; i < 24 * kMiB; i += 4096) ++much[i];
    }
  });
  pthread_t thread;
  CHECK(pthread_create(&thread, &attributes, CallsOnOwnStack, nullptr) == 0);
  CHECK(pthread_join(thread, nullptr) == 0);
  stop.store(true);
  sweeper.join();
  // A handler that is run by a signal to its own thread may leave by pthread_exit: nothing on the way says that it throws nothing.
  struct sigaction leaves = {};
  leaves.sa_handler = [](int) { pthread_exit(&leaves_with); };
  CHECK(sigaction(SIGUSR2, &leaves, nullptr) == 0);
  void* left_with = nullptr;
  CHECK(pthread_create(&thread, nullptr, [](void*) -> void* { return pthread_kill(pthread_self(), SIGUSR2), nullptr; }, nullptr) == 0);
  CHECK(pthread_join(thread, &left_with) == 0 && left_with == &leaves_with);
}

// Standard error is closed, and somebody prints there: the file with the copy for children had its number.
void ChildrenWithoutStandardError() {
  constexpr size_t kWords = 32 * kMiB / sizeof(uint64_t);
  auto* const words = reinterpret_cast<uint64_t*>(New(kWords * sizeof(uint64_t)));
  for (size_t i = 0; i < kWords; ++i) words[i] = i;
  CHECK(close(STDERR_FILENO) == 0);
  std::atomic<bool> stop{false};
  std::thread prints([&stop] {
    const std::string line(100, 'E');
    while (!stop.load()) {
      static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      // The file of its copy had that number there, too, and was written over.
      std::thread([] {
        const std::string line(100, 'e');
        for (;;) static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
      }).detach();
      std::this_thread::sleep_for(std::chrono::milliseconds(i));
      for (size_t at = kWords; at > 0; --at) {
        if (words[at - 1] != at - 1) _exit(1);
      }
      _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  stop.store(true);
  prints.join();
}

// fork and loads are no cancellation points: what Ramspan does there ended the process, and a child waited for ever for a thread that had gone.
void ForksOfCancelled() {
  static char* memory = nullptr;
  // The first allocation starts Ramspan, in a thread that was cancelled there.
  std::thread([] {
    pthread_cancel(pthread_self());
    memory = New(4 * kMiB);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  }).join();
  CHECK(memory != nullptr);
  std::memset(memory, 1, 4 * kMiB);
  static int forked = 0;
  const auto forks_when_cancelled = [](void*) -> void* {
    pthread_cancel(pthread_self());
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    int status = 1;
    if (waitpid(child, &status, 0) == child && status == 0) ++forked;
    pthread_setcancelstate(before, nullptr);
    pthread_testcancel();
    return nullptr;
  };
  const auto touches_when_cancelled = [](void*) -> void* {
    pthread_cancel(pthread_self());
    memory[2 * kMiB] = 2;
    pthread_testcancel();
    return nullptr;
  };
  const auto end_of = [](void* (*function)(void*)) {
    pthread_t thread;
    void* result = nullptr;
    return pthread_create(&thread, nullptr, function, nullptr) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED;
  };
  CHECK(end_of(forks_when_cancelled) && forked == 1);
  const pid_t child = fork();
  if (child == 0) _exit(end_of(touches_when_cancelled) && memory[2 * kMiB] == 2 && memory[5] == 1 ? 0 : 1);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

// What is done at the end of a process, the statistics above all, was done on that stack, and could wait for itself.
void ExitsOnStacks() {
  void* const stack = aligned_alloc(65536, kStack);
  std::memset(stack, 0, kStack);
  static char* const much = New(24 * kMiB);
  std::thread([] {
    for (;;) {
      for (size_t i = 0; i < 24 * kMiB; i += 4096) ++much[i];
    }
  }).detach();
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, kStack) == 0);
  pthread_t thread;
  const auto exits = [](void*) -> void* {
    volatile char deep[kStack / 2];
    deep[0] = 1;
    std::this_thread::sleep_for(kLong / 4);
    puts("good");
    exit(deep[0] - 1);
  };
  CHECK(pthread_create(&thread, &attributes, exits, nullptr) == 0);
  CHECK(pthread_join(thread, nullptr) == 0);
}

// Blocks whose sizes change while others give parts of them back: a chunk that was not there any more was looked at (SIGSEGV).
void SplitsBesideDiscards() {
  constexpr size_t kBytes = 24 * kMiB;
  char* const memory = Map(kBytes);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 1; t <= 5; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(t);
      while (!stop.load()) {
        const size_t at = (size_t{random()} << 7) % kBytes;
        if (t <= 3) {
          memory[at] = static_cast<char>(t);
        } else {
          const size_t begin = at & ~size_t{65535}, bytes = std::min(kBytes - begin, size_t{65536} << (random() % 3));
          CHECK(madvise(memory + begin, bytes, MADV_DONTNEED) == 0);
        }
      }
    });
  }
  for (int i = 0; i < 400; ++i) {
    CHECK(madvise(memory, kBytes, i % 2 == 0 ? MADV_RANDOM : MADV_SEQUENTIAL) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stop.store(true);
  for (std::thread& thread : threads) thread.join();
}

// Zeros that have left as a mark, and got a place in swap while a forked child was given them: what was in their frame was taken for them where the block became several.
void ZerosThatChildrenRead() {
  constexpr size_t kZeros = 32 * kMiB, kBytes = 96 * kMiB, kPage = 4096, kPages = kZeros / kPage;
  char* const zeros = static_cast<char*>(aligned_alloc(kZeros, kZeros));
  char* const bytes = Map(kBytes);
  volatile char seen = 0;
  for (int round = 0; round < 6; ++round) {
    CHECK(madvise(zeros, kZeros, MADV_DONTNEED) == 0 && madvise(zeros, kZeros, round % 2 == 1 ? MADV_SEQUENTIAL : MADV_NORMAL) == 0);
    for (size_t i = 0; i < kZeros; i += kPage) seen = zeros[i];
    CHECK(madvise(bytes, kBytes, MADV_DONTNEED) == 0);
    for (size_t i = 0; i < kBytes; i += 64) bytes[i] = static_cast<char>(i / 64 % 255 + 1);
    const pid_t child = fork();
    if (child == 0) {
      for (size_t i = 0; i < kZeros; i += kPage) seen = zeros[i];
      _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int sweep = 0; sweep < 2; ++sweep) {
      for (size_t i = 0; i < kBytes; i += kPage) ++bytes[i];
    }
    CHECK(madvise(zeros, kZeros, MADV_RANDOM) == 0);
    for (size_t i = 0; i < kPages; ++i) {
      const auto* const words = reinterpret_cast<const uint64_t*>(zeros + i * 2654435761U % kPages * kPage);
      CHECK(std::all_of(words, words + kPage / sizeof(uint64_t), [](uint64_t word) { return word == 0; }));
    }
  }
  static_cast<void>(seen);
}

// In pieces smaller than a unit, front to back, addresses were used up and their descriptors stayed, until the limit did not hold.
void GivenBackInPieces() {
  constexpr size_t kBytes = 2 * kMiB;
  for (const size_t piece : {65536, 32768, 16384, 4096}) {
    std::set<char*> places;
    for (int i = 0; i < 200; ++i) {
      char* const begin = Map(kBytes);
      begin[0] = begin[kBytes - 1] = 1;
      places.insert(begin);
      for (size_t at = 0; at < kBytes; at += piece) CHECK(munmap(begin + at, piece) == 0);
    }
    CHECK(places.size() < 20);
  }
  // What is mapped again in the place of what was given back is not given back with the rest.
  char* const begin = Map(kBytes);
  std::memset(begin, 1, kBytes);
  for (size_t at = 0; at < kBytes; at += 65536) {
    CHECK(munmap(begin + at, 32768) == 0);
    CHECK(mmap(begin + at, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == begin + at);
    CHECK(begin[at] == 0);
    std::memset(begin + at, 2, 32768);
    CHECK(munmap(begin + at + 32768, 32768) == 0);
  }
  char* const others = Map(kBytes);
  std::memset(others, 3, kBytes);
  Sweep();
  for (size_t at = 0; at < kBytes; at += 65536) CHECK(begin[at] == 2 && begin[at + 32767] == 2 && others[at] == 3);
  // The same at the units' ends.
  char* const ends = Map(kBytes);
  std::memset(ends, 1, kBytes);
  for (size_t at = 0; at < kBytes; at += 65536) {
    CHECK(munmap(ends + at + 32768, 32768) == 0);
    CHECK(mmap(ends + at + 32768, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == ends + at + 32768);
    std::memset(ends + at + 32768, 4, 32768);
    CHECK(munmap(ends + at, 32768) == 0);
  }
  char* const more = Map(kBytes);
  std::memset(more, 5, kBytes);
  Sweep();
  for (size_t at = 0; at < kBytes; at += 65536) CHECK(ends[at + 32768] == 4 && ends[at + 65535] == 4 && more[at] == 5);
  // Another thread gives the rest of a unit back while its first half is mapped again: what mmap says is there was free.
  std::atomic<char*> rest{nullptr};
  std::atomic<bool> ends_racing{false};
  std::thread racing([&] {
    while (!ends_racing.load()) {
      char* const at = rest.load();
      if (at == nullptr) continue;
      CHECK(munmap(at, 32768) == 0);
      rest.store(nullptr);
    }
  });
  for (int i = 0; i < 200; ++i) {
    char* const units = Map(kBytes);
    std::vector<char*> again;
    for (size_t at = 0; at < kBytes; at += 65536) {
      CHECK(munmap(units + at, 32768) == 0);
      rest.store(units + at + 32768);
      for (int wait = (i * 7 + static_cast<int>(at >> 16) * 13) % 300; wait > 0; --wait) __builtin_ia32_pause();
      if (mmap(units + at, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) again.push_back(units + at);
      while (rest.load() != nullptr) {
      }
    }
    for (char* const one : again) CHECK(mprotect(one, 4096, PROT_READ | PROT_WRITE) == 0);
    for (char* const one : again) CHECK(munmap(one, 32768) == 0);
  }
  ends_racing.store(true);
  racing.join();
  // Two threads, each a part of each unit, and a third one that gets what becomes free.
  std::atomic<bool> stop{false};
  std::thread third([&] {
    while (!stop.load()) {
      char* const own = Map(kMiB);
      std::memset(own, 6, kMiB);
      for (size_t at = 0; at < kMiB; ++at) CHECK(own[at] == 6);
      CHECK(munmap(own, kMiB) == 0);
    }
  });
  for (int i = 0; i < 100; ++i) {
    char* const both = Map(kBytes);
    for (size_t at = 0; at < kBytes; at += 4096) both[at] = 1;
    const auto unmap = [both](size_t from, size_t bytes) {
      for (size_t at = from; at < kBytes; at += 65536) CHECK(munmap(both + at, bytes) == 0);
    };
    std::thread front(unmap, 0, 20480);
    unmap(20480, 65536 - 20480);
    front.join();
  }
  stop.store(true);
  third.join();
}

// A block of which a device holds a page in the middle leaves in part, and what has left came back by a move that no fork may come between: it aborted.
void ForksBesideDevices() {
  constexpr size_t kUnit = 65536, kBuffers = 4;
  char* const memory = Map(2 * kMiB);
  std::memset(memory, 5, kBuffers * kUnit);
  io_uring_params parameters{};
  const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 8, &parameters));
  if (ring < 0) return static_cast<void>(std::fputs("skipped: there is no io_uring here\n", stderr));
  iovec buffers[kBuffers];
  for (size_t i = 0; i < kBuffers; ++i) buffers[i] = {memory + i * kUnit + kUnit / 2, 4096};
  if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, buffers, kBuffers) != 0) return static_cast<void>(std::fputs("skipped: no memory may be registered (ulimit -l), or the kernel's faults are not served\n", stderr));
  std::atomic<bool> stop{false};
  char* const much = New(64 * kMiB);
  std::thread sweeper([&] {
    while (!stop.load()) {
      for (size_t i = 0; i < 64 * kMiB; i += 4096) ++much[i];
    }
  });
  for (const auto begin = Clock::now(); Clock::now() - begin < 5 * kLong;) CHECK(InChild([] { return 3; }) == 3);
  stop.store(true);
  sweeper.join();
  for (size_t i = 0; i < kBuffers * kUnit; ++i) CHECK(memory[i] == 5);
  close(ring);
}

// Half of the limit was allowed to be locked, also where frames had less than that: it waited for ever. With blocks of 4 KiB under 16 MiB.
void LocksBesideDescriptors() {
  constexpr size_t kMuch = 260 * kMiB;
  char* const memory = Map(kMuch);
  for (size_t i = 0; i < kMuch; i += 4096) memory[i] = 1;
  for (size_t bytes = 8 * kMiB; bytes > 0; bytes /= 2) {
    const bool locked = mlock(memory, bytes) == 0;
    CHECK(locked || errno == ENOMEM);
    for (size_t i = 0; i < 16 * kMiB; i += 4096) CHECK(memory[i] == 1);
    if (locked) CHECK(munlock(memory, bytes) == 0);
  }
}

// What is locked before it is touched may come to more than there is room for beside descriptors: it waited for ever, and now ends, with the reason. As LocksBesideDescriptors.
void LocksBeforeTheyAreTouched() {
  constexpr size_t kMuch = 260 * kMiB, kLocked = 8 * kMiB;
  char* const memory = Map(kMuch);
  for (size_t i = 0; i < kMuch; i += 4096) memory[i] = 1;
  char* const locked = Map(kLocked);
  CHECK(mlock2(locked, kLocked, MLOCK_ONFAULT) == 0);
  for (size_t i = 0; i < kLocked; i += 4096) locked[i] = 1;
}
