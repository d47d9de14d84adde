// Scenarios for `ramspan run --pages` that a test of the library cannot have: each is a program that knows nothing of Ramspan, and says "good" when it
// saw what it would see without (but for `child`). usage: preloaded SCENARIO
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "preloaded.h"

namespace {

void Remaps() {
  char* const p = Map(8 * kMiB);
  memset(p, 1, 8 * kMiB);
  errno = 0;
  CHECK(mremap(p, 8 * kMiB, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL && p[0] == 1);
  errno = 0;
  CHECK(mprotect(p + 1, 4096, PROT_READ) == -1 && errno == EINVAL);
  CHECK(mprotect(p, 8192, 0x7000) == -1 && errno == EINVAL && p[0] == 1);
  CHECK(mremap(Map(8192, PROT_READ), 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, p + 65536) == MAP_FAILED && p[65536] == 1);  // nobody would have known
  char* const cut = Map(4 * kMiB);
  cut[0] = 3;
  CHECK(munmap(cut + 2 * kMiB, 2 * kMiB) == 0);
  CHECK(mremap(cut, 4 * kMiB, 6 * kMiB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT && cut[0] == 3);
  char* const place = Map(8 * kMiB, PROT_NONE);
  auto* const moved = static_cast<char*>(mremap(p, 8 * kMiB, 8 * kMiB, MREMAP_MAYMOVE | MREMAP_FIXED, place));
  CHECK(moved == static_cast<void*>(MAP_FAILED) ? p[5 * kMiB] == 1 : moved == place && moved[5 * kMiB] == 1);
}

void Calls() {
  const size_t n = 12 * kMiB;
  char* const from = Filled(n);
  char name[] = "/tmp/ramspan-preloaded-XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  CHECK(write(fd, from, n) == static_cast<ssize_t>(n));
  Sweep();
  CHECK(pwrite(fd, from + 5 * kMiB, 3 * kMiB, 5 * kMiB) == static_cast<ssize_t>(3 * kMiB));
  char* const to = New(n);
  Sweep();
  CHECK(pread(fd, to, n, 0) == static_cast<ssize_t>(n) && IsFilled(to, 0, n));
  memset(to, 0, n);
  Sweep();
  CHECK(lseek(fd, 0, SEEK_SET) == 0);
  for (size_t done = 0; done < n;) {
    iovec pieces[2] = {{to + done, (n - done) / 2}, {to + done + (n - done) / 2, n - done - (n - done) / 2}};
    const ssize_t got = readv(fd, pieces, 2);
    CHECK(got > 0);
    done += static_cast<size_t>(got);
  }
  CHECK(IsFilled(to, 0, n));
  FILE* const file = fdopen(fd, "r+");
  memset(to, 0, n);
  Sweep();
  rewind(file);
  CHECK(fread(to, 1000, n / 1000, file) == n / 1000 && IsFilled(to, 0, n / 1000 * 1000));
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  memset(to, 0, n);
  Sweep();
  for (size_t done = 0; done < n;) {
    iovec piece = {from + done, std::min<size_t>(n - done, 50000)};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    const ssize_t sent = done % 3 == 0 ? sendmsg(pair[0], &message, 0) : send(pair[0], from + done, piece.iov_len, 0);
    CHECK(sent > 0);
    for (ssize_t got = 0; got < sent;) {
      const ssize_t more = recv(pair[1], to + done + static_cast<size_t>(got), static_cast<size_t>(sent - got), 0);
      CHECK(more > 0);
      got += more;
    }
    done += static_cast<size_t>(sent);
  }
  CHECK(IsFilled(to, 0, n));
  int ends[2];
  CHECK(pipe(ends) == 0);
  iovec kept = {from + kMiB, 16384};
  CHECK(vmsplice(ends[1], &kept, 1, 0) == 16384);
  for (int i = 0; i < 3; ++i) Sweep();
  CHECK(read(ends[0], to, 16384) == 16384 && IsFilled(to, kMiB, 16384));
}

void* TouchBlocked(void* memory) {
  sigset_t all;
  sigfillset(&all);
  CHECK(pthread_sigmask(SIG_BLOCK, &all, nullptr) == 0);
  CHECK(IsFilled(static_cast<char*>(memory), 0, 8 * kMiB));
  return nullptr;
}
volatile sig_atomic_t handled = 0;
char* of_handler = nullptr;
void Handler(int) { handled = handled + (IsFilled(of_handler, 0, kMiB) ? 1 : 0); }
void Signals() {
  char* const memory = of_handler = Filled(8 * kMiB);
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, TouchBlocked, memory) == 0 && pthread_join(thread, nullptr) == 0);
  struct sigaction action = {};
  action.sa_handler = Handler;
  sigfillset(&action.sa_mask);
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  CHECK(signal(SIGBUS, Handler) == SIG_DFL);
  Sweep();
  CHECK(raise(SIGUSR1) == 0 && handled == 1);
  Sweep();
  CHECK(IsFilled(memory, 0, 8 * kMiB) && handled == 1);  // pages are no business of the program's handler
  CHECK(raise(SIGBUS) == 0 && handled == 2);
}

ucontext_t main_context, other_context;
void OnOtherStack() {
  char deep[200000];
  for (size_t i = 0; i < sizeof(deep); ++i) deep[i] = static_cast<char>(i);
  Sweep();
  for (size_t i = 0; i < sizeof(deep); ++i) CHECK(deep[i] == static_cast<char>(i));
  swapcontext(&other_context, &main_context);
}
void* OnThreadStack(void* unused) {
  char deep[200000];
  memset(deep, 3, sizeof(deep));
  Sweep();
  CHECK(deep[sizeof(deep) / 2] == 3);
  return unused;
}
void Stacks() {
  CHECK(getcontext(&other_context) == 0);
  other_context.uc_stack.ss_sp = New(kMiB);
  other_context.uc_stack.ss_size = kMiB;
  makecontext(&other_context, OnOtherStack, 0);
  CHECK(swapcontext(&main_context, &other_context) == 0);
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, aligned_alloc(4096, 8 * kMiB), 8 * kMiB) == 0);
  CHECK(pthread_create(&thread, &attributes, OnThreadStack, nullptr) == 0 && pthread_join(thread, nullptr) == 0);
}

