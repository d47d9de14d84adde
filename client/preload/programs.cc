// libramspan-pages, ninth part: calls that start other programs. Their names, arguments and environments are the kernel's to read.
// Thread-safety, signals: as the calls that they replace.
#include <alloca.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "client/preload/beside.h"

namespace ramspan::preload {
namespace {

constexpr int kTriesMost = 100;  // beside threads that use much else; what is wrong stays so

// It comes home, where it is looked at next.
void Bring(const char* text) {
  if (NeedsPins(text)) static_cast<void>(*const_cast<const volatile char*>(text + strlen(text)));
}
void BringAll(char* const* texts) {
  static_cast<void>(NeedsPins(texts));  // of a forked child: its copy comes
  for (; texts != nullptr && *texts != nullptr; ++texts) Bring(*texts);
}
// start(): the call, which takes all of it at once; what it did not find any more comes again. It is not kept at home: in a child of vfork nobody would let it go behind the call.
template <typename Start>
int Started(const char* name, char* const* arguments, char* const* environment, const Start& start) {
  int result = EFAULT;
  for (int tries = 0; tries < kTriesMost && result == EFAULT; ++tries) {
    Bring(name);
    BringAll(arguments);
    BringAll(environment);
    result = start();
  }
  return result;
}
template <typename Exec>
int Executed(const char* name, char* const* arguments, char* const* environment, const Exec& exec) {
  errno = Started(name, arguments, environment, [&] { return exec(), errno; });
  return -1;
}

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

// posix_spawn and posix_spawnp: what libc reads and answers with all signals blocked.
template <typename Spawn>
int Spawned(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* how, char* const* arguments, char* const* environment, const Spawn& spawn) {
  const PinnedStack stack;
  CopyOf<pid_t> child(pid);
  CopyOf<const posix_spawn_file_actions_t> acts(actions);
  CopyOf<const posix_spawnattr_t> attributes(how);
  const int error = Started(name, arguments, environment, [&] { return spawn(child.get(), acts.get(), attributes.get()); });
  if (error == 0) child.Answer();
  return error;
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::Executed;
using ramspan::preload::IsChildWithCopy;
using ramspan::preload::IsHome;
using ramspan::preload::PinnedStack;
using ramspan::preload::Spawned;
using ramspan::preload::TextBeside;

RS_LIBC(execve, int (*)(const char*, char* const*, char* const*))
RS_LIBC(execv, int (*)(const char*, char* const*))
RS_LIBC(execvp, int (*)(const char*, char* const*))
RS_LIBC(execvpe, int (*)(const char*, char* const*, char* const*))
RS_LIBC(posix_spawn, int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*))
RS_LIBC(posix_spawnp, int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*))
RS_LIBC(pclose, int (*)(FILE*))
RS_LIBC(fork, pid_t (*)())
RS_LIBC(system, int (*)(const char*))
RS_LIBC(popen, FILE* (*)(const char*, const char*))

extern "C" {

RAMSPAN_API int execve(const char* name, char* const* arguments, char* const* environment) noexcept {
  return Executed(name, arguments, environment, [&] { real_execve(name, arguments, environment); });
}
RAMSPAN_API int execv(const char* name, char* const* arguments) noexcept {
  return Executed(name, arguments, environ, [&] { real_execv(name, arguments); });
}
RAMSPAN_API int execvp(const char* name, char* const* arguments) noexcept {
  return Executed(name, arguments, environ, [&] { real_execvp(name, arguments); });
}
RAMSPAN_API int execvpe(const char* name, char* const* arguments, char* const* environment) noexcept {
  return Executed(name, arguments, environment, [&] { real_execvpe(name, arguments, environment); });
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
  return Spawned(pid, name, actions, how, arguments, environment, [&](pid_t* child, const posix_spawn_file_actions_t* acts, const posix_spawnattr_t* attributes) { return real_posix_spawn(child, name, acts, attributes, arguments, environment); });
}
RAMSPAN_API int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* how, char* const* arguments, char* const* environment) {
  return Spawned(pid, name, actions, how, arguments, environment, [&](pid_t* child, const posix_spawn_file_actions_t* acts, const posix_spawnattr_t* attributes) { return real_posix_spawnp(child, name, acts, attributes, arguments, environment); });
}
RAMSPAN_API int system(const char* command) {
  const TextBeside own(command);
  if (own.is_missing()) return errno = ENOMEM, -1;
  const PinnedStack stack;
  return real_system(own.get());
}
RAMSPAN_API FILE* popen(const char* command, const char* mode) {
  const TextBeside own(command), how(mode);
  if (own.is_missing() || how.is_missing()) return errno = ENOMEM, nullptr;
  const PinnedStack stack;
  return real_popen(own.get(), how.get());
}
// It waits for the program's end, and has what that was on its stack.
RAMSPAN_API int pclose(FILE* file) {
  const PinnedStack stack;
  return real_pclose(file);
}
// A child has none of that memory until it asks for it, and cannot ask without a stack.
RAMSPAN_API pid_t fork() noexcept {
  if (__builtin_expect(!IsHome(__builtin_frame_address(0)), 1) || IsChildWithCopy()) return real_fork();
  static constexpr char kText[] = "ramspan: fork on a stack that is swapped by pages (a coroutine's, or one that the program gave its thread) is refused (EAGAIN): fork on another thread, or use posix_spawn\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) return errno = EAGAIN, -1;
  return errno = EAGAIN, -1;
}

}  // extern "C"
