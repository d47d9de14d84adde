// libramspan-pages, ninth part: calls that start other programs. Their names, arguments and environments are the kernel's to read.
// Thread-safety, signals: as the calls that they replace.
#include <alloca.h>
#include <pthread.h>
#include <pty.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <optional>

#include "client/preload/beside.h"

namespace ramspan::preload {
namespace {

// Whether this is a child of vfork (or clone), which has its parent's memory until it starts another program.
std::atomic<pid_t> own_pid{0};
[[gnu::constructor]] void FindOwnPid() {
  const auto find = [] { own_pid.store(static_cast<pid_t>(syscall(SYS_getpid)), std::memory_order_relaxed); };
  find();
  pthread_atfork(nullptr, nullptr, find);
}
bool HasMemoryOfParent() { return syscall(SYS_getpid) != own_pid.load(std::memory_order_relaxed); }

// Beside, for a child of vfork, in whose parent nobody would give that back. The kernel does: when the child has left its parent's memory it clears the word at its "tid address". What has
// been mapped stays for the next one: as many pieces as there are children at once, kMost of them.
class LeftInParent {
 public:
  explicit LeftInParent(size_t bytes) {
    if (bytes == 0) return;
    const auto take = [](Piece& piece) {
      int nobody = 0;
      return piece.user.compare_exchange_strong(nobody, 1, std::memory_order_acquire, std::memory_order_relaxed);
    };
    piece_ = std::find_if(pieces, pieces + kMost, take);
    if (piece_ == pieces + kMost) return;
    syscall(SYS_set_tid_address, &piece_->user);
    if (piece_->bytes >= bytes) return;
    if (piece_->bytes > 0) syscall(SYS_munmap, piece_->begin, piece_->bytes);
    const long begin = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    piece_->bytes = begin == -1 ? 0 : bytes;
    piece_->begin = begin == -1 ? nullptr : reinterpret_cast<char*>(begin);
  }
  ~LeftInParent() {  // it has started none
    if (piece_ == nullptr || piece_ == pieces + kMost) return;
    syscall(SYS_set_tid_address, nullptr);
    piece_->user.store(0, std::memory_order_release);
  }
  LeftInParent(const LeftInParent&) = delete;
  LeftInParent& operator=(const LeftInParent&) = delete;
  char* begin() const { return piece_ == nullptr || piece_ == pieces + kMost ? nullptr : piece_->begin; }

 private:
  static constexpr size_t kMost = 16;
  struct Piece {
    std::atomic<int> user;
    char* begin;
    size_t bytes;
  };
  static inline constinit Piece pieces[kMost] = {};
  Piece* piece_ = nullptr;
};

// libc blocks all signals while it starts a program, those by which pages come too: its stack, where that is swapped by pages, stays at home meanwhile.
class PinnedStack {
 public:
  PinnedStack() : PinnedStack(static_cast<const char*>(__builtin_frame_address(0))) {}

 private:
  static constexpr size_t kBelow = size_t{48} << 10, kAbove = size_t{4} << 10;  // what libc's calls use of it (the program that starts has another one), and who called them
  explicit PinnedStack(const char* here) : used_(here, kAbove), below_(here - Below(here), Below(here)) {}
  // As much of it as there is.
  static size_t Below(const char* here) {
    size_t below = NeedsPins(here) ? kBelow : 0;
    while (below > 0 && (!IsHome(here - below) || !detail::PagesAreUsed(here - below, below))) below /= 2;
    return below;
  }
  const Pinned used_, below_;  // the first block of either always finds room
};

// The text beside, where it may leave before it is read. Null: there is no memory for that.
class TextBeside {
 public:
  explicit TextBeside(const char* text) : is_beside_(NeedsPins(text)), beside_(is_beside_ ? strlen(text) + 1 : 0), text_(is_beside_ ? beside_.begin() : text) {
    if (is_beside_ && text_ != nullptr) strcpy(beside_.begin(), text);
  }
  bool is_missing() const { return is_beside_ && text_ == nullptr; }
  const char* get() const { return text_; }