// A child without a copy of its parent's memory.
void Child() {
  char* const memory = Filled(kMiB);
  CHECK(InChild([memory] { return IsFilled(static_cast<char*>(realloc(memory, 2 * kMiB)), 0, kMiB) ? 0 : 1; }) == -SIGSEGV);  // with a message; never zeros
  CHECK(IsFilled(memory, 0, kMiB));
}

volatile sig_atomic_t faults_now = 0;
void OfFault(int) { _exit(faults_now == 1 ? 9 : 8); }
void* ForkInThread(void* memory) {
  CHECK(InChild([memory] { return IsFilled(static_cast<char*>(memory), 0, 12 * kMiB) ? 0 : 1; }) == 0);
  return nullptr;
}
// Each has its parent's memory as it was at the fork, however it comes to use it first.
void Children() {
  char* const first = New(kMiB);
  CHECK(InChild([first] { return first[0] == 0 ? 0 : 1; }) == 0);  // nobody has touched any yet
  char* const memory = Filled(12 * kMiB);
  int never_written[2];
  CHECK(pipe(never_written) == 0);
  CHECK(InChild([memory] { return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1; }) == 0);
  CHECK(InChild([memory] { return IsFilled(memory + 5 * kMiB, 5 * kMiB, 10) ? 0 : 1; }) == 0);  // a block of it
  CHECK(InChild([memory] {
          memset(memory, 1, 100);  // its own, also when all the rest comes
          memset(memory + 6 * kMiB, 2, 100);
          const bool has_all = IsFilled(memory + 100, 100, 6 * kMiB - 100) && IsFilled(memory + 6 * kMiB + 100, 6 * kMiB + 100, 6 * kMiB - 100);
          return has_all && memory[99] == 1 && memory[6 * kMiB + 99] == 2 ? 0 : 1;
        }) == 0);
  CHECK(InChild([memory] {
          char* const larger = static_cast<char*>(realloc(memory, 13 * kMiB));
          const bool good = IsFilled(larger, 0, 12 * kMiB);
          free(larger);
          return good ? 0 : 1;
        }) == 0);
  CHECK(InChild([memory] {  // the kernel's accesses
          const int fd = open("/dev/null", O_WRONLY), full = memfd_create("full", 0);
          return write(fd, memory, kMiB) == static_cast<ssize_t>(kMiB) && write(full, memory + kMiB, kMiB) == static_cast<ssize_t>(kMiB) &&
                         pread(full, memory, kMiB, 0) == static_cast<ssize_t>(kMiB) && IsFilled(memory, kMiB, kMiB)
                     ? 0
                     : 1;
        }) == 0);
  CHECK(InChild([memory] {  // what daemons do
          close_range(3, ~0U, 0);
          for (int fd = 3; fd < 1024; ++fd) close(fd);
          usleep(100'000);
          return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1;
        }) == 0);
  CHECK(InChild([memory] {  // a child's child
          return InChild([memory] { return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1; });
        }) == 0);
  CHECK(InChild([memory] {  // which would have taken its parent's copy
          const int of_child = InChild([memory] { return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1; });
          return of_child == 0 && IsFilled(memory, 0, 12 * kMiB) ? 0 : 1;
        }) == 0);
  CHECK(InChild([memory] {
          struct sigaction action = {};
          action.sa_handler = OfFault;
          sigaction(SIGSEGV, &action, nullptr);
          if (!IsFilled(memory, 0, 12 * kMiB)) return 1;
          faults_now = 1;
          *static_cast<volatile char*>(nullptr) = 1;
          return 2;
        }) == 9);
  CHECK(InChild([memory] {
          signal(SIGSEGV, OfFault);
          if (!IsFilled(memory, 0, 12 * kMiB)) return 1;
          faults_now = 1;
          *static_cast<volatile char*>(nullptr) = 1;
          return 2;
        }) == 9);
  CHECK(InChild([memory] {
          static_cast<void>(memory[0]);
          *static_cast<volatile char*>(nullptr) = 1;
          return 2;
        }) == -SIGSEGV);
  struct sigaction action = {};
  action.sa_handler = OfFault;
  CHECK(sigaction(SIGSEGV, &action, nullptr) == 0);  // before the fork
  CHECK(InChild([memory] {
          if (!IsFilled(memory, 0, 12 * kMiB)) return 1;
          faults_now = 1;
          *static_cast<volatile char*>(nullptr) = 1;
          return 2;
        }) == 9);
  CHECK(signal(SIGSEGV, SIG_DFL) == OfFault);
  std::strcpy(memory, "/bin/sh");
  std::strcpy(memory + kMiB, "-c");
  std::strcpy(memory + 2 * kMiB, "exit 5");
  Sweep();
  CHECK(InChild([memory] {
          char** const arguments = reinterpret_cast<char**>(memory + 3 * kMiB);
          arguments[0] = memory;
          arguments[1] = memory + kMiB;
          arguments[2] = memory + 2 * kMiB;
          arguments[3] = nullptr;
          execv(memory, arguments);
          return 1;
        }) == 5);
  CHECK(WEXITSTATUS(system(memory + 2 * kMiB)) == 5);
  pthread_t thread;
  for (size_t i = 0; i < 12 * kMiB; ++i) memory[i] = static_cast<char>(i * 31 >> 3);
  CHECK(pthread_create(&thread, nullptr, ForkInThread, memory) == 0 && pthread_join(thread, nullptr) == 0);
  char* const untouched = New(3 * kMiB);
  CHECK(InChild([untouched] { return untouched[2 * kMiB] == 0 && ++untouched[2 * kMiB] == 1 ? 0 : 1; }) == 0);
  // The parent goes on, and so do children of before.
  pid_t pids[4];
  int go[2];
  CHECK(pipe(go) == 0);
  for (int i = 0; i < 4; ++i) {
    memory[0] = static_cast<char>(i);
    if ((pids[i] = fork()) == 0) {
      char unused;
      close(go[1]);
      static_cast<void>(!read(go[0], &unused, 1));
      _exit(memory[0] == static_cast<char>(i) && IsFilled(memory + 1, 1, 12 * kMiB - 1) ? 0 : 1);
    }
  }
  memset(memory, 9, 12 * kMiB);
  close(go[0]);
  close(go[1]);
  for (const pid_t pid : pids) {
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
  }
  for (size_t i = 0; i < 12 * kMiB; ++i) CHECK(memory[i] == 9);
}

sigjmp_buf out_of_probe;
void OfProbe(int) { siglongjmp(out_of_probe, 1); }
char* read_at_fork = nullptr;
void ReadAtFork() { static_cast<void>(*const_cast<volatile char*>(read_at_fork)); }
ucontext_t child_context, coroutine_context;
bool has_written = false;
void WriteOnOtherStack() {
  const int fd = open("/dev/null", O_WRONLY);
  has_written = write(fd, read_at_fork, 1000) == 1000;
  swapcontext(&coroutine_context, &child_context);
}
// What a reader of these showed.
void ChildSignals() {
  CHECK(pthread_atfork(nullptr, nullptr, [] { if (read_at_fork != nullptr) ReadAtFork(); }) == 0);  // before there is such memory
  char* const memory = Filled(12 * kMiB);
  char* const stack = New(kMiB);
  memset(stack, 1, kMiB);
  Sweep();
  CHECK(InChild([] { return raise(SIGSEGV) == 0 ? 7 : 8; }) == -SIGSEGV);
  CHECK(InChild([memory] {  // the handler stays where something else was no memory
          signal(SIGSEGV, OfProbe);
          if (sigsetjmp(out_of_probe, 1) == 0) *static_cast<volatile char*>(nullptr) = 1;
          signal(SIGSEGV, SIG_DFL);
          return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1;
        }) == 0);
  sigset_t all, before;
  sigfillset(&all);
  CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);  // as many do around a fork
  CHECK(InChild([memory] { return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1; }) == 0);
  CHECK(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  CHECK(InChild([memory] {  // a small stack for handlers
          static char small[4 * 8192];
          memset(small, 0x5a, sizeof(small));
          stack_t own = {};
          own.ss_sp = small + 2 * 8192;
          own.ss_size = 8192;
          if (sigaltstack(&own, nullptr) != 0 || !IsFilled(memory, 0, 12 * kMiB)) return 1;
          return std::all_of(small, small + 2 * 8192, [](char c) { return c == 0x5a; }) ? 0 : 2;
        }) == 0);
  CHECK(InChild([memory, stack] {  // a coroutine, whose first touch is a call of the library's
          read_at_fork = memory;
          getcontext(&coroutine_context);
          coroutine_context.uc_stack.ss_sp = stack;
          coroutine_context.uc_stack.ss_size = kMiB;
          makecontext(&coroutine_context, WriteOnOtherStack, 0);
          swapcontext(&child_context, &coroutine_context);
          return has_written ? 0 : 1;
        }) == 0);
  read_at_fork = memory;
  CHECK(InChild([memory] { return IsFilled(memory, 0, 12 * kMiB) ? 0 : 1; }) == 0);
  char* const guard_page = Map(2 * kMiB);
  memset(guard_page, 1, 2 * kMiB);
  CHECK(mprotect(guard_page + 4096, 4096, PROT_NONE) == 0 && mprotect(guard_page + 8192, 4096, PROT_READ) == 0);
  CHECK(InChild([guard_page] { return *static_cast<volatile char*>(guard_page + 4096); }) == -SIGSEGV);
  CHECK(InChild([guard_page] {
          if (guard_page[0] != 1 || guard_page[8192] != 1 || guard_page[12288] != 1) return 1;
          guard_page[8192] = 2;
          return 2;
        }) == -SIGSEGV);
  CHECK(InChild([memory] { return execl("/bin/sh", "sh", "-c", std::strcpy(memory, "exit 6"), nullptr); }) == 6);
}

void* FreesAndMakes(void* stop) {
  while (!*static_cast<volatile bool*>(stop)) {
    char* const p = New(3 * kMiB);
    memset(p, 1, 3 * kMiB);
    free(p);
  }
  return nullptr;
}
// What another thread gave back while it was copied ended the parent.
void FreesDuringForks() {
  char* const memory = Filled(6 * kMiB);
  static bool stop = false;
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, FreesAndMakes, &stop) == 0);
  for (int i = 0; i < 40; ++i) CHECK(InChild([memory] { return IsFilled(memory, 0, 6 * kMiB) ? 0 : 1; }) == 0);
  stop = true;
  CHECK(pthread_join(thread, nullptr) == 0 && IsFilled(memory, 0, 6 * kMiB));
}

