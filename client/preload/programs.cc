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

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::Bring;
using ramspan::preload::Executed;
using ramspan::preload::Started;

RS_LIBC(execve, int (*)(const char*, char* const*, char* const*))
RS_LIBC(execv, int (*)(const char*, char* const*))
RS_LIBC(execvp, int (*)(const char*, char* const*))
RS_LIBC(execvpe, int (*)(const char*, char* const*, char* const*))
RS_LIBC(posix_spawn, int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*))
RS_LIBC(posix_spawnp, int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*))
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
  return Started(name, arguments, environment, [&] { return real_posix_spawn(pid, name, actions, how, arguments, environment); });
}
RAMSPAN_API int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* how, char* const* arguments, char* const* environment) {
  return Started(name, arguments, environment, [&] { return real_posix_spawnp(pid, name, actions, how, arguments, environment); });
}
RAMSPAN_API int system(const char* command) {
  Bring(command);
  return real_system(command);
}
RAMSPAN_API FILE* popen(const char* command, const char* mode) {
  Bring(command);
  return real_popen(command, mode);
}

}  // extern "C"