 private:
  const bool is_beside_;
  const Beside beside_;
  const char* const text_;
};

// Arguments, or an environment, and how many bytes their copy takes: of as many as there are, and where they lie, not all may be at home at once. 0: none of it may leave.
size_t BytesOf(char* const* texts) {
  bool is_needed = NeedsPins(texts);  // of a forked child: its copy comes
  if (texts == nullptr) return 0;
  size_t bytes = sizeof(char*);
  for (; *texts != nullptr; ++texts) {
    const bool may_leave = NeedsPins(*texts);
    is_needed |= may_leave;
    bytes += sizeof(char*) + (may_leave ? strlen(*texts) + 1 : 0);
  }
  return is_needed ? (bytes + sizeof(char*) - 1) / sizeof(char*) * sizeof(char*) : 0;
}
char* const* CopiedTo(char* at, char* const* texts) {
  auto* const copy = reinterpret_cast<char**>(at);
  size_t count = 0;
  while (texts[count] != nullptr) ++count;
  char* text = at + (count + 1) * sizeof(char*);
  for (size_t i = 0; i < count; ++i) {
    copy[i] = texts[i];
    if (!NeedsPins(texts[i])) continue;
    copy[i] = text;
    text = stpcpy(text, texts[i]) + 1;
  }
  copy[count] = nullptr;
  return copy;
}

// start(name, arguments, environment), of copies in Memory where they may leave. False: there is no memory for that.
template <typename Memory, typename Start>
bool StartedFrom(const char* name, char* const* arguments, char* const* environment, const Start& start) {
  char* const names[] = {const_cast<char*>(name), nullptr};
  char* const* theirs[] = {names, arguments, environment};
  size_t bytes[3];
  std::transform(theirs, theirs + 3, bytes, BytesOf);
  const Memory memory(bytes[0] + bytes[1] + bytes[2]);
  char* at = memory.begin();
  for (size_t i = 0; i < 3; ++i) {
    if (bytes[i] == 0) continue;
    if (at == nullptr) return false;
    theirs[i] = CopiedTo(at, theirs[i]);
    at += bytes[i];
  }
  start(theirs[0][0], theirs[1], theirs[2]);
  return true;
}

// What is read of `environ` with all signals blocked, or by the kernel where libc names it itself, stays at home. kPath: of posix_spawnp, whose child, with its parent's memory, looks for PATH:
// the beginnings of what is before it, and PATH.
enum class OfEnvironment { kAll, kPath };
class PinnedEnvironment {
 public:
  explicit PinnedEnvironment(OfEnvironment what) : is_path_(what == OfEnvironment::kPath), count_(CountOf()), beside_((count_ + 1) * sizeof(iovec)), pinned_(Find(), beside_.begin() == nullptr ? 0 : count_ + 1) {}