void* AsksForHandler(void* stop) {
  for (struct sigaction now; !*static_cast<volatile bool*>(stop);) sigaction(SIGSEGV, nullptr, &now), sigaction(SIGBUS, nullptr, &now);
  return nullptr;
}
// Another thread had what guards the handlers when the child was made, in which nobody gave it back.
void HandlersDuringForks() {
  char* const memory = Filled(2 * kMiB);
  static bool stop = false;
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, AsksForHandler, &stop) == 0);
  for (int i = 0; i < 150; ++i) {
    CHECK(InChild([memory] {
            alarm(20);
            struct sigaction own = {};
            if (sigaction(SIGBUS, nullptr, &own) != 0 || own.sa_handler != SIG_DFL) return 2;  // the parent's own was there
            return IsFilled(memory, 0, 100) ? 0 : 1;
          }) == 0);
  }
  stop = true;
  CHECK(pthread_join(thread, nullptr) == 0);
}

// A file that may not grow ends the child, with the reason; it ended the parent.
void ChildrenOfSmallFiles() {
  char* const memory = Filled(4 * kMiB);
  rlimit before;
  CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small = {65536, before.rlim_max};
  CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK(InChild([memory] { return IsFilled(memory, 0, 4 * kMiB) ? 0 : 1; }) == -SIGSEGV);
  CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(InChild([memory] { return IsFilled(memory, 0, 4 * kMiB) ? 0 : 1; }) == 0 && IsFilled(memory, 0, 4 * kMiB));
  CHECK(InChild([memory] {  // a stack in such memory, which a child's thread need not lock
          pthread_attr_t attributes;
          pthread_t thread;
          char* const stack = memory + -reinterpret_cast<uintptr_t>(memory) % 4096;
          static volatile size_t too_much = SIZE_MAX;
          const bool made = pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, kMiB) == 0 &&
                            pthread_create(&thread, &attributes, [](void* given) { return given; }, memory) == 0;
          return made && pthread_join(thread, nullptr) == 0 && realloc(memory, too_much) == nullptr && errno == ENOMEM ? 0 : 1;
        }) == 0);
}

