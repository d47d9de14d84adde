// Scenarios of `ramspan run --pages` (preloaded.cc): calls that wait, on a stack that is swapped by pages, too; messages whose memory has left; what is locked, and
// other programs that are started, beside threads that use much.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <ucontext.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "tests/pages/preloaded.h"

namespace {

constexpr size_t kStack = kMiB;
constexpr useconds_t kLater = 100'000;  // us: by then all that is not used has left

// Another thread that uses much, as long as it lives.
class Sweeper {
 public:
  ~Sweeper() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] {
    while (!stop_.load()) Sweep();
  }};
};

// A child that does something later, as often as it is asked to: each byte that it gets is what.
class Helper {
 public:
  template <typename Do>
  explicit Helper(const Do& act) {
    CHECK(pipe(ends_) == 0);
    pid_ = fork();
    if (pid_ != 0) return;
    close(ends_[1]);
    for (char what = 0; read(ends_[0], &what, 1) == 1;) {
      usleep(kLater);
      act(what);
    }
    _exit(7);
  }
  void Ask(char what) const { CHECK(write(ends_[1], &what, 1) == 1); }
  void End() const { close(ends_[1]); }
  pid_t pid() const { return pid_; }

 private:
  int ends_[2];
  pid_t pid_;
};

struct Waits {
  const Helper* helper;
  int messages, listener;
};

// Far below what stays in memory of a thread's stack.
[[gnu::noinline]] void WaitDeep(const Waits& all) {
  volatile char deep[300 << 10];
  for (size_t i = 0; i < sizeof(deep); i += 4096) deep[i] = 1;
  char text[100] = "";
  sockaddr_un name = {};
  socklen_t length = sizeof(name);
  all.helper->Ask('m');
  CHECK(recvfrom(all.messages, text, sizeof(text), 0, reinterpret_cast<sockaddr*>(&name), &length) == 6 && std::strcmp(text, "hello") == 0);
  all.helper->Ask('m');
  iovec vector = {text, sizeof(text)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  text[0] = 0;
  CHECK(recvmsg(all.messages, &message, 0) == 6 && std::strcmp(text, "hello") == 0 && message.msg_controllen == 0);
  all.helper->Ask('m');
  fd_set set;
  FD_ZERO(&set);
  FD_SET(all.messages, &set);
  CHECK(select(all.messages + 1, &set, nullptr, nullptr, nullptr) == 1 && FD_ISSET(all.messages, &set));
  CHECK(recv(all.messages, text, sizeof(text), 0) == 6);
  all.helper->Ask('c');
  sockaddr_in peer = {};
  length = sizeof(peer);
  const int accepted = accept(all.listener, reinterpret_cast<sockaddr*>(&peer), &length);
  CHECK(accepted >= 0 && length == sizeof(peer) && peer.sin_family == AF_INET);
  close(accepted);
  for (int turn = 0; turn < 2; ++turn) {
    all.helper->Ask('s');
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGUSR1);
    int number = 0;
    siginfo_t info = {};
    CHECK(turn == 0 ? sigwait(&alarm, &number) == 0 && number == SIGUSR1 : sigwaitinfo(&alarm, &info) == SIGUSR1 && info.si_signo == SIGUSR1);
  }
  all.helper->End();
  int status = 0;
  CHECK(waitpid(all.helper->pid(), &status, 0) == all.helper->pid() && WIFEXITED(status) && WEXITSTATUS(status) == 7 && deep[4096] == 1);
}

}  // namespace

