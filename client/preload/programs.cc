// libramspan-pages, ninth part: calls that start other programs. Their names, arguments and environments are the kernel's to read.
// Thread-safety, signals: as the calls that they replace.
#include <alloca.h>
#include <pthread.h>
#include <pty.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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
#include "client/preload/pinned_stack.h"

namespace ramspan::preload {
namespace {

std::atomic<pid_t> own_pid{0};
[[gnu::constructor]] void FindOwnPid() {
  const auto find = [] { own_pid.store(static_cast<pid_t>(syscall(SYS_getpid)), std::memory_order_relaxed); };
  find();
  pthread_atfork(nullptr, nullptr, find);
}

// Beside, for a child of vfork, in whose parent nobody would give that back. The kernel does: when the child has left its parent's memory it clears the word at its "tid address". What has
// been mapped stays for the next one: as many pieces as there are children at once, kMost of them. A child of clone may have such a word already (CLONE_CHILD_CLEARTID), for which others wait: it
// keeps that, and its piece is taken over when it is gone. (A forked child has no use for pieces: what it has of such memory is a copy.)
class LeftInParent {
 public:
  explicit LeftInParent(size_t bytes) {
    if (bytes == 0) return;
    const auto own = static_cast<int>(syscall(SYS_getpid));
    const auto take = [own](Piece& piece) {
      int nobody = 0;
      return piece.user.compare_exchange_strong(nobody, own, std::memory_order_acquire, std::memory_order_relaxed);
    };
    const auto take_over = [own](Piece& piece) {
      int user = piece.user.load(std::memory_order_relaxed);
      return user != 0 && IsGone(user) && piece.user.compare_exchange_strong(user, own, std::memory_order_acquire, std::memory_order_relaxed);
    };
    piece_ = std::find_if(pieces, pieces + kMost, take);
    if (piece_ == pieces + kMost && own != 1) piece_ = std::find_if(pieces, pieces + kMost, take_over);  // 1: of a new namespace, where nobody else is seen
    if (piece_ == pieces + kMost) return;
    int* word = nullptr;  // where the kernel does not tell (CONFIG_CHECKPOINT_RESTORE) there is none, as of vfork
    has_own_word_ = prctl(PR_GET_TID_ADDRESS, &word) == 0 && word != nullptr;
    if (!has_own_word_) syscall(SYS_set_tid_address, &piece_->user);
    if (piece_->bytes >= bytes) return;
    if (piece_->bytes > 0) syscall(SYS_munmap, piece_->begin, piece_->bytes);
    const long begin = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    piece_->bytes = begin == -1 ? 0 : bytes;
    piece_->begin = begin == -1 ? nullptr : reinterpret_cast<char*>(begin);
  }
  ~LeftInParent() {  // it has started none
    if (piece_ == nullptr || piece_ == pieces + kMost) return;
    if (!has_own_word_) syscall(SYS_set_tid_address, nullptr);
    piece_->user.store(0, std::memory_order_release);
  }
  LeftInParent(const LeftInParent&) = delete;
  LeftInParent& operator=(const LeftInParent&) = delete;
  char* begin() const { return piece_ == nullptr || piece_ == pieces + kMost ? nullptr : piece_->begin; }