// Calls on it of a child's.
void ChildCalls() {
  char* const p = Map(8 * kMiB);
  memset(p, 1, 8 * kMiB);
  char* const other = Map(4 * kMiB);
  memset(other, 2, 4 * kMiB);
  Sweep();
  CHECK(InChild([p, other] {
          if (madvise(p, kMiB, MADV_DONTNEED) != 0 || p[0] != 0 || p[kMiB - 1] != 0 || p[kMiB] != 1) return 1;
          if (mprotect(p + kMiB, 4096, PROT_READ) != 0 || p[kMiB] != 1 || mprotect(p + kMiB, 4096, PROT_READ | PROT_WRITE) != 0) return 2;
          p[kMiB] = 3;
          auto* const larger = static_cast<char*>(mremap(p, 8 * kMiB, 16 * kMiB, MREMAP_MAYMOVE));
          if (larger == MAP_FAILED || larger[0] != 0 || larger[kMiB] != 3 || larger[8 * kMiB - 1] != 1 || larger[8 * kMiB] != 0) return 3;
          if (other[0] != 2 || munmap(other, 2 * kMiB) != 0 || other[2 * kMiB] != 2) return 4;
          if (mmap(other + 2 * kMiB, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != other + 2 * kMiB || other[2 * kMiB] != 0) return 5;
          return other[3 * kMiB] == 2 && munmap(other + 2 * kMiB, 2 * kMiB) == 0 ? 0 : 6;
        }) == 0);
  CHECK(InChild([other] {
          munmap(other, 4 * kMiB);
          return *static_cast<volatile char*>(other) == 2 ? 1 : 2;
        }) == -SIGSEGV);
  CHECK(p[0] == 1 && p[8 * kMiB - 1] == 1 && other[0] == 2 && other[4 * kMiB - 1] == 2);
}

// ---- What a reader of client/preload showed by programs of his; each found something wrong ----

// A handler that came while its thread was in malloc's place waited for a page, and that for the lock which its thread had.
// The next one comes some time after this one's end: every two ms, a slow machine did nothing else.
void Tick(int) {
  Handler(SIGALRM);
  const itimerval next = {{}, {0, 2000}};
  setitimer(ITIMER_REAL, &next, nullptr);
}
void Ticks() {
  of_handler = Filled(kMiB);
  struct sigaction action = {};
  action.sa_handler = Tick;
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
  Tick(SIGALRM);
  for (int round = 0; handled < 60; ++round) {
    char* p = New(3 * kMiB);
    memset(p, round, 3 * kMiB);
    p = static_cast<char*>(realloc(p, 6 * kMiB));
    CHECK(madvise(reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(p) + 4095) & ~uintptr_t{4095}), kMiB, MADV_DONTNEED) == 0);
    free(p);
    char* const map = Map(2 * kMiB);
    memset(map, round, 2 * kMiB);
    CHECK(munmap(map, 2 * kMiB) == 0);
    Sweep();
  }
  signal(SIGALRM, SIG_IGN);
}

// The handler of SIGBUS takes more than the alternate stack of 8 KiB that a Rust program gives to its threads.
void SmallStack() {
  char* const own = Map(256 << 10);
  memset(own, 0x5a, 256 << 10);
  stack_t stack = {}, now = {};
  stack.ss_sp = own + (128 << 10);
  stack.ss_size = 8 << 10;
  CHECK(sigaltstack(&stack, nullptr) == 0);
  char* const memory = Filled(8 * kMiB);
  CHECK(IsFilled(memory, 0, 8 * kMiB));
  for (size_t i = 0; i < 128 << 10; ++i) CHECK(own[i] == 0x5a);
  CHECK(sigaltstack(nullptr, &now) == 0 && now.ss_sp == stack.ss_sp && now.ss_size == stack.ss_size && now.ss_flags == 0);
  stack.ss_flags = SS_DISABLE;
  CHECK(sigaltstack(&stack, &now) == 0 && now.ss_sp == own + (128 << 10) && sigaltstack(nullptr, &now) == 0 && now.ss_flags == SS_DISABLE);
  Sweep();
  CHECK(IsFilled(memory, 0, 8 * kMiB));
}

// Without its descriptor all that has left would have been zeros. Those of the way to memory servers had the lowest numbers, which the program's next files got.
void Descriptors() {
  constexpr int kFirst = 3, kHigh = 700;
  bool was_open[kHigh] = {};
  rlimit files{};
  CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
  const int high = files.rlim_cur / 4 * 3 < kHigh ? kFirst : kHigh;
  for (int fd = kFirst; fd < high; ++fd) was_open[fd] = fcntl(fd, F_GETFD) >= 0;
  char* const memory = Filled(8 * kMiB);
  for (int fd = kFirst; fd < high; ++fd) CHECK(was_open[fd] || fcntl(fd, F_GETFD) < 0);
  CHECK(close_range(3, ~0U, 0) == 0);
  for (int fd = 3; fd < 70000; ++fd) CHECK(close(fd) == -1 && errno == EBADF);
  Sweep();
  CHECK(IsFilled(memory, 0, 8 * kMiB));
}

void Streams() {
  FILE* const file = tmpfile();
  char* const buffer = New(kMiB);
  CHECK(file != nullptr && setvbuf(file, buffer, _IOFBF, kMiB) == 0);
  for (int i = 0; i < 200000; ++i) CHECK(std::fprintf(file, "%d\n", i) > 0);
  char* const text = New(6 * kMiB + 1);
  memset(text, 'x', 6 * kMiB);
  text[6 * kMiB] = 0;
  Sweep();
  CHECK(fputs(text, file) >= 0 && fflush(file) == 0);
  rewind(file);
  for (int i = 0, n = -1; i < 200000; ++i) CHECK(std::fscanf(file, "%d\n", &n) == 1 && n == i);
  Sweep();
  memset(text, 0, 6 * kMiB);
  CHECK(fread(text, 1, 7 * kMiB, file) == 6 * kMiB && text[0] == 'x' && text[6 * kMiB - 1] == 'x');
}