 private:
  static constexpr size_t kCompared = 8;  // bytes, with a name that is no longer
  static bool IsPath(const char* text) { return strncmp(text, "PATH=", 5) == 0; }
  size_t CountOf() const {
    size_t count = 0;
    while (environ != nullptr && environ[count] != nullptr) {
      if (IsPath(environ[count++]) && is_path_) break;
    }
    return count;
  }
  const iovec* Find() const {
    auto* const pieces = reinterpret_cast<iovec*>(beside_.begin());
    if (pieces == nullptr) return nullptr;
    for (size_t i = 0; i < count_; ++i) {
      const size_t bytes = strlen(environ[i]) + 1;
      pieces[i] = {environ[i], is_path_ && !IsPath(environ[i]) ? std::min(bytes, kCompared) : bytes};
    }
    pieces[count_] = {environ, environ == nullptr ? 0 : (count_ + 1) * sizeof(char*)};
    return pieces;
  }
  const bool is_path_;
  const size_t count_;
  const Beside beside_;
  const PinnedVectors pinned_;
};

template <typename Exec>
int Executed(const char* name, char* const* arguments, char* const* environment, Exec& exec) {
  const auto start = [&exec](const char* n, char* const* a, char* const* e) { exec(n, a, e); };
  const bool is_tried = HasMemoryOfParent() ? StartedFrom<LeftInParent>(name, arguments, environment, start) : StartedFrom<Beside>(name, arguments, environment, start);
  if (!is_tried) errno = ENOMEM;
  return -1;
}

// posix_spawn and posix_spawnp: what libc reads and answers with all signals blocked. Once: file actions change files.
template <typename Spawn>
int Spawned(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* how, char* const* arguments, char* const* environment, Spawn& spawn) {
  const PinnedStack stack;
  CopyOf<pid_t> child(pid);
  CopyOf<const posix_spawn_file_actions_t> acts(actions);
  CopyOf<const posix_spawnattr_t> attributes(how);
  int error = ENOMEM;
  static_cast<void>(StartedFrom<Beside>(name, arguments, environment, [&](const char* n, char* const* a, char* const* e) { error = spawn(child.get(), n, acts.get(), attributes.get(), a, e); }));
  if (error == 0) child.Answer();
  return error;
}

// A child has none of that memory until it asks for it, and cannot ask without a stack.
bool RefusesFork(const void* stack) {
  if (__builtin_expect(!IsHome(stack), 1) || IsChildWithCopy()) return false;
  static constexpr char kText[] = "ramspan: fork on a stack that is swapped by pages (a coroutine's, or one that the program gave its thread) is refused (EAGAIN): fork on another thread, or use posix_spawn\n";
  static_cast<void>(!write(STDERR_FILENO, kText, sizeof(kText) - 1));
  errno = EAGAIN;
  return true;
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::Executed;
using ramspan::preload::OfEnvironment;
using ramspan::preload::PinnedEnvironment;
using ramspan::preload::PinnedStack;
using ramspan::preload::RefusesFork;
using ramspan::preload::Spawned;
using ramspan::preload::TextBeside;

RS_LIBC(execve, int (*)(const char*, char* const*, char* const*))
RS_LIBC(execvpe, int (*)(const char*, char* const*, char* const*))
RS_LIBC(fexecve, int (*)(int, char* const*, char* const*))
RS_LIBC(execveat, int (*)(int, const char*, char* const*, char* const*, int))
RS_LIBC(posix_spawn, int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*))
RS_LIBC(posix_spawnp, int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*))
RS_LIBC(pclose, int (*)(FILE*))
RS_LIBC(fork, pid_t (*)())
RS_LIBC(forkpty, pid_t (*)(int*, char*, const termios*, const winsize*))
RS_LIBC(daemon, int (*)(int, int))
RS_LIBC(system, int (*)(const char*))
RS_LIBC(popen, FILE* (*)(const char*, const char*))

extern "C" {

RAMSPAN_API int execve(const char* name, char* const* arguments, char* const* environment) noexcept {
  return Executed(name, arguments, environment, real_execve);
}
RAMSPAN_API int execv(const char* name, char* const* arguments) noexcept { return execve(name, arguments, environ); }
RAMSPAN_API int execvpe(const char* name, char* const* arguments, char* const* environment) noexcept {
  return Executed(name, arguments, environment, real_execvpe);
}
RAMSPAN_API int execvp(const char* name, char* const* arguments) noexcept { return execvpe(name, arguments, environ); }
RAMSPAN_API int fexecve(int fd, char* const* arguments, char* const* environment) noexcept {
  const auto exec = [fd](const char*, char* const* a, char* const* e) { return real_fexecve(fd, a, e); };
  return Executed("", arguments, environment, exec);
}
RAMSPAN_API int execveat(int folder, const char* name, char* const* arguments, char* const* environment, int flags) noexcept {
  const auto exec = [folder, flags](const char* n, char* const* a, char* const* e) { return real_execveat(folder, n, a, e, flags); };
  return Executed(name, arguments, environment, exec);
}
// libc's would not come by here.
#define RS_LIST(FIRST, ARGUMENTS, ENVIRONMENT)                                      \
  va_list rest;                                                                     \
  va_start(rest, FIRST);                                                            \
  size_t count = 1;                                                                 \
  while (va_arg(rest, const char*) != nullptr) ++count;                             \
  va_end(rest);                                                                     \
  auto** const ARGUMENTS = static_cast<char**>(alloca((count + 1) * sizeof(char*))); \
  va_start(rest, FIRST);                                                            \
  ARGUMENTS[0] = const_cast<char*>(FIRST);                                          \
  for (size_t i = 1; i <= count; ++i) ARGUMENTS[i] = va_arg(rest, char*);           \
  ENVIRONMENT                                                                       \
  va_end(rest);
RAMSPAN_API int execl(const char* name, const char* first, ...) noexcept {
  RS_LIST(first, arguments, )
  return execv(name, arguments);
}
RAMSPAN_API int execlp(const char* name, const char* first, ...) noexcept {
  RS_LIST(first, arguments, )
  return execvp(name, arguments);
}
RAMSPAN_API int execle(const char* name, const char* first, ...) noexcept {
  RS_LIST(first, arguments, char* const* const environment = va_arg(rest, char* const*);)
  return execve(name, arguments, environment);
}
#undef RS_LIST
RAMSPAN_API int posix_spawn(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* how, char* const* arguments, char* const* environment) {
  return Spawned(pid, name, actions, how, arguments, environment, real_posix_spawn);
}
RAMSPAN_API int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* how, char* const* arguments, char* const* environment) {
  std::optional<PinnedEnvironment> path;
  if (strchr(name, '/') == nullptr) path.emplace(OfEnvironment::kPath);
  return Spawned(pid, name, actions, how, arguments, environment, real_posix_spawnp);
}
RAMSPAN_API int system(const char* command) {
  const TextBeside own(command);
  if (own.is_missing()) return errno = ENOMEM, -1;
  const PinnedStack stack;
  const PinnedEnvironment environment(OfEnvironment::kAll);
  return real_system(own.get());
}
RAMSPAN_API FILE* popen(const char* command, const char* mode) {
  const TextBeside own(command), how(mode);
  if (own.is_missing() || how.is_missing()) return errno = ENOMEM, nullptr;
  const PinnedStack stack;
  const PinnedEnvironment environment(OfEnvironment::kAll);
  return real_popen(own.get(), how.get());
}
// It waits for the program's end, and has what that was on its stack.
RAMSPAN_API int pclose(FILE* file) {
  const PinnedStack stack;
  return real_pclose(file);
}
RAMSPAN_API pid_t fork() noexcept { return RefusesFork(__builtin_frame_address(0)) ? -1 : real_fork(); }
// libc's do not come by here.
RAMSPAN_API pid_t forkpty(int* terminal, char* name, const termios* how, const winsize* size) noexcept {
  return RefusesFork(__builtin_frame_address(0)) ? -1 : real_forkpty(terminal, name, how, size);
}
RAMSPAN_API int daemon(int stays, int keeps_files) noexcept { return RefusesFork(__builtin_frame_address(0)) ? -1 : real_daemon(stays, keeps_files); }

}  // extern "C"