 private:
  static constexpr size_t kMost = 16;
  struct Piece {
    std::atomic<int> user;  // its pid; 0: nobody
    char* begin;
    size_t bytes;
  };
  static bool IsGone(int pid) {
    const int error = errno;
    const bool is_gone = syscall(SYS_kill, pid, 0) != 0 && errno == ESRCH;
    errno = error;
    return is_gone;
  }
  static inline constinit Piece pieces[kMost] = {};
  Piece* piece_ = nullptr;
  bool has_own_word_ = false;
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

// Of arguments, or an environment: one, which another thread may change meanwhile (setenv).
char* TextAt(char* const* text) { return __atomic_load_n(text, __ATOMIC_RELAXED); }

// How many bytes their copy takes: of as many as there are, and where they lie, not all may be at home at once. 0: none of it may leave, and who is wrong about them hears it from the kernel.
size_t BytesOf(char* const* texts) {
  if (texts == nullptr || !pins_calls.load(std::memory_order_relaxed)) return 0;
  bool is_needed = NeedsPins(texts);  // of a forked child: its copy comes
  size_t bytes = sizeof(char*);
  for (char* text = nullptr; (text = TextAt(texts)) != nullptr; ++texts) {
    const bool may_leave = NeedsPins(text);
    is_needed |= may_leave;
    bytes += sizeof(char*) + (may_leave ? strlen(text) + 1 : 0);
  }
  return is_needed ? (bytes + sizeof(char*) - 1) / sizeof(char*) * sizeof(char*) : 0;
}
// Null: since BytesOf they have become more.
char* const* CopiedTo(char* at, size_t bytes, char* const* texts) {
  auto* const copy = reinterpret_cast<char**>(at);
  size_t count = 0;
  while (TextAt(texts + count) != nullptr) ++count;
  if (count >= bytes / sizeof(char*)) return nullptr;
  char* text = at + (count + 1) * sizeof(char*);
  for (size_t i = 0; i < count; ++i) {
    char* const theirs = TextAt(texts + i);
    copy[i] = theirs;
    if (!NeedsPins(theirs)) continue;
    const auto room = static_cast<size_t>(at + bytes - text);
    const size_t length = strnlen(theirs, room);
    if (length == room) return nullptr;
    copy[i] = static_cast<char*>(memcpy(text, theirs, length));
    text[length] = 0;
    text += length + 1;
  }
  copy[count] = nullptr;
  return copy;
}

// start(name, arguments, environment), of copies in Memory where they may leave. False: there is no memory for that, or another thread makes them more whenever they are looked at.
template <typename Memory, typename Start>
bool StartedFrom(const char* name, char* const* arguments, char* const* environment, const Start& start) {
  constexpr int kLooksMost = 8;
  char* const names[] = {const_cast<char*>(name), nullptr};
  for (int look = 0; look < kLooksMost; ++look) {
    char* const* theirs[] = {names, arguments, environment};
    size_t bytes[3];
    std::transform(theirs, theirs + 3, bytes, BytesOf);
    const Memory memory(bytes[0] + bytes[1] + bytes[2]);
    char* at = memory.begin();
    bool is_whole = true;
    for (size_t i = 0; i < 3 && is_whole; ++i) {
      if (bytes[i] == 0) continue;
      if (at == nullptr) return false;
      theirs[i] = CopiedTo(at, bytes[i], theirs[i]);
      is_whole = theirs[i] != nullptr;
      at += bytes[i];
    }
    if (!is_whole) continue;
    start(theirs[0][0], theirs[1], theirs[2]);
    return true;
  }
  return false;
}

// What is read of `environ` with all signals blocked, or by the kernel where libc names it itself, stays at home. kPath: of posix_spawnp, whose child, with its parent's memory, looks for PATH:
// the beginnings of what is before it, and PATH. Another thread may make it shorter meanwhile (unsetenv).
enum class OfEnvironment { kAll, kPath };
class PinnedEnvironment {
 public:
  explicit PinnedEnvironment(OfEnvironment what)
      : is_path_(what == OfEnvironment::kPath), texts_(pins_calls.load(std::memory_order_relaxed) ? environ : nullptr), most_(CountOf()),
        beside_(texts_ == nullptr ? 0 : (most_ + 1) * sizeof(iovec)), pinned_(reinterpret_cast<iovec*>(beside_.begin()), Find()) {}

 private:
  static constexpr size_t kCompared = 8;  // bytes, with a name that is no longer
  static bool IsPath(const char* text) { return strncmp(text, "PATH=", 5) == 0; }
  size_t CountOf() const {
    size_t count = 0;
    for (const char* text = nullptr; texts_ != nullptr && (text = TextAt(texts_ + count)) != nullptr;) {
      ++count;
      if (is_path_ && IsPath(text)) break;
    }
    return count;
  }
  // How many pieces.
  size_t Find() const {
    auto* const pieces = reinterpret_cast<iovec*>(beside_.begin());
    if (pieces == nullptr) return 0;
    size_t count = 0;
    for (char* text = nullptr; count < most_ && (text = TextAt(texts_ + count)) != nullptr; ++count) {
      const size_t bytes = NeedsPins(text) ? strlen(text) + 1 : 0;
      pieces[count] = {text, is_path_ && !IsPath(text) ? std::min(bytes, kCompared) : bytes};
    }
    pieces[count] = {const_cast<char**>(texts_), (count + 1) * sizeof(char*)};
    return count + 1;
  }
  const bool is_path_;
  char* const* const texts_;  // null: there is nothing to do
  const size_t most_;
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

bool HasMemoryOfParent() { return syscall(SYS_getpid) != own_pid.load(std::memory_order_relaxed); }

}  // namespace ramspan::preload

using ramspan::preload::CopyOf;
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
RS_LIBC(openpty, int (*)(int*, int*, char*, const termios*, const winsize*))
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
  if (RefusesFork(__builtin_frame_address(0))) return -1;
  CopyOf<const termios> modes(how);
  CopyOf<const winsize> wanted(size);
  return real_forkpty(terminal, name, modes.get(), wanted.get());
}
RAMSPAN_API int openpty(int* ours, int* theirs, char* name, const termios* how, const winsize* size) noexcept {
  const PinnedStack stack;
  CopyOf<const termios> modes(how);
  CopyOf<const winsize> wanted(size);
  return real_openpty(ours, theirs, name, modes.get(), wanted.get());
}
RAMSPAN_API int daemon(int stays, int keeps_files) noexcept { return RefusesFork(__builtin_frame_address(0)) ? -1 : real_daemon(stays, keeps_files); }

}  // extern "C"