int reading_end;
void* Drain(void* count) {
  static char buffer[65536];
  for (ssize_t got; (got = read(reading_end, buffer, sizeof(buffer))) > 0;) *static_cast<size_t*>(count) += static_cast<size_t>(got);
  return nullptr;
}
// They were cut to what could be pinned, or to 64 buffers.
void Messages() {
  int pair[2], ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  char* const from = Filled(12 * kMiB);
  char* const to = New(12 * kMiB);
  iovec pieces[100];
  for (size_t i = 0; i < 100; ++i) pieces[i] = {from + 1000 * i, 1000};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 100;
  CHECK(sendmsg(pair[0], &message, 0) == 100'000);
  Sweep();
  CHECK(recv(pair[1], to, kMiB, 0) == 100'000 && IsFilled(to, 0, 100'000));
  CHECK(pipe(ends) == 0);
  reading_end = ends[0];
  size_t drained = 0;
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, Drain, &drained) == 0);
  CHECK(write(ends[1], from, 12 * kMiB) == static_cast<ssize_t>(12 * kMiB));
  close(ends[1]);
  CHECK(pthread_join(thread, nullptr) == 0 && drained == 12 * kMiB);
}

int never[2];
void* Wait(void*) {
  char* const to = New(2 * kMiB);
  CHECK(read(never[0], to, 2 * kMiB) == 0);
  return nullptr;
}
sigjmp_buf back;
void Jump(int) { siglongjmp(back, 1); }
// What waited kept its share of the memory, and who left it by a jump kept it for ever.
void Waiting() {
  char* const memory = Filled(8 * kMiB);
  CHECK(pipe(never) == 0 && signal(SIGALRM, Jump) == SIG_DFL);
  char* const to = New(2 * kMiB);
  static int jumps;  // none of this frame's variables is changed between the jump's beginning and its end
  while (jumps < 40) {
    if (sigsetjmp(back, 1) != 0) {
      ++jumps;
      continue;
    }
    const itimerval soon = {{0, 0}, {0, 2000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    CHECK(read(never[0], to, 2 * kMiB) < 0);
  }
  pthread_t threads[40];
  for (pthread_t& thread : threads) CHECK(pthread_create(&thread, nullptr, Wait, nullptr) == 0);
  for (int i = 0; i < 3; ++i) Sweep();
  CHECK(IsFilled(memory, 0, 8 * kMiB));
  close(never[1]);
  for (pthread_t& thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
}

// Before it is known how pages come, and by the calls that wait with a mask.
void Masks() {
  sigset_t all;
  sigfillset(&all);
  CHECK(pthread_sigmask(SIG_BLOCK, &all, nullptr) == 0);
  struct sigaction action = {};
  action.sa_handler = Handler;
  sigfillset(&action.sa_mask);
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0 && sigaction(SIGUSR2, &action, nullptr) == 0);
  of_handler = Filled(8 * kMiB);
  sigset_t but_one = all;
  sigdelset(&but_one, SIGUSR1);
  CHECK(raise(SIGUSR1) == 0);  // pending
  sigsuspend(&but_one);
  CHECK(handled == 1);
  Sweep();
  CHECK(raise(SIGUSR1) == 0);
  const timespec no_time = {0, 0};
  static_cast<void>(ppoll(nullptr, 0, &no_time, &but_one));
  Sweep();
  static_cast<void>(pselect(0, nullptr, nullptr, nullptr, &no_time, &but_one));
  CHECK(handled == 2);
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, TouchBlocked, of_handler) == 0 && pthread_join(thread, nullptr) == 0);
}

// ---- And a hostile tester ----

// Read as a file without an end would be: 1 MiB of 4.
void Devices() {
  char* const to = Filled(4 * kMiB);
  const int fd = open("/dev/zero", O_RDONLY);
  CHECK(read(fd, to, 4 * kMiB) == static_cast<ssize_t>(4 * kMiB) && to[4 * kMiB - 1] == 0);
  iovec pieces[2] = {{to, 2 * kMiB}, {to + 2 * kMiB, 2 * kMiB}};
  CHECK(readv(fd, pieces, 2) == static_cast<ssize_t>(4 * kMiB));
  pieces[0].iov_len = SIZE_MAX;
  CHECK(readv(fd, pieces, 2) == -1 && errno == EINVAL);
  int ends[2];
  CHECK(pipe(ends) == 0);
  const iovec one = {to, kMiB};
  ssize_t kept = 0;
  while ((kept = vmsplice(ends[1], &one, 1, SPLICE_F_NONBLOCK)) > 0) {
  }
  CHECK(kept == -1 && errno == EAGAIN);  // it waited for ever
}

int appended = -1;
void* Append(void* letter) {
  char* const record = New(1'000'000);
  memset(record, *static_cast<char*>(letter), 1'000'000);
  for (int i = 0; i < 10; ++i) CHECK(write(appended, record, 1'000'000) == 1'000'000);
  return nullptr;
}
void Appends() {
  char name[] = "/tmp/ramspan-preloaded-XXXXXX", letters[] = "ABCD";
  appended = mkstemp(name);
  CHECK(fcntl(appended, F_SETFL, O_APPEND) == 0 && unlink(name) == 0);
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(threads + i, nullptr, Append, letters + i) == 0);
  for (pthread_t thread : threads) CHECK(pthread_join(thread, nullptr) == 0);
  char* const record = New(1'000'000);
  for (int i = 0; i < 40; ++i) {
    CHECK(pread(appended, record, 1'000'000, 1'000'000L * i) == 1'000'000);
    for (size_t k = 1; k < 1'000'000; ++k) CHECK(record[k] == record[0]);
  }
}

