#include "client/pages/fork_copy.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "client/pages/page_space.h"
#include "common/cancel_disabled.h"
#include "common/descriptor.h"
#include "common/log.h"
#include "common/process_mark.h"
#include "common/public_call.h"
#include "common/units.h"
#include "common/write_signals_blocked.h"

namespace ramspan {
namespace {

using Clock = std::chrono::steady_clock;

// A child that is about to exec has done so by then, as a rule; copying costs more than waiting in vain for as long as it would take.
constexpr auto kPatience = std::chrono::milliseconds(50);
constexpr auto kPatienceMost = std::chrono::milliseconds(1000);
constexpr uint64_t kCopiedAMs = uint64_t{4} << 20;  // bytes; about, beside page-cache files
constexpr auto kLongForAFork = std::chrono::seconds(2);
constexpr size_t kRunsAtOnce = 128;
constexpr uint64_t kAlignmentOfFile = 4096;  // of what is mapped

constexpr int kBlocksOne = 32;        // so many blocks are given one by one: what a child touches that is about to exec. Then it gets all
constexpr uint64_t kAll = UINT64_MAX;  // instead of a block's home

// What the parent answers, beside the descriptor of the file.
struct Answer {
  uint64_t runs = 0, table = 0;  // how many, and where in the file they are
  bool may_ask_again = false;    // it was a block of many
  char why_not[200] = "";        // empty: there is a file
};

ForkCopy::Options* options = nullptr;
std::atomic<PageSpace*> opened{nullptr};
PageSpace* Space() { return opened.load(std::memory_order_acquire); }

// From Prepare on until the fork is done: the ends of the socket, and the signals that were blocked: a handler that forks would take these ends for its own.
struct Fork {
  int parent = -1, child = -1;
  sigset_t mask = {};
};
// A handler of forks that the program has may fork itself.
constexpr size_t kForksInForks = 4;
thread_local Fork t_forks[kForksInForks];
thread_local size_t t_fork_depth = 0;
Fork TakeFork() {
  if (t_fork_depth == 0 || --t_fork_depth >= kForksInForks) return {};
  return std::exchange(t_forks[t_fork_depth], {});
}

// All descriptors of forks that are under way: what a child of another thread inherits would keep a third one waiting.
constexpr size_t kForksMost = 64;
std::atomic<int> open_ends[3 * kForksMost] = {};  // the descriptor + 1; 0: none

int Listed(int fd) {
  for (std::atomic<int>& place : open_ends) {
    if (int none = 0; fd >= 0 && place.compare_exchange_strong(none, fd + 1)) break;
  }
  return fd;
}

enum class State { kParent, kMayAsk, kAsks, kHas, kHasNone };
std::atomic<State> state{State::kParent};
std::atomic<int> asks_by{-1};
Answer answer;  // the child's; complete when `state` says so
CopiedRun given[kBlocksOne];  // blocks that the child has already, and may have changed
int given_count = 0;
bool is_unknown_child = false;  // made by _Fork, or clone: nobody was asked whether it may ask

void CloseEnd(int* fd) {
  for (std::atomic<int>& place : open_ends) {
    if (int this_one = *fd + 1; this_one > 0 && place.compare_exchange_strong(this_one, 0)) break;
  }
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// Without a name. In memory where the folder is out of reach.
int OpenFile(const std::string& folder) {
  int fd = BeyondPrograms(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd < 0) {
    std::string name = folder + "/ramspan-fork-XXXXXX";
    fd = BeyondPrograms(mkostemp(name.data(), O_CLOEXEC));
    if (fd >= 0) unlink(name.c_str());
  }
  if (fd < 0) {
    const int error = errno;
    fd = BeyondPrograms(memfd_create("ramspan-fork", MFD_CLOEXEC));
    static std::atomic<bool> told{false};
    if (fd >= 0 && !told.exchange(true)) {
      LogWarning("copies of memory that is swapped by pages, for forked children, are in memory, beside the limit: no file can be made in %s (%s). The key swapfiles names another folder", folder.c_str(), strerror(error));
    }
  }
  return Listed(fd);
}

// All memory, and the table behind it.
Status WriteFile(int fd, Answer* to) {
  std::vector<CopiedRun> runs;
  if (Status status = Space()->CopyTo(fd, &runs); !status.ok()) return status;
  for (const CopiedRun& run : runs) to->table = std::max(to->table, run.offset + run.bytes);
  to->runs = runs.size();
  return PageSpace::WriteTo(fd, runs.data(), runs.size() * sizeof(CopiedRun), to->table);
}

void SendAnswer(int to, const Answer& what, int fd) {
  iovec bytes = {const_cast<Answer*>(&what), sizeof(what)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  while (sendmsg(to, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

// Of the child's file, whose number there may be that of a standard stream that is closed, until it is moved up: who prints to that may not write into it.
void SendFile(int to, const Answer& what, int fd) {
  char name[40];
  snprintf(name, sizeof(name), "/proc/thread-self/fd/%d", fd);
  int read_only = fd < 0 ? -1 : Listed(BeyondPrograms(open(name, O_RDONLY | O_CLOEXEC)));
  SendAnswer(to, what, read_only < 0 ? fd : read_only);
  CloseEnd(&read_only);
}

// The descriptor of the file; -1: `what` says why not.
int ReceiveAnswer(int from, Answer* what) {
  iovec bytes = {what, sizeof(*what)};
  alignas(cmsghdr) static char control[CMSG_SPACE(sizeof(int))];
  static msghdr message;
  message = {};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got;
  // ECONNRESET: the parent has closed its end before it has read the question. Its answer is there all the same.
  for (bool reset = false; (got = recvmsg(from, &message, MSG_CMSG_CLOEXEC)) < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true)));) {
  }
  int fd = -1;
  if (got == static_cast<ssize_t>(sizeof(*what)) && (message.msg_flags & MSG_CTRUNC) != 0) strcpy(what->why_not, "there is no descriptor left for its file (ulimit -n)");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (got == static_cast<ssize_t>(sizeof(*what)) && header != nullptr && header->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(header), sizeof(int));
  fd = BeyondPrograms(fd);
  if (fd < 0 && (got != static_cast<ssize_t>(sizeof(*what)) || what->why_not[0] == '\0')) strcpy(what->why_not, "its parent has ended, or the program has closed Ramspan's descriptor");
  return fd;
}

// But for blocks that the child has already. The system call itself: libc's name may be the preloaded library's, which keeps such addresses free.
bool MapRun(int fd, const CopiedRun& run) {
  for (uint64_t at = 0, next; at < run.bytes; at = next) {
    const uint64_t here = run.home + at;
    uint64_t end = run.home + run.bytes, given_end = here;
    for (int i = 0; i < given_count; ++i) {
      if (given[i].home <= here) given_end = std::max(given_end, given[i].home + given[i].bytes);
      if (given[i].home > here) end = std::min(end, given[i].home);
    }
    if (given_end > here) {
      next = given_end - run.home;
      continue;
    }
    next = end - run.home;
    char* const home = Space()->homes().begin + run.home + at;
    constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    const long mapped = run.is_zeros ? syscall(SYS_mmap, home, next - at, PROT_READ | PROT_WRITE, kFlags | MAP_ANONYMOUS, -1, 0)
                                     : syscall(SYS_mmap, home, next - at, PROT_READ | PROT_WRITE, kFlags, fd, run.offset + at);
    if (mapped != reinterpret_cast<long>(home)) return false;
  }
  return true;
}

// Code, which what is mapped of the file may not be (noexec), is read from it.
bool Protect(int fd, const CopiedRun& run) {
  char* const home = Space()->homes().begin + run.home;
  if ((run.protection & PROT_EXEC) != 0) {
    if (syscall(SYS_mmap, home, run.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) != reinterpret_cast<long>(home)) return false;
    // Less: behind the end of the file are zeros.
    if (pread(fd, home, run.bytes, static_cast<off_t>(run.offset)) < 0) return false;
  }
  return syscall(SYS_mprotect, home, run.bytes, run.protection) == 0;
}

// False: `what` says why not. One at a time (State::kAsks): the stack may be a small one of the program's for signals.
bool MapRuns(int fd, Answer* what) {
  static CopiedRun runs[kRunsAtOnce];
  for (uint64_t done = 0; done < what->runs;) {
    const uint64_t count = std::min<uint64_t>(what->runs - done, kRunsAtOnce);
    const ssize_t bytes = static_cast<ssize_t>(count * sizeof(CopiedRun));
    if (pread(fd, runs, static_cast<size_t>(bytes), static_cast<off_t>(what->table + done * sizeof(CopiedRun))) != bytes) {
      strcpy(what->why_not, "the file of the copy cannot be read");
      return false;
    }
    for (uint64_t i = 0; i < count; ++i) {
      if (runs[i].protection != (PROT_READ | PROT_WRITE) ? Protect(fd, runs[i]) : MapRun(fd, runs[i])) continue;
      strcpy(what->why_not, "the copy cannot be mapped: too many mappings (sysctl vm.max_map_count), or too little memory is promised to this process (vm.overcommit_memory)");
      return false;
    }
    done += count;
  }
  if (what->may_ask_again && what->runs == 1) given[given_count++] = runs[0];
  return true;
}

// The block that has `home`, to `*offset` in the file, which is behind it then.
void GiveBlock(int to, int fd, uint64_t home, uint64_t* offset) {
  Answer what;
  what.may_ask_again = true;
  CopiedRun run;
  Status status;
  if (Space()->IsUsed(Space()->homes().begin + home, 1)) {
    what.runs = 1;
    status = Space()->CopyBlockTo(fd, home, *offset, &run);
    what.table = *offset + run.bytes;
    if (status.ok()) status = PageSpace::WriteTo(fd, &run, sizeof(run), what.table);
    *offset = what.table + kAlignmentOfFile;
  }
  if (!status.ok()) what.runs = 0;  // it asks again, until it gets all, or the reason
  SendFile(to, what, fd);
}

// Whether the child may want a copy: it asks for all, or for more and more, or has done nothing else for too long.
bool MayWantCopy(int from) {
  const auto until = Clock::now() + std::min<std::chrono::milliseconds>(kPatience + std::chrono::milliseconds(Space()->touched_bytes() / kCopiedAMs / 4), kPatienceMost);
  int fd = -1;
  bool wants = false;
  uint64_t offset = 0;
  for (int blocks = 0; !wants;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd one = {from, POLLIN, 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    uint64_t home = kAll;
    const ssize_t got = ready > 0 ? recv(from, &home, sizeof(home), MSG_TRUNC) : 0;
    if (ready > 0 && got <= 0) break;  // it has closed its end
    if (ready > 0 && got != static_cast<ssize_t>(sizeof(home))) {  // a print of its own to a standard stream that is closed
      wants = left <= 0;
      continue;
    }
    wants = ready <= 0 || home >= Space()->homes().bytes || blocks == kBlocksOne || Space()->IsProtected(Space()->homes().begin + home);
    if (!wants && fd < 0) fd = OpenFile(options->folder);
    wants |= fd < 0;
    if (wants) break;
    GiveBlock(from, fd, home, &offset);
    ++blocks;
  }
  CloseEnd(&fd);
  return wants;
}

// All memory, or why not.
void Answered(int to) {
  const auto since = Clock::now();
  Answer what;
  int fd = OpenFile(options->folder);
  const Status status = fd < 0 ? Unavailable(strerror(errno)) : WriteFile(fd, &what);
  if (!status.ok()) {
    snprintf(what.why_not, sizeof(what.why_not), "the copy for it cannot be written to %s: %s", options->folder.c_str(), status.message().c_str());
    CloseEnd(&fd);
  }
  SendFile(to, what, fd);
  CloseEnd(&fd);
  if (Clock::now() - since < kLongForAFork) return;
  LogWarning("fork has taken %.0f s, in which %s of memory that is swapped by pages were copied for the child (pageChildren = none leaves that out: for children that do not use it)",
             std::chrono::duration<double>(Clock::now() - since).count(), FormatBytes(Space()->touched_bytes()).c_str());
}

}  // namespace

void ForkCopy::Open(PageSpace* of, const Options& how) {
  options = new Options(how);
  if (char* const whole = realpath(how.folder.c_str(), nullptr); whole != nullptr) {  // the program may go to another folder
    options->folder = whole;
    free(whole);
  }
  opened.store(of, std::memory_order_release);
}

void ForkCopy::Prepare() {
  const size_t depth = t_fork_depth++;
  if (Space() == nullptr || depth >= kForksInForks) return;
  Fork& fork = t_forks[depth];
  if (state.load() != State::kParent) {
    Ask(nullptr);  // a child's child has what its parent has
    return;
  }
  if (ProcessMark::IsOfParent()) {
    is_unknown_child = true;
    return;
  }
  const detail::Inside inside;
  const CancelDisabled uncancelled;
  const int error = errno;
  int ends[2];
  if (options->copies) {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&all, own);  // by which pages come
    pthread_sigmask(SIG_BLOCK, &all, &fork.mask);
    bool made = false;
    {
      const HeldStandardStreams held;
      made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;
    }
    made = made || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0;  // there may be no other numbers left than those
    if (made) {
      fork.parent = Listed(BeyondPrograms(ends[0]));
      fork.child = Listed(BeyondPrograms(ends[1]));
    } else {
      pthread_sigmask(SIG_SETMASK, &fork.mask, nullptr);
    }
  }
  errno = error;
}

void ForkCopy::InParent() {
  Fork ends = TakeFork();
  if (ends.parent < 0) return;
  const int error = errno;
  {
    const PublicCall call(PublicCall::Stack::kAny);
    const WriteSignalsBlocked blocked;
    CloseEnd(&ends.child);
    if (MayWantCopy(ends.parent)) Answered(ends.parent);
    CloseEnd(&ends.parent);
  }
  const detail::Inside inside;
  pthread_sigmask(SIG_SETMASK, &ends.mask, nullptr);
  errno = error;
}

bool ForkCopy::is_first_child() { return Space() != nullptr && state.load() == State::kParent; }

bool ForkCopy::is_of_unknown_child() { return is_unknown_child; }

void ForkCopy::InChild() {
  Fork ends = TakeFork();
  if (Space() == nullptr || state.load() != State::kParent) return;
  const detail::Inside inside;
  const CancelDisabled uncancelled;
  for (size_t i = 0; i < t_fork_depth; ++i) t_forks[i] = {};  // they are the parent's
  const bool is_masked = ends.parent >= 0;  // Prepare's mask
  for (std::atomic<int>& place : open_ends) {
    if (const int fd = place.exchange(0) - 1; fd >= 0 && fd != ends.child) close(fd);
  }
  asks_by.store(ends.child);
  if (ends.child < 0) {
    strcpy(answer.why_not, is_unknown_child ? "its parent was itself made by _Fork or clone, and has none" : options->copies ? "there was no descriptor left at the fork to ask for it (ulimit -n)" : "pageChildren = none");
    state.store(State::kHasNone);
  } else {
    state.store(State::kMayAsk);
    sigdelset(&ends.mask, SIGSEGV);  // by which it asks
  }
  if (is_masked) pthread_sigmask(SIG_SETMASK, &ends.mask, nullptr);
}

bool ForkCopy::Ask(const void* address) {
  const detail::Inside inside;  // libc's names may be the preloaded library's, which would ask itself
  const CancelDisabled uncancelled;
  const int error = errno;
  const uint64_t home = address == nullptr ? kAll : static_cast<uint64_t>(static_cast<const char*>(address) - Space()->homes().begin) / kAlignmentOfFile * kAlignmentOfFile;
  sigset_t all, before;  // a handler that touches such memory would wait for its own thread
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  State now = State::kMayAsk;
  if (state.compare_exchange_strong(now, State::kAsks)) {
    int socket = asks_by.load();
    while (send(socket, &home, sizeof(home), MSG_NOSIGNAL) < 0 && errno == EINTR) {  // it may have answered already, and be gone
    }
    answer = Answer();
    int fd = ReceiveAnswer(socket, &answer);
    now = fd < 0 || !MapRuns(fd, &answer) ? State::kHasNone : answer.may_ask_again ? State::kMayAsk : State::kHas;
    CloseEnd(&fd);
    if (now != State::kMayAsk) {
      asks_by.store(-1);
      CloseEnd(&socket);
    }
    state.store(now, std::memory_order_release);
  } else {
    while ((now = state.load(std::memory_order_acquire)) == State::kAsks) sched_yield();  // another thread does
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return now == State::kMayAsk ? address != nullptr || Ask(nullptr) : now == State::kHas;
}

const char* ForkCopy::why_not() { return state.load(std::memory_order_acquire) == State::kHasNone ? answer.why_not : nullptr; }
int ForkCopy::descriptor() { return asks_by.load(); }

}  // namespace ramspan
