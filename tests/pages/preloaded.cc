// Scenarios for `ramspan run --pages` that a test of the library cannot have: each is a program that knows nothing of Ramspan, and says "good" when it
// saw what it would see without (but for `child`). usage: preloaded SCENARIO
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void Check(bool good, int line, const char* what) {
  if (good) return;
  std::printf("line %d: %s (errno %d)\n", line, what, errno);
  std::exit(1);
}
#define CHECK(condition) Check(condition, __LINE__, #condition)

char* New(size_t bytes) { return static_cast<char*>(malloc(bytes)); }
char* Map(size_t bytes, int protection = PROT_READ | PROT_WRITE) {
  return static_cast<char*>(mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// More than the limit, so that all else leaves.
void Sweep() {
  static char* much;
  if (much == nullptr) much = New(32 * kMiB);
  for (size_t i = 0; i < 32 * kMiB; i += 512) much[i] += 1;
}
char* Filled(size_t bytes) {
  char* const begin = New(bytes);
  for (size_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(i * 31 >> 3);
  Sweep();
  return begin;
}
bool IsFilled(const char* begin, size_t first, size_t bytes) {
  for (size_t i = first; i < first + bytes; ++i) {
    if (begin[i - first] != static_cast<char>(i * 31 >> 3)) return false;
  }
  return true;
}

void GuardPages() {
  char* p = Map(4 * kMiB);
  CHECK(mprotect(p, 4096, PROT_NONE) == 0);
  p[4096] = 1;
  Sweep();
  CHECK(p[4096] == 1);
  CHECK(munmap(p, 4 * kMiB) == 0);
  p = Map(4 * kMiB);  // perhaps where the other was
  for (size_t i = 0; i < 4 * kMiB; i += 4096) p[i] = 2;
  CHECK(mprotect(p, 8192, PROT_READ) == 0 && madvise(p, 8192, MADV_DONTNEED) == 0);
  CHECK(p[0] == 0 && p[4096] == 0 && p[8192] == 2);
  CHECK(mprotect(p, 8192, PROT_READ | PROT_WRITE) == 0);
  void* const larger = mremap(p, 4 * kMiB, 8 * kMiB, MREMAP_MAYMOVE);
  CHECK(larger != MAP_FAILED);
  p = static_cast<char*>(larger);
  CHECK( p[8192] == 2 && p[7 * kMiB] == 0);
}

void Remaps() {
  char* const p = Map(8 * kMiB);
  memset(p, 1, 8 * kMiB);
  CHECK(mremap(p, 8 * kMiB, 0, MREMAP_MAYMOVE) == MAP_FAILED && p[0] == 1);
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

void Locks() {
  char* const memory = Filled(20 * kMiB);
  static_cast<void>(!mlock2(memory, 20 * kMiB, MLOCK_ONFAULT));  // more than the limit, which a program without it may lock
  CHECK(mlockall(MCL_CURRENT) == 0 || errno == ENOMEM || errno == EPERM);
  CHECK(IsFilled(memory, 0, 20 * kMiB));
}

void Child() {
  char* const memory = Filled(kMiB);
  const pid_t pid = fork();
  if (pid == 0) {
    auto* const larger = static_cast<char*>(realloc(memory, 2 * kMiB));
    _exit(IsFilled(larger, 0, kMiB) ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);  // with a message; never zeros
  CHECK(IsFilled(memory, 0, kMiB));
}

}  // namespace

int main(int count, char** arguments) {
  static constexpr struct {
    const char* name;
    void (*run)();
  } kScenarios[] = {{"guard_pages", GuardPages}, {"remaps", Remaps}, {"calls", Calls}, {"signals", Signals}, {"stacks", Stacks}, {"locks", Locks}, {"child", Child}};
  for (const auto& one : kScenarios) {
    if (count != 2 || std::strcmp(arguments[1], one.name) != 0) continue;
    one.run();
    std::puts("good");
    return 0;
  }
  return 2;
}