int sink = -1;
char* in_handler = nullptr;
void CallInHandler(int) {
  const int error = errno;
  auto* const descriptors = reinterpret_cast<pollfd*>(in_handler);
  descriptors[0] = {sink, POLLOUT, 0};
  if (write(sink, in_handler + kMiB, 300'000) == 300'000 && poll(descriptors, 1, 0) == 1 && (descriptors[0].revents & POLLOUT) != 0) handled = handled + 1;
  errno = error;
}
// A handler that calls what may be called in handlers, while malloc's lock is held: it waited for that lock.
void HandlerCalls() {
  in_handler = Filled(2 * kMiB);
  sink = open("/dev/null", O_WRONLY);
  struct sigaction action = {};
  action.sa_handler = CallInHandler;
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
  const itimerval every = {{0, 1000}, {0, 1000}}, none = {};
  CHECK(setitimer(ITIMER_REAL, &every, nullptr) == 0);
  static void* small[512];
  for (size_t i = 0; handled < 500; ++i) {
    free(small[i % 512]);
    small[i % 512] = malloc(2000 + i * 37 % 3000);  // beyond threads' caches of free ones
  }
  CHECK(setitimer(ITIMER_REAL, &none, nullptr) == 0);
}

// What the kernel refuses, or does in part, because pages may not be used: it ended the process.
void Refused() {
  char name[] = "/tmp/ramspan-preloaded-XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  char* const from = Filled(4 * kMiB);
  CHECK(write(fd, from, 4 * kMiB) == static_cast<ssize_t>(4 * kMiB));
  char* const p = Map(4 * kMiB);
  memset(p, 1, 4 * kMiB);
  CHECK(mprotect(p + kMiB, 4096, PROT_NONE) == 0);
  Sweep();
  CHECK(pread(fd, p, 4 * kMiB, 0) == static_cast<ssize_t>(kMiB) && IsFilled(p, 0, kMiB));
  CHECK(pwrite(fd, p + kMiB, 100, 0) == -1 && errno == EFAULT && pread(fd, p + kMiB, 100, 0) == -1 && errno == EFAULT);
  Sweep();
  iovec pieces[2] = {{p, kMiB}, {p + kMiB, kMiB}};
  CHECK(pwritev(fd, pieces, 2, 0) == static_cast<ssize_t>(kMiB));
  memset(p + kMiB - 100, 'x', 100);
  CHECK(poll(reinterpret_cast<pollfd*>(p + kMiB), 1, 0) == -1 && errno == EFAULT);
  CHECK(open(p + kMiB, O_RDONLY) == -1 && errno == EFAULT);
  CHECK(open(p + kMiB - 100, O_RDONLY) == -1 && errno == EFAULT);  // has no end
  CHECK(mprotect(p + kMiB, 4096, PROT_READ) == 0);
  Sweep();
  CHECK(pwrite(fd, p, 4 * kMiB, 0) == static_cast<ssize_t>(4 * kMiB));  // it may be read
  CHECK(pread(fd, p + kMiB, 100, 0) == -1 && errno == EFAULT);
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
  Sweep();
  CHECK(send(pair[0], p + kMiB - 2000, 4000, 0) == 4000 && recv(pair[1], p, 5000, 0) == 4000);
  CHECK(recv(pair[1], p + kMiB, 100, MSG_DONTWAIT) == -1 && errno == EAGAIN);
  CHECK(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, p, nullptr) == -1 && errno == EFAULT);
  CHECK(getsockname(pair[0], reinterpret_cast<sockaddr*>(p), nullptr) == -1 && errno == EFAULT);
}

// More names and answers there, and no more is written to than the kernel writes to.
void Answers() {
  char* const p = Filled(4 * kMiB);
  char* const name = p + kMiB;
  std::strcpy(name, "/tmp/ramspan-preloaded-XXXXXX");
  close(mkstemp(name));
  Sweep();
  const int fd = openat(AT_FDCWD, name, O_RDWR);
  CHECK(fd >= 0);
  Sweep();
  CHECK(faccessat(AT_FDCWD, name, R_OK, 0) == 0);
  Sweep();
  CHECK(truncate(name, 100) == 0);
  Sweep();
  CHECK(unlinkat(AT_FDCWD, name, 0) == 0);
  int ends[2];
  CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
  const int watch = epoll_create1(0);
  auto* const event = reinterpret_cast<epoll_event*>(p);
  *event = {EPOLLIN, {}};
  Sweep();
  CHECK(epoll_ctl(watch, EPOLL_CTL_ADD, ends[0], event) == 0);
  sigset_t none;
  sigemptyset(&none);
  Sweep();
  CHECK(epoll_pwait(watch, event, 1, 0, &none) == 1);
  const timespec no_time = {0, 0};
  auto* const sets = reinterpret_cast<fd_set*>(p + 2 * kMiB);
  FD_ZERO(sets);
  FD_SET(ends[0], sets);
  memset(reinterpret_cast<char*>(sets) + 8 * (ends[0] / 64 + 1), 0x5a, 64);
  Sweep();
  auto* const all_bits = reinterpret_cast<fd_set*>(p + 3 * kMiB);  // as many as there may be descriptors, says the program: more than an fd_set has
  memset(all_bits, 0, kMiB);
  memset(reinterpret_cast<char*>(all_bits) + sizeof(fd_set), 0x5a, kMiB - sizeof(fd_set));
  timeval at_once = {};
  CHECK(select(getdtablesize(), all_bits, nullptr, nullptr, &at_once) == 0 && reinterpret_cast<char*>(all_bits)[sizeof(fd_set)] == 0x5a);
  CHECK(pselect(ends[0] + 1, sets, nullptr, nullptr, &no_time, &none) == 1 && FD_ISSET(ends[0], sets));
  CHECK(reinterpret_cast<char*>(sets)[8 * (ends[0] / 64 + 1)] == 0x5a);
}