void WaitsOnStacks() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  CHECK(sigprocmask(SIG_BLOCK, &signals, nullptr) == 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  int ends[2];
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(listener, 5) == 0 && getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  const pid_t parent = getpid();
  const Helper helper([&](char what) {
    if (what == 'm') CHECK(send(ends[0], "hello", 6, 0) == 6);
    if (what == 'c') CHECK(connect(socket(AF_INET, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    if (what == 's') CHECK(sigqueue(parent, SIGUSR1, {}) == 0);
  });
  const Waits waits = {&helper, ends[1], listener};
  void* stack = nullptr;
  CHECK(posix_memalign(&stack, 4096, kStack) == 0);
  std::memset(stack, 0, kStack);
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, kStack) == 0);
  const Sweeper sweeper;
  pthread_t thread;
  CHECK(pthread_create(&thread, &attributes, [](void* all) -> void* { return WaitDeep(*static_cast<const Waits*>(all)), nullptr; }, const_cast<Waits*>(&waits)) == 0);
  CHECK(munlockall() == 0);  // nobody but Ramspan has locked
  CHECK(pthread_join(thread, nullptr) == 0);
}

// recvmmsg with a time within which it ends: the first message was lost. Descriptors that came behind the first MiB of a MSG_WAITALL were.
void LateMessages() {
  constexpr unsigned kCount = 4;
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
  char* const texts = New(4 * kMiB);
  mmsghdr messages[kCount] = {};
  iovec vectors[kCount];
  for (unsigned i = 0; i < kCount; ++i) {
    vectors[i] = {texts + i * kMiB, 100};
    messages[i].msg_hdr.msg_iov = vectors + i;
    messages[i].msg_hdr.msg_iovlen = 1;
    CHECK(send(ends[0], "0123", i + 1, 0) == static_cast<ssize_t>(i + 1));
  }
  std::memset(texts, 0, 4 * kMiB);
  Sweep();
  timespec most = {1, 0};
  CHECK(recvmmsg(ends[1], messages, kCount, 0, &most) == static_cast<int>(kCount));
  for (unsigned i = 0; i < kCount; ++i) CHECK(messages[i].msg_len == i + 1 && std::memcmp(vectors[i].iov_base, "0123", i + 1) == 0);
  CHECK(most.tv_sec == 0 && most.tv_nsec > 0);
  most = {0, 0};  // no time at all: after one
  CHECK(send(ends[0], "0", 1, 0) == 1 && send(ends[0], "1", 1, 0) == 1);
  Sweep();
  CHECK(recvmmsg(ends[1], messages, kCount, 0, &most) == 1 && texts[0] == '0');
  most = {0, 1'000'000'000};
  Sweep();
  CHECK(recvmmsg(ends[1], messages, kCount, 0, &most) == -1 && errno == EINVAL);
  // A name with more room than any address has.
  CHECK(recv(ends[1], texts, 1, 0) == 1 && send(ends[0], "named", 6, 0) == 6);
  msghdr named = {};
  named.msg_iov = vectors;
  named.msg_iovlen = 1;
  named.msg_name = New(kMiB);
  named.msg_namelen = 256;
  Sweep();
  CHECK(recvmsg(ends[1], &named, 0) == 6 && std::strcmp(texts, "named") == 0 && named.msg_namelen == 0);

  int stream[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0);
  const size_t bytes = kMiB + 1000;
  std::thread sender([&] {
    SendAll(stream[0], kMiB);
    SendDescriptor(stream[0], stream[0], bytes - kMiB);
    close(stream[0]);
  });
  char* const all = New(2 * kMiB);
  size_t got = 0;
  int descriptors = 0;
  for (ssize_t n = 1; n > 0;) {
    iovec vector = {all + got, 2 * kMiB - got};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message = {};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    n = recvmsg(stream[1], &message, MSG_WAITALL);
    CHECK(n >= 0);
    got += static_cast<size_t>(n);
    if (CMSG_FIRSTHDR(&message) == nullptr) continue;
    int given = -1;
    std::memcpy(&given, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    close(given);
    ++descriptors;
  }
  sender.join();
  CHECK(got == bytes && descriptors == 1 && all[0] == 'a' && all[bytes - 1] == 'a');
}

// A handler that blocks all signals, in a child whose memory comes by one.
namespace {
char* volatile of_parent;
std::atomic<int> seen{0};
}  // namespace
void ChildHandlerMasks() {
  of_parent = New(kMiB);
  of_parent[123'456] = 42;
  struct sigaction action = {};
  action.sa_handler = [](int) { seen.store(of_parent[123'456]); };
  sigfillset(&action.sa_mask);
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  CHECK(InChild([] { return raise(SIGUSR1) == 0 ? seen.load() : -1; }) == 42);
}

// Lengths that are nothing, or more than there is.
void Lengths() {
  char* const first = New(kMiB);
  first[0] = 1;
  const auto fails = [](int result, int error) { return result == -1 && errno == error; };
  for (const size_t wrapped : {SIZE_MAX, SIZE_MAX - 99, SIZE_MAX - 4096, SIZE_MAX / 2}) {
    CHECK(fails(mprotect(first - reinterpret_cast<uintptr_t>(first) % 4096, wrapped, PROT_READ), ENOMEM));
    CHECK(fails(madvise(first - reinterpret_cast<uintptr_t>(first) % 4096, wrapped, MADV_DONTNEED), wrapped > SIZE_MAX - 4096 ? EINVAL : ENOMEM));
    CHECK(fails(munmap(first - reinterpret_cast<uintptr_t>(first) % 4096, wrapped), EINVAL));
  }
  char* const mapped = Map(2 * kMiB);
  const auto fails_to_move = [&](size_t before, size_t bytes, int flags) { return mremap(mapped, before, bytes, flags) == MAP_FAILED && errno == EINVAL; };
  for (const size_t wrapped : {size_t{4096}, size_t{8192}, 4 * kMiB}) CHECK(fails_to_move(-wrapped, kMiB, 0) && fails_to_move(-wrapped, -size_t{4096}, MREMAP_MAYMOVE));
  mapped[0] = mapped[4096] = 2;
  CHECK(mmap(mapped + 1, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL && mapped[0] == 2 && mapped[4096] == 2);
  CHECK(mmap(mapped, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL);
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0 && send(ends[0], "abc", 3, 0) == 3);
  auto* const length = reinterpret_cast<socklen_t*>(New(kMiB));
  *length = 77;
  Sweep();
  char text[9];
  CHECK(recvfrom(ends[1], text, sizeof(text), 0, nullptr, length) == 3 && *length == 77);  // nobody asks for an address
  CHECK(first[0] == 1);
}

// mlockall locked what is swapped for a moment: what was given back meanwhile was not zeros when it came again, and moves failed.
void LocksBesideAllocations() {
  char* const kept = Filled(kMiB);
  std::atomic<bool> stop{false};
  std::thread locker([&] {
    while (!stop.load()) CHECK(mlockall(MCL_CURRENT) == 0);
  });
  for (int round = 0; round < 300; ++round) {
    constexpr size_t kBytes = 256 << 10;
    auto* const fresh = static_cast<char*>(calloc(1, kBytes));
    for (size_t i = 0; i < kBytes; i += 4096) {
      CHECK(fresh[i] == 0);
      fresh[i] = 1;
    }
    free(fresh);
    if (round % 50 == 0) Sweep();
  }
  stop.store(true);
  locker.join();
  CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
  Sweep();
  CHECK(IsFilled(kept, 0, kMiB) && munlockall() == 0);
}

// What starts programs: their arguments, and what libc reads and answers with all signals blocked, leave beside a thread that uses much. On a coroutine's stack, too.
namespace {
ucontext_t outside, coroutine;
void StartsPrograms() {
  for (int round = 0; round < 5; ++round) {
    usleep(kLater / 10);
    int status = system("exit 7");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    FILE* const pipe = popen("echo right", "r");
    char text[20] = "";
    CHECK(pipe != nullptr && std::fgets(text, sizeof(text), pipe) != nullptr && std::strcmp(text, "right\n") == 0 && pclose(pipe) == 0);
  }
  int terminal = -1;
  CHECK(fork() == -1 && errno == EAGAIN);  // its child would have no stack
  CHECK(daemon(1, 1) == -1 && errno == EAGAIN && forkpty(&terminal, nullptr, nullptr, nullptr) == -1 && errno == EAGAIN);
}
}  // namespace
void Spawns() {
  constexpr size_t kBytes = 100'000, kCount = 8;
  char* arguments[kCount + 2] = {const_cast<char*>("true")};
  for (size_t i = 1; i <= kCount; ++i) {
    arguments[i] = New(256 << 10);
    std::memset(arguments[i], 'a', kBytes);
    arguments[i][kBytes] = 0;
  }
  auto* const pid = reinterpret_cast<pid_t*>(New(kMiB));
  auto* const actions = reinterpret_cast<posix_spawn_file_actions_t*>(New(kMiB));
  auto* const attributes = reinterpret_cast<posix_spawnattr_t*>(New(kMiB));
  char* const command = std::strcpy(New(kMiB), "exit 7");
  CHECK(posix_spawn_file_actions_init(actions) == 0 && posix_spawnattr_init(attributes) == 0);
  const Sweeper sweeper;
  for (int round = 0; round < 20; ++round) {
    errno = posix_spawn(pid, "/bin/true", actions, attributes, arguments, environ);
    CHECK(errno == 0);
    int status = -1;
    CHECK(waitpid(*pid, &status, 0) == *pid && status == 0);
    status = system(command);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
  // More blocks than ever are at home at once; a file that is made once; and what libc looks for in its child.
  constexpr size_t kMany = 300, kApart = 64 << 10;
  char** const many = reinterpret_cast<char**>(New(kMiB));
  char* const texts = New(kMany * kApart);
  for (size_t i = 0; i < kMany; ++i) many[i] = std::strcpy(texts + i * kApart, "argument");
  many[kMany] = nullptr;
  char made[] = "/tmp/ramspan-preloaded-XXXXXX";
  CHECK(close(mkstemp(made)) == 0 && putenv(std::strcpy(New(kMiB), "PATH=/nowhere:/usr/bin:/bin")) == 0);
  char* const name = std::strcpy(New(kMiB), "true");
  CHECK(posix_spawn_file_actions_addopen(actions, 1, made, O_CREAT | O_EXCL | O_WRONLY, 0600) == 0);
  for (int round = 0; round < 10; ++round) {
    CHECK(unlink(made) == 0);
    errno = round % 2 == 0 ? posix_spawn(pid, "/bin/true", actions, attributes, many, environ) : posix_spawnp(pid, name, actions, attributes, many, many);
    CHECK(errno == 0);
    int status = -1;
    CHECK(waitpid(*pid, &status, 0) == *pid && status == 0);
  }
  CHECK(unlink(made) == 0);
  for (int round = 0; round < 5; ++round) {
    const pid_t child = vfork();
    if (child == 0) _exit(execve("/bin/true", many, environ));
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  }
  constexpr size_t kCoroutine = 256 << 10;
  CHECK(getcontext(&coroutine) == 0);
  coroutine.uc_stack.ss_sp = New(kCoroutine);
  coroutine.uc_stack.ss_size = kCoroutine;
  coroutine.uc_link = &outside;
  makecontext(&coroutine, StartsPrograms, 0);
  CHECK(swapcontext(&outside, &coroutine) == 0);
}

// Whether a call that waits goes on behind a signal by which pages come, where somebody sends it, is for the program to say.
void Restarts() {
  New(kMiB)[0] = 1;
  const pid_t parent = getpid();
  int ends[2], heard[2];
  CHECK(pipe(ends) == 0 && pipe(heard) == 0);
  for (const int signal : {SIGBUS, SIGSEGV}) {
    for (const bool goes_on : {true, false}) {
      struct sigaction action = {};
      action.sa_handler = [](int) { seen.fetch_add(1); };
      action.sa_flags = goes_on ? SA_RESTART : 0;
      CHECK(sigaction(signal, &action, nullptr) == 0);
      seen.store(0);
      const pid_t helper = fork();
      if (helper == 0) {
        usleep(kLater);
        pollfd until = {heard[0], POLLIN, 0};
        do {  // on a busy machine the first one comes before the read
          CHECK(sigqueue(parent, signal, {}) == 0);
        } while (poll(&until, 1, kLater / 1000) == 0 && !goes_on);
        _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
      }
      char text = 0;
      ssize_t got = read(ends[0], &text, 1);
      CHECK(goes_on ? got == 1 && seen.load() == 1 : got == -1 && errno == EINTR);
      if (!goes_on) CHECK(write(heard[1], "x", 1) == 1);
      while (got == -1 && errno == EINTR) got = read(ends[0], &text, 1);
      CHECK(got == 1 && text == 'x' && seen.load() >= 1);
      int status = 1;
      CHECK(waitpid(helper, &status, 0) == helper && status == 0);
      if (!goes_on) CHECK(read(heard[0], &text, 1) == 1);
    }
  }
}

// Of the processor's time, and what is blocked: answered into memory that has left.
void SmallAnswers() {
  auto* const time = reinterpret_cast<timespec*>(New(kMiB));
  auto* const mask = reinterpret_cast<sigset_t*>(New(kMiB));
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  CHECK(sigprocmask(SIG_BLOCK, &blocked, nullptr) == 0);
  for (int round = 0; round < 3; ++round) {
    Sweep();
    CHECK(clock_gettime(round % 2 == 0 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID, time) == 0 && (time->tv_sec > 0 || time->tv_nsec > 0));
    Sweep();
    CHECK(pthread_sigmask(SIG_BLOCK, nullptr, mask) == 0 && sigismember(mask, SIGUSR1) == 1 && sigismember(mask, SIGUSR2) == 0);
    Sweep();
    CHECK(sigprocmask(SIG_BLOCK, mask, nullptr) == 0);
    const timespec at_once = {};
    Sweep();
    CHECK(ppoll(nullptr, 0, &at_once, mask) == 0);
    Sweep();
    CHECK(pselect(0, nullptr, nullptr, nullptr, &at_once, mask) == 0);
  }
}

namespace {
char* volatile touched;
std::atomic<size_t> touched_to;
constexpr size_t kTouched = 96 * kMiB;
void TouchMore(int) {
  for (int i = 0; i < 64 && touched_to < kTouched; ++i, touched_to += 4096) touched[touched_to] = 1;
  const itimerval next = {{}, {0, 500}};  // after this one's end, so that the program goes on between
  if (touched_to < kTouched) setitimer(ITIMER_REAL, &next, nullptr);
}
// Malloc may be the first one that uses a page of the stack.
__attribute__((noinline)) void AllocateDeeper(int times) {
  char room[48];
  asm volatile("" : : "r"(room) : "memory");
  void* volatile one = malloc(1100 + static_cast<size_t>(times) * 16);
  void* volatile other = malloc(3000);
  free(one);
  free(other);
  if (times > 0) AllocateDeeper(times - 1);
  asm volatile("" : : "r"(room) : "memory");
}
void AllocatesDeep() { AllocateDeeper(1200); }
}  // namespace

// Who brings a page asked libc's heap for memory, and the thread that needs the page had locked that: a signal handler that has interrupted malloc, and malloc itself on a
// coroutine's stack. Both waited for ever, by the first few hundred descriptors.
void FaultsInMalloc() {
  touched = New(kTouched);
  struct sigaction action = {};
  action.sa_handler = TouchMore;
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
  TouchMore(SIGALRM);
  void* volatile some[64] = {};
  for (size_t n = 0; touched_to < kTouched; ++n) {
    free(some[n % 64]);
    some[n % 64] = malloc(1100 + n * 37 % 20000);
  }
  for (void* one : some) free(one);
  for (int i = 0; i < 300; ++i) {
    constexpr size_t kBytes = 256 << 10;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = New(kBytes);
    coroutine.uc_stack.ss_size = kBytes;
    coroutine.uc_link = &outside;
    makecontext(&coroutine, AllocatesDeep, 0);
    CHECK(swapcontext(&outside, &coroutine) == 0);
  }
}

// Of a thread on a stack of such memory libc goes through the top in each forked child, where nothing was yet: all of them ended by SIGSEGV.
void ForksBesideStacks() {
  struct Shared {
    std::atomic<char*> local{nullptr};
    std::atomic<bool> ends{false};
  } shared;
  const auto run = [](void* of) -> void* {
    auto* const here = static_cast<Shared*>(of);
    char local[3000];
    memset(local, 'x', sizeof(local));
    here->local = local;
    while (!here->ends) usleep(1000);
    for (const char c : local) CHECK(c == 'x');
    return nullptr;
  };
  char* const data = Filled(2 * kMiB);
  for (const size_t bytes : {kMiB / 4, kMiB, 3 * kMiB}) {
    void* stack = nullptr;
    CHECK(posix_memalign(&stack, 4096, bytes + 8192) == 0);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, static_cast<char*>(stack) + 4096, bytes) == 0);  // units are not aligned to it
    shared.local = nullptr, shared.ends = false;
    CHECK(pthread_create(&thread, &attributes, run, &shared) == 0);
    while (shared.local == nullptr) usleep(1000);
    for (int round = 0; round < 4; ++round) {
      if (round % 2 == 1) Sweep();
      const bool is_good = InChild([&] {
        for (int i = 0; i < 3000; ++i) {
          if (shared.local[i] != 'x') return 1;
        }
        return IsFilled(data, 0, 2 * kMiB) ? 7 : 2;
      }) == 7;
      CHECK(is_good);
      CHECK(InChild([&] { return InChild([&] { return shared.local[2999] == 'x' ? 7 : 1; }); }) == 7);
    }
    shared.ends = true;
    CHECK(pthread_join(thread, nullptr) == 0);
    pthread_attr_destroy(&attributes);
    free(stack);
    char* const other = Filled(bytes);  // where it was, perhaps: it leaves, and comes back
    CHECK(IsFilled(other, 0, bytes));
    CHECK(InChild([&] { return IsFilled(other, 0, bytes) ? 7 : 1; }) == 7);
    free(other);
  }
  free(data);
}

// Two stacks of which the tops are in one unit of 64 KiB, where blocks are pages. When the one was given back a forked child had not the other one's top, either; and what lay beside a top, and had left, was zeros in a child of _Fork.
void ForksBesideStacksInPages() {
  constexpr size_t kBytes = 256 << 10, kHalf = 32 << 10;
  void* area = nullptr;  // a whole one, so that advice makes its blocks pages when they come again
  CHECK(posix_memalign(&area, 32 * kMiB, 32 * kMiB) == 0);
  char* const memory = static_cast<char*>(area);
  constexpr size_t kPages = 3072;
  for (int i = 0; i < 3; ++i) {
    for (size_t k = 0; k < kPages; ++k) {  // here and there
      const size_t at = kMiB + k * 1031 % kPages * 4096;
      memory[at] = static_cast<char>(at >> 12 | 1);
    }
    CHECK(madvise(area, 32 * kMiB, MADV_RANDOM) == 0);
    Sweep();
  }
  static std::atomic<bool> ends;
  static std::atomic<int> begun;
  ends = false, begun = 0;
  const auto on = [](char* end) {  // a thread whose stack ends there
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    CHECK(pthread_attr_setstack(&attributes, end - kBytes, kBytes) == 0);
    const int before = begun;
    const auto run = [](void*) -> void* {
      ++begun;
      while (!ends) usleep(1000);
      return nullptr;
    };
    CHECK(pthread_create(&thread, &attributes, run, nullptr) == 0);
    while (begun == before) usleep(1000);
    return thread;
  };
  char* const unit = memory + 4 * kMiB;
  char* const first = unit + 8192;
  const pthread_t stays = on(first);
  Sweep();
  const pid_t child = fork();
  if (child == 0) _exit(7);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
#if __GLIBC_PREREQ(2, 34)
  const pid_t unknown = _Fork();
  if (unknown == 0) {
    for (char* at = unit + kHalf / 2; at < unit + (64 << 10); at += 4096) {
      if (*at == 0) _exit(8);  // by SIGSEGV, or what was there
    }
    _exit(7);
  }
  CHECK(waitpid(unknown, &status, 0) == unknown && (WIFSIGNALED(status) || WEXITSTATUS(status) == 7));
#endif
  // Another top in the same unit comes and goes.
  for (int i = 0; i < 10; ++i) {
    madvise(unit + kHalf, kHalf, MADV_DONTNEED);
    CHECK(madvise(unit + 16384, 4096, MADV_DONTNEED) == 0);
    CHECK(InChild([] { return 7; }) == 7);
  }
  ends = true;
  CHECK(pthread_join(stays, nullptr) == 0);
  free(memory);
}