using statx_answer = struct statx;
// Small arguments and answers in memory that has left, each call's a MiB further: they gave EFAULT.
void Arguments() {
  char* const p = Filled(6 * kMiB);
  const auto away = [p](auto what, size_t mib) {
    auto* const there = reinterpret_cast<decltype(what)*>(p + mib * kMiB);
    *there = what;
    Sweep();
    return there;
  };
  int* const ends = away(0, 0);
  CHECK(pipe(ends) == 0 && ends[0] > 0);
  Sweep();
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  auto* const about = away(rusage(), 1);
  CHECK(getrusage(RUSAGE_SELF, about) == 0 && about->ru_maxrss > 0);
  struct statx* const file = away(statx_answer(), 2);
  CHECK(statx(AT_FDCWD, "/", 0, STATX_TYPE, file) == 0 && S_ISDIR(file->stx_mode));
  int* const status = away(1, 3);
  const pid_t child = fork();
  if (child == 0) {
    usleep(20'000);
    _exit(7);
  }
  Sweep();
  CHECK(waitpid(child, status, 0) == child && WEXITSTATUS(*status) == 7);
  timespec* const time = away(timespec{0, 1'000'000}, 4);
  CHECK(nanosleep(time, time) == 0 && time->tv_nsec == 1'000'000);
  Sweep();
  CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, time, nullptr) == 0);
  // A connection, with names and their lengths there.
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const name = away(address, 5);
  CHECK(bind(listening, reinterpret_cast<sockaddr*>(name), sizeof(*name)) == 0 && listen(listening, 1) == 0);
  socklen_t* const length = away(static_cast<socklen_t>(sizeof(*name)), 0);
  CHECK(getsockname(listening, reinterpret_cast<sockaddr*>(name), length) == 0 && name->sin_port != 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  Sweep();
  CHECK(connect(client, reinterpret_cast<sockaddr*>(name), sizeof(*name)) == 0);
  memset(name, 0, sizeof(*name));
  Sweep();
  CHECK(accept(listening, reinterpret_cast<sockaddr*>(name), length) >= 0 && name->sin_family == AF_INET && *length == sizeof(*name));
  // Messages: their names, and descriptors that go beside.
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
  auto* const message = away(msghdr(), 3);
  char* const control = p + 4 * kMiB;
  char byte = 'x';
  iovec piece = {&byte, 1};
  *message = {nullptr, 0, &piece, 1, control, CMSG_SPACE(sizeof(int)), 0};
  cmsghdr* const beside = CMSG_FIRSTHDR(message);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = SCM_RIGHTS;
  beside->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(beside), &client, sizeof(int));
  Sweep();
  CHECK(sendmsg(pair[0], message, 0) == 1);
  memset(control, 0, 100);
  Sweep();
  int received = -1;
  CHECK(recvmsg(pair[1], message, 0) == 1);
  memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(message)), sizeof(int));
  CHECK(received > client && fcntl(received, F_GETFD) >= 0);
  const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
  address.sin_port = 0;
  CHECK(bind(datagrams, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  *length = sizeof(*name);
  CHECK(getsockname(datagrams, reinterpret_cast<sockaddr*>(name), length) == 0);
  Sweep();
  CHECK(sendto(datagrams, "abc", 3, 0, reinterpret_cast<sockaddr*>(name), sizeof(*name)) == 3);
  const in_port_t port = name->sin_port;
  memset(name, 0, sizeof(*name));
  Sweep();
  char text[4];
  CHECK(recvfrom(datagrams, text, 4, 0, reinterpret_cast<sockaddr*>(name), length) == 3 && name->sin_port == port);
  // What may not be used the kernel refuses.
  char* const refused = Map(2 * kMiB);
  CHECK(mprotect(refused, 2 * kMiB, PROT_NONE) == 0);
  CHECK(nanosleep(reinterpret_cast<timespec*>(refused), nullptr) == -1 && errno == EFAULT);
  CHECK(connect(client, reinterpret_cast<sockaddr*>(refused), sizeof(*name)) == -1 && errno == EFAULT);
  pthread_t waits;
  int until[2];  // it ended after half a second, when a busy machine had not come to the cancellation yet
  CHECK(pipe(until) == 0);
  const pid_t sleeps = fork();
  if (sleeps == 0) {
    close(until[1]);
    char nothing;
    _exit(read(until[0], &nothing, 1) == 0 ? 0 : 1);
  }
  CHECK(pthread_create(&waits, nullptr, [](void*) -> void* { return wait4(-1, nullptr, 0, nullptr), nullptr; }, nullptr) == 0);  // libc's header says that nothing is thrown
  usleep(50'000);
  CHECK(pthread_cancel(waits) == 0 && pthread_join(waits, nullptr) == 0 && close(until[1]) == 0 && waitpid(sleeps, nullptr, 0) == sleeps);
  cpu_set_t* const cores = away(cpu_set_t(), 1);
  CHECK(sched_getaffinity(0, sizeof(*cores), cores) == 0 && CPU_COUNT(cores) > 0);
  char* const pattern = p + 2 * kMiB;
  std::strcpy(pattern, "/tmp/ramspan-preloaded-XXXXXX");
  Sweep();
  CHECK(mkdtemp(pattern) == pattern);
  Sweep();
  CHECK(rmdir(pattern) == 0);
  CHECK(InChild([p] {  // and before a child has its copy
          return getrusage(RUSAGE_SELF, reinterpret_cast<rusage*>(p + 3 * kMiB)) == 0 ? 0 : 1;
        }) == 0);
}

char* guard = nullptr;
sigjmp_buf out_of_fault;
void OwnFault(int, siginfo_t* info, void*) {
  if (info->si_addr == nullptr) siglongjmp(out_of_fault, 1);
  CHECK(info->si_addr == guard + 100 && mprotect(guard, 4096, PROT_READ | PROT_WRITE) == 0);
  handled = handled + 1;
}
// What a program does with a handler of SIGSEGV of its own: garbage collectors, checked stacks, tests for null pointers.
void OwnFaults() {
  struct sigaction action = {}, before = {};
  action.sa_sigaction = OwnFault;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGSEGV, &action, nullptr) == 0);
  char* const memory = Filled(8 * kMiB);
  guard = Map(4 * kMiB) + kMiB;
  for (int i = 0; i < 5; ++i) {
    guard[100] = 1;
    CHECK(mprotect(guard, 4096, i % 2 == 0 ? PROT_READ : PROT_NONE) == 0);
    Sweep();
    guard[100] = 2;
    CHECK(handled == i + 1 && guard[100] == 2 && IsFilled(memory, 0, 8 * kMiB));
    if (sigsetjmp(out_of_fault, 1) == 0) *static_cast<volatile char*>(nullptr) = 1;
  }
  CHECK(sigaction(SIGSEGV, nullptr, &before) == 0 && before.sa_sigaction == OwnFault);
  char* const untouched = Map(4 * kMiB);
  guard = untouched + 2 * kMiB;
  CHECK(mprotect(guard, 4096, PROT_NONE) == 0);
  Sweep();
  CHECK(untouched[0] == 0 && handled == 5);
  guard[100] = 1;
  CHECK(handled == 6);
  CHECK(signal(SIGSEGV, SIG_DFL) != SIG_DFL && IsFilled(memory, 0, 8 * kMiB));
  CHECK(InChild([] { return *static_cast<volatile char*>(nullptr); }) == -SIGSEGV);
}

void Tick(sigval) { Handler(0); }
// Calls that block SIGBUS by themselves.
void Blocking() {
  of_handler = Filled(8 * kMiB);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD;
  event.sigev_notify_function = Tick;
  timer_t timer;
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  const itimerspec every = {{0, 3'000'000}, {0, 3'000'000}};
  CHECK(timer_settime(timer, 0, &every, nullptr) == 0);
  while (handled < 20) Sweep();
  CHECK(timer_delete(timer) == 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  CHECK(sighold(SIGBUS) == 0);
  sigsetmask(~0);
  sigblock(~0);
#pragma GCC diagnostic pop
  Sweep();
  CHECK(IsFilled(of_handler, 0, kMiB));
  CHECK(getcontext(&other_context) == 0);
  static char stack[512 << 10];
  other_context.uc_stack.ss_sp = stack;
  other_context.uc_stack.ss_size = sizeof(stack);
  sigfillset(&other_context.uc_sigmask);
  makecontext(&other_context, OnOtherStack, 0);
  CHECK(swapcontext(&main_context, &other_context) == 0);
}

void* TouchUntilCancelled(void* memory) {
  int before = 0;
  CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before) == 0);
  for (volatile char* p = static_cast<char*>(memory);;) {
    for (size_t i = 0; i < 12 * kMiB; i += 4096) p[i] = p[i];
  }
}
void Cancelled() {
  char* const memory = Filled(12 * kMiB);
  for (int i = 0; i < 10; ++i) {
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, TouchUntilCancelled, memory) == 0);
    usleep(20000 + 777 * static_cast<unsigned>(i));
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, nullptr) == 0);
    CHECK(IsFilled(memory, 0, 12 * kMiB));
  }
}

}  // namespace

int main(int count, char** arguments) {
  static constexpr struct {
    const char* name;
    void (*run)();
  } kScenarios[] = {{"forks_of_cancelled", ForksOfCancelled}, {"faults_in_malloc", FaultsInMalloc}, {"children_without_standard_error", ChildrenWithoutStandardError}, {"splits_beside_discards", SplitsBesideDiscards}, {"zeros_that_children_read", ZerosThatChildrenRead}, {"exits_on_stacks", ExitsOnStacks}, {"calls_on_stacks", CallsOnStacks}, {"given_back_in_pieces", GivenBackInPieces}, {"forks_beside_devices", ForksBesideDevices}, {"locks_beside_descriptors", LocksBesideDescriptors}, {"locks_before_they_are_touched", LocksBeforeTheyAreTouched}, {"guard_pages", GuardPages}, {"remaps", Remaps}, {"calls", Calls}, {"signals", Signals}, {"stacks", Stacks}, {"locks", Locks}, {"child", Child}, {"children", Children}, {"child_calls", ChildCalls}, {"child_signals", ChildSignals}, {"frees_during_forks", FreesDuringForks},
                    {"ticks", Ticks}, {"small_stack", SmallStack}, {"descriptors", Descriptors}, {"streams", Streams}, {"messages", Messages}, {"waiting", Waiting}, {"masks", Masks},
                    {"cancelled", Cancelled}, {"devices", Devices}, {"appends", Appends}, {"blocking", Blocking}, {"handler_calls", HandlerCalls},
                    {"refused", Refused}, {"answers", Answers}, {"own_faults", OwnFaults}, {"rights", Rights}, {"rights_beside_readers", RightsBesideReaders},
                    {"rights_in_children", RightsInChildren}, {"locks_and_rights", LocksAndRights}, {"locks_of_kernel", LocksOfKernel}, {"rights_of_calls", RightsOfCalls},
                    {"arguments", Arguments}, {"soak", Soak}, {"touches_for_a_minute", TouchesForAMinute}, {"handlers_during_forks", HandlersDuringForks}, {"children_of_small_files", ChildrenOfSmallFiles},
                    {"waits_on_stacks", WaitsOnStacks}, {"late_messages", LateMessages}, {"child_handler_masks", ChildHandlerMasks}, {"lengths", Lengths}, {"locks_beside_allocations", LocksBesideAllocations}, {"spawns", Spawns}, {"forks_beside_stacks", ForksBesideStacks}, {"forks_beside_stacks_in_pages", ForksBesideStacksInPages}, {"restarts", Restarts}, {"small_answers", SmallAnswers}, {"control_data", ControlData}, {"more_names", MoreNames},
                    {"rooms_that_end", RoomsThatEnd}, {"first_buffer", FirstBuffer}, {"environments", Environments}, {"signals_of_vfork", SignalsOfVfork}, {"signals_of_unknown_children", SignalsOfUnknownChildren}, {"words_of_clone", WordsOfClone}, {"bad_pointers", BadPointers}, {"terminals", Terminals}, {"locks_of_stacks", LocksOfStacks},
                    {"asynchronous_files", AsynchronousFiles}, {"loaded_library", LoadedLibrary}, {"grown_mappings", GrownMappings}, {"starts_in_vfork", StartsInVfork}, {"grows_in_vfork", GrowsInVfork}, {"message_queues", MessageQueues}, {"deep_handlers", DeepHandlers}, {"exits_in_handlers", ExitsInHandlers}, {"other_folders", OtherFolders}, {"cut_streams", CutStreams}, {"buffers_in_children", BuffersInChildren}};
  for (const auto& one : kScenarios) {
    if (count != 2 || std::strcmp(arguments[1], one.name) != 0) continue;
    one.run();
    std::puts("good");
    return 0;
  }
  return 2;
}
