// libramspan-pages, ninth part: calls of libc whose small arguments and answers may be in the program's memory: addresses of sockets, times, what has ended, what is used. What may wait for others has
// them beside meanwhile; for all others they are kept at home. As calls.cc.
// Thread-safety, cancellation, signals: as the calls that they replace.
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include <cstdarg>
#include <iterator>
#include <type_traits>

#include "client/preload/beside.h"

namespace {

using ramspan::preload::BeyondProgramsIfOurs;
using ramspan::preload::KeepOurs;
using ramspan::preload::AddressBeside;
using ramspan::preload::Beside;
using ramspan::preload::CopyOf;
using ramspan::preload::IsPlain;
using ramspan::preload::NeedsPins;
using ramspan::preload::Own;
using ramspan::preload::PinnedName;
using ramspan::preload::PinnedVectors;
using ramspan::preload::Reach;
using ramspan::preload::ReachOf;
using ramspan::preload::ReachOfAddress;

template <typename T>
iovec Whole(const T* one) {
  return {const_cast<T*>(one), one == nullptr ? 0 : sizeof(T)};
}

}  // namespace

// NAME with what the last arguments say at home: pieces of memory, as iovec.
#define RS_WITH(RESULT, NAME, PARAMETERS, ARGUMENTS, ...)      \
  RS_LIBC(NAME, RESULT(*) PARAMETERS)                          \
  extern "C" RAMSPAN_API RESULT NAME PARAMETERS noexcept {     \
    const iovec pieces[] = {__VA_ARGS__};                      \
    const PinnedVectors pinned(pieces, std::size(pieces));     \
    return real_##NAME ARGUMENTS;                              \
  }
// The same with `ends`, two descriptors that it makes.
#define RS_WITH_ENDS(NAME, PARAMETERS, ARGUMENTS)                                         \
  RS_LIBC(NAME, int(*) PARAMETERS)                                                        \
  extern "C" RAMSPAN_API int NAME PARAMETERS noexcept {                                   \
    const iovec pieces[] = {{ends, 2 * sizeof(int)}};                                     \
    const PinnedVectors pinned(pieces, std::size(pieces));                                \
    const int result = real_##NAME ARGUMENTS;                                             \
    if (result == 0) ramspan::preload::BeyondProgramsIfOurs(ends);                        \
    return result;                                                                        \
  }
// The same, and the name PATH.
#define RS_WITH_NAME(RESULT, NAME, PARAMETERS, ARGUMENTS, PATH, ...) \
  RS_LIBC(NAME, RESULT(*) PARAMETERS)                                \
  extern "C" RAMSPAN_API RESULT NAME PARAMETERS noexcept {           \
    const iovec pieces[] = {__VA_ARGS__};                            \
    const PinnedVectors pinned(pieces, std::size(pieces));           \
    const PinnedName name(PATH);                                     \
    return real_##NAME ARGUMENTS;                                    \
  }

// ---- Files ----

RS_WITH_NAME(int, statx, (int folder, const char* path, int flags, unsigned mask, struct statx* to), (folder, path, flags, mask, to), path, Whole(to))
RS_WITH_NAME(int, statfs, (const char* path, struct statfs* to), (path, to), path, Whole(to))
RS_WITH_NAME(int, utimes, (const char* path, const timeval times[2]), (path, times), path, {const_cast<timeval*>(times), times == nullptr ? 0 : 2 * sizeof(timeval)})
RS_WITH_NAME(int, utimensat, (int folder, const char* path, const timespec* times, int flags), (folder, path, times, flags), path, {const_cast<timespec*>(times), times == nullptr ? 0 : 2 * sizeof(timespec)})
RS_WITH_NAME(int, lutimes, (const char* path, const timeval times[2]), (path, times), path, {const_cast<timeval*>(times), times == nullptr ? 0 : 2 * sizeof(timeval)})
RS_WITH_NAME(int, utime, (const char* path, const utimbuf* times), (path, times), path, Whole(times))
RS_WITH_NAME(int, chown, (const char* path, uid_t user, gid_t group), (path, user, group), path, {})
RS_WITH_NAME(int, lchown, (const char* path, uid_t user, gid_t group), (path, user, group), path, {})
RS_WITH_NAME(int, fchownat, (int folder, const char* path, uid_t user, gid_t group, int flags), (folder, path, user, group, flags), path, {})
RS_WITH_NAME(int, fchmodat, (int folder, const char* path, mode_t mode, int flags), (folder, path, mode, flags), path, {})
RS_WITH_NAME(int, mkfifo, (const char* path, mode_t mode), (path, mode), path, {})
RS_WITH_NAME(int, inotify_add_watch, (int fd, const char* path, uint32_t mask), (fd, path, mask), path, {})
RS_LIBC(getxattr, ssize_t (*)(const char*, const char*, void*, size_t))
RS_LIBC(fgetxattr, ssize_t (*)(int, const char*, void*, size_t))
namespace {
template <typename Get>
ssize_t Attribute(const char* key, void* to, size_t bytes, const Get& get) {
  const iovec piece = {to, bytes};
  const PinnedVectors pinned(&piece, 1);
  const PinnedName name(key);
  return get();
}
}  // namespace
extern "C" RAMSPAN_API ssize_t getxattr(const char* path, const char* key, void* to, size_t bytes) noexcept {
  const PinnedName name(path);
  return Attribute(key, to, bytes, [&] { return real_getxattr(path, key, to, bytes); });
}
extern "C" RAMSPAN_API ssize_t fgetxattr(int fd, const char* key, void* to, size_t bytes) noexcept {
  return Attribute(key, to, bytes, [&] { return real_fgetxattr(fd, key, to, bytes); });
}
RS_LIBC(lgetxattr, ssize_t (*)(const char*, const char*, void*, size_t))
extern "C" RAMSPAN_API ssize_t lgetxattr(const char* path, const char* key, void* to, size_t bytes) noexcept {
  const PinnedName name(path);
  return Attribute(key, to, bytes, [&] { return real_lgetxattr(path, key, to, bytes); });
}
RS_WITH_NAME(int, lsetxattr, (const char* path, const char* key, const void* from, size_t bytes, int flags), (path, key, from, bytes, flags), path, {const_cast<void*>(from), bytes}, {const_cast<char*>(key), key == nullptr ? 0 : strlen(key) + 1})
RS_WITH_NAME(int, removexattr, (const char* path, const char* key), (path, key), path, {const_cast<char*>(key), key == nullptr ? 0 : strlen(key) + 1})
RS_WITH_NAME(int, lremovexattr, (const char* path, const char* key), (path, key), path, {const_cast<char*>(key), key == nullptr ? 0 : strlen(key) + 1})
RS_WITH_NAME(int, fremovexattr, (int fd, const char* key), (fd, key), key, {})
RS_WITH_NAME(ssize_t, llistxattr, (const char* path, char* to, size_t bytes), (path, to, bytes), path, {to, bytes})
RS_WITH_NAME(int, setxattr, (const char* path, const char* key, const void* from, size_t bytes, int flags), (path, key, from, bytes, flags), path, {const_cast<void*>(from), bytes}, {const_cast<char*>(key), key == nullptr ? 0 : strlen(key) + 1})
RS_WITH(int, fsetxattr, (int fd, const char* key, const void* from, size_t bytes, int flags), (fd, key, from, bytes, flags), {const_cast<void*>(from), bytes}, {const_cast<char*>(key), key == nullptr ? 0 : strlen(key) + 1})
RS_WITH_NAME(ssize_t, listxattr, (const char* path, char* to, size_t bytes), (path, to, bytes), path, {to, bytes})
RS_WITH(int, fstatfs, (int fd, struct statfs* to), (fd, to), Whole(to))
RS_WITH(int, futimens, (int fd, const timespec times[2]), (fd, times), {const_cast<timespec*>(times), times == nullptr ? 0 : 2 * sizeof(timespec)})
RS_WITH(ssize_t, flistxattr, (int fd, char* to, size_t bytes), (fd, to, bytes), {to, bytes})
RS_LIBC(sendfile, ssize_t (*)(int, int, off_t*, size_t))
extern "C" RAMSPAN_API ssize_t sendfile(int to, int from, off_t* offset, size_t bytes) noexcept {  // may wait for who reads
  CopyOf<off_t> own(offset);
  const ssize_t sent = real_sendfile(to, from, own.get(), bytes);
  if (sent >= 0) own.Answer();
  return sent;
}
RS_WITH_NAME(int, statvfs, (const char* path, struct statvfs* to), (path, to), path, Whole(to))
RS_WITH(int, fstatvfs, (int fd, struct statvfs* to), (fd, to), Whole(to))
RS_LIBC(copy_file_range, ssize_t (*)(int, off64_t*, int, off64_t*, size_t, unsigned))
extern "C" RAMSPAN_API ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t bytes, unsigned flags) {
  CopyOf<off64_t> read_at(from_offset), write_at(to_offset);
  const ssize_t copied = real_copy_file_range(from, read_at.get(), to, write_at.get(), bytes, flags);
  if (copied >= 0) read_at.Answer(), write_at.Answer();
  return copied;
}
RS_LIBC(fcntl, int (*)(int, int, void*))
extern "C" RAMSPAN_API int fcntl(int fd, int what, ...) {
  va_list rest;
  va_start(rest, what);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  if ((what == F_DUPFD_CLOEXEC || what == F_SETFD) && ramspan::detail::t_inside_ramspan != 0) {  // BeyondPrograms
    const int result = real_fcntl(fd, what, argument);
    if (result >= 0) KeepOurs(what == F_SETFD ? fd : result);
    return result;
  }
  if (what == F_GETOWN_EX || what == F_SETOWN_EX) {
    CopyOf<f_owner_ex> own(static_cast<f_owner_ex*>(argument));
    const int result = real_fcntl(fd, what, own.get());
    if (result == 0) own.Answer();
    return result;
  }
  if (what == F_GET_RW_HINT || what == F_SET_RW_HINT || what == F_GET_FILE_RW_HINT || what == F_SET_FILE_RW_HINT) {
    CopyOf<uint64_t> own(static_cast<uint64_t*>(argument));
    const int result = real_fcntl(fd, what, own.get());
    if (result == 0) own.Answer();
    return result;
  }
  if (what != F_GETLK && what != F_SETLK && what != F_SETLKW && what != F_OFD_GETLK && what != F_OFD_SETLK && what != F_OFD_SETLKW) return real_fcntl(fd, what, argument);
  CopyOf<struct flock> own(static_cast<struct flock*>(argument));
  const int result = real_fcntl(fd, what, own.get());
  if (result == 0 && (what == F_GETLK || what == F_OFD_GETLK)) own.Answer();
  return result;
}
extern "C" RAMSPAN_API int fcntl64(int fd, int what, ...) __attribute__((alias("fcntl")));
RS_LIBC(splice, ssize_t (*)(int, off64_t*, int, off64_t*, size_t, unsigned))
extern "C" RAMSPAN_API ssize_t splice(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t bytes, unsigned flags) {
  CopyOf<off64_t> read_at(from_offset), write_at(to_offset);
  const ssize_t moved = real_splice(from, read_at.get(), to, write_at.get(), bytes, flags);
  if (moved >= 0) read_at.Answer(), write_at.Answer();
  return moved;
}
RS_WITH_ENDS(pipe, (int ends[2]), (ends))
RS_WITH_ENDS(pipe2, (int ends[2], int flags), (ends, flags))
RS_LIBC(mkstemp, int (*)(char*))
RS_LIBC(mkdtemp, char* (*)(char*))
extern "C" RAMSPAN_API int mkstemp(char* pattern) {
  const PinnedName name(pattern);
  return real_mkstemp(pattern);
}
extern "C" RAMSPAN_API int mkstemp64(char* pattern) __attribute__((alias("mkstemp")));
extern "C" RAMSPAN_API char* mkdtemp(char* pattern) noexcept {
  const PinnedName name(pattern);
  return real_mkdtemp(pattern);
}

// ---- Sockets ----

RS_WITH_ENDS(socketpair, (int family, int type, int protocol, int ends[2]), (family, type, protocol, ends))
RS_LIBC(connect, int (*)(int, const sockaddr*, socklen_t))
RS_LIBC(accept, int (*)(int, sockaddr*, socklen_t*))
RS_LIBC(accept4, int (*)(int, sockaddr*, socklen_t*, int))
extern "C" RAMSPAN_API int connect(int fd, const sockaddr* address, socklen_t bytes) {
  if (!IsPlain(address, bytes) || bytes > sizeof(sockaddr_storage)) return real_connect(fd, address, bytes);
  Own<sockaddr_storage> own;
  memcpy(own.get(), address, bytes);
  return real_connect(fd, reinterpret_cast<const sockaddr*>(own.get()), bytes);
}
namespace {
template <typename Accept>
int Accepted(sockaddr* to, socklen_t* bytes, const Accept& accept_it) {
  if (to == nullptr || bytes == nullptr || (!NeedsPins(to) && !IsPlain(bytes, sizeof(*bytes)))) return BeyondProgramsIfOurs(accept_it(to, bytes));
  const socklen_t room = *bytes;
  if (static_cast<int>(room) < 0) return BeyondProgramsIfOurs(accept_it(to, bytes));
  const Reach reach = ReachOfAddress(to, room);
  if (reach.is_protected || (reach.bytes == 0 && room > 0)) return BeyondProgramsIfOurs(accept_it(to, bytes));
  Own<AddressBeside> own;
  own->length = std::min<socklen_t>(room, sizeof(own->address));
  const int fd = BeyondProgramsIfOurs(accept_it(own->get(), &own->length));
  if (fd < 0) return fd;
  own->Answer(to, static_cast<socklen_t>(reach.bytes), bytes);
  return fd;
}
}  // namespace
extern "C" RAMSPAN_API int accept(int fd, sockaddr* to, socklen_t* bytes) {
  return Accepted(to, bytes, [fd](sockaddr* here, socklen_t* length) { return real_accept(fd, here, length); });
}
extern "C" RAMSPAN_API int accept4(int fd, sockaddr* to, socklen_t* bytes, int flags) {
  return Accepted(to, bytes, [fd, flags](sockaddr* here, socklen_t* length) { return real_accept4(fd, here, length, flags); });
}

// ---- Processes and time ----

RS_LIBC(waitpid, pid_t (*)(pid_t, int*, int))
RS_LIBC(wait4, pid_t (*)(pid_t, int*, int, rusage*))
RS_LIBC(waitid, int (*)(idtype_t, id_t, siginfo_t*, int))
RS_LIBC(nanosleep, int (*)(const timespec*, timespec*))
RS_LIBC(clock_nanosleep, int (*)(clockid_t, int, const timespec*, timespec*))
extern "C" {
RAMSPAN_API pid_t waitpid(pid_t pid, int* status, int options) {
  CopyOf<int> own(status);
  const pid_t ended = real_waitpid(pid, own.get(), options);
  if (ended > 0) own.Answer();
  return ended;
}
RAMSPAN_API pid_t wait(int* status) { return waitpid(-1, status, 0); }
// Threads may be cancelled there, by an exception, although libc's headers say that there is none.
RAMSPAN_API pid_t WaitWithUsage(pid_t pid, int* status, int options, rusage* usage) __asm__("wait4");
RAMSPAN_API pid_t WaitForAnyWithUsage(int* status, int options, rusage* usage) __asm__("wait3");
pid_t WaitWithUsage(pid_t pid, int* status, int options, rusage* usage) {
  CopyOf<int> own(status);
  CopyOf<rusage> used(usage);
  const pid_t ended = real_wait4(pid, own.get(), options, used.get());
  if (ended > 0) own.Answer(), used.Answer();
  return ended;
}
pid_t WaitForAnyWithUsage(int* status, int options, rusage* usage) { return WaitWithUsage(-1, status, options, usage); }
RAMSPAN_API int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
  CopyOf<siginfo_t> own(info);
  const int result = real_waitid(type, id, own.get(), options);
  if (result == 0) own.Answer();
  return result;
}
RAMSPAN_API int nanosleep(const timespec* time, timespec* left) {
  CopyOf<const timespec> wanted(time);
  CopyOf<timespec> rest(left);
  const int result = real_nanosleep(wanted.get(), rest.get());
  if (result != 0) rest.Answer();
  return result;
}
RAMSPAN_API int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  CopyOf<const timespec> wanted(time);
  CopyOf<timespec> rest(left);
  const int result = real_clock_nanosleep(clock, flags, wanted.get(), rest.get());
  if (result != 0) rest.Answer();
  return result;
}
}  // extern "C"
RS_LIBC(sigwait, int (*)(const sigset_t*, int*))
RS_LIBC(sigwaitinfo, int (*)(const sigset_t*, siginfo_t*))
RS_LIBC(sigtimedwait, int (*)(const sigset_t*, siginfo_t*, const timespec*))
extern "C" {
// libc's has what the kernel answers on its stack.
RAMSPAN_API int sigwait(const sigset_t* set, int* number) {
  CopyOf<const sigset_t> wanted(set);
  if (!NeedsPins(number) && !NeedsPins(&wanted)) return real_sigwait(wanted.get(), number);
  Own<siginfo_t> info;
  const int before = errno;
  int got = -1;
  do {
    got = real_sigwaitinfo(wanted.get(), info.get());
  } while (got < 0 && errno == EINTR);
  const int error = got < 0 ? errno : 0;
  errno = before;
  if (got > 0) *number = got;
  return error;
}
RAMSPAN_API int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  CopyOf<const sigset_t> wanted(set);
  CopyOf<siginfo_t> own(info);
  const int number = real_sigwaitinfo(wanted.get(), own.get());
  if (number > 0) own.Answer();
  return number;
}
RAMSPAN_API int sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* time) {
  CopyOf<const sigset_t> wanted(set);
  CopyOf<siginfo_t> own(info);
  CopyOf<const timespec> most(time);
  const int number = real_sigtimedwait(wanted.get(), own.get(), most.get());
  if (number > 0) own.Answer();
  return number;
}
}  // extern "C"
RS_LIBC(clock_gettime, int (*)(clockid_t, timespec*))
// Of most clocks the kernel is not asked; of those of CPU time it is.
extern "C" RAMSPAN_API int clock_gettime(clockid_t clock, timespec* to) noexcept {
  if (!NeedsPins(to)) return real_clock_gettime(clock, to);
  CopyOf<timespec> own(to);
  const int result = real_clock_gettime(clock, own.get());
  if (result == 0) own.Answer();
  return result;
}
RS_WITH(int, clock_getres, (clockid_t clock, timespec* to), (clock, to), Whole(to))
RS_WITH(int, getrusage, (__rusage_who_t who, rusage* to), (who, to), Whole(to))
RS_WITH(int, getrlimit, (__rlimit_resource_t what, rlimit* to), (what, to), Whole(to))
RS_WITH(int, setrlimit, (__rlimit_resource_t what, const rlimit* from), (what, from), Whole(from))
RS_WITH(int, prlimit, (pid_t process, __rlimit_resource what, const rlimit* now, rlimit* before), (process, what, now, before), Whole(now), Whole(before))
RS_WITH(int, signalfd, (int fd, const sigset_t* set, int flags), (fd, set, flags), Whole(set))
RS_WITH(int, uname, (utsname* to), (to), Whole(to))
RS_WITH(int, sysinfo, (struct sysinfo* to), (to), Whole(to))
RS_WITH(clock_t, times, (struct tms* to), (to), Whole(to))
RS_WITH(int, sched_getparam, (pid_t pid, sched_param* to), (pid, to), Whole(to))
RS_WITH(int, sched_setparam, (pid_t pid, const sched_param* from), (pid, from), Whole(from))
RS_WITH(int, sched_setscheduler, (pid_t pid, int policy, const sched_param* from), (pid, policy, from), Whole(from))
RS_WITH(int, sched_rr_get_interval, (pid_t pid, timespec* to), (pid, to), Whole(to))
RS_WITH(int, getresuid, (uid_t* real, uid_t* effective, uid_t* saved), (real, effective, saved), Whole(real), Whole(effective), Whole(saved))
RS_WITH(int, getresgid, (gid_t* real, gid_t* effective, gid_t* saved), (real, effective, saved), Whole(real), Whole(effective), Whole(saved))
RS_WITH(int, sched_getaffinity, (pid_t pid, size_t bytes, cpu_set_t* to), (pid, bytes, to), {to, bytes})
RS_WITH(int, sched_setaffinity, (pid_t pid, size_t bytes, const cpu_set_t* from), (pid, bytes, from), {const_cast<cpu_set_t*>(from), bytes})
RS_WITH(int, pthread_getaffinity_np, (pthread_t thread, size_t bytes, cpu_set_t* to), (thread, bytes, to), {to, bytes})
RS_WITH(int, pthread_setaffinity_np, (pthread_t thread, size_t bytes, const cpu_set_t* from), (thread, bytes, from), {const_cast<cpu_set_t*>(from), bytes})
RS_WITH(int, getgroups, (int count, gid_t* to), (count, to), {to, static_cast<size_t>(std::max(count, 0)) * sizeof(gid_t)})
RS_WITH(int, setitimer, (__itimer_which_t which, const itimerval* now, itimerval* before), (which, now, before), Whole(now), Whole(before))
RS_WITH(int, getitimer, (__itimer_which_t which, itimerval* to), (which, to), Whole(to))
RS_WITH(int, timer_settime, (timer_t timer, int flags, const itimerspec* now, itimerspec* before), (timer, flags, now, before), Whole(now), Whole(before))
RS_WITH(int, timer_gettime, (timer_t timer, itimerspec* to), (timer, to), Whole(to))
RS_WITH(int, timerfd_settime, (int fd, int flags, const itimerspec* now, itimerspec* before), (fd, flags, now, before), Whole(now), Whole(before))
RS_WITH(int, timerfd_gettime, (int fd, itimerspec* to), (fd, to), Whole(to))
RS_WITH(int, mincore, (void* begin, size_t bytes, unsigned char* to), (begin, bytes, to), {to, bytes / 4096 + 1})
RS_WITH(int, sigpending, (sigset_t* to), (to), Whole(to))
RS_WITH(int, adjtimex, (timex* how), (how), Whole(how))
RS_WITH(int, clock_adjtime, (clockid_t clock, timex* how), (clock, how), Whole(how))
RS_WITH(int, setgroups, (size_t count, const gid_t* from), (count, from), {const_cast<gid_t*>(from), std::min<size_t>(count, NGROUPS_MAX) * sizeof(gid_t)})
RS_WITH(int, pthread_getname_np, (pthread_t thread, char* to, size_t bytes), (thread, to, bytes), {to, bytes})
RS_WITH(int, pthread_setname_np, (pthread_t thread, const char* name), (thread, name), {const_cast<char*>(name), strnlen(name, 16) + 1})
RS_WITH_NAME(int, chroot, (const char* path), (path), path, {})
RS_WITH_NAME(int, memfd_create, (const char* path, unsigned flags), (path, flags), path, {})
RS_WITH_NAME(int, mq_unlink, (const char* path), (path), path, {})
#undef RS_WITH
#undef RS_WITH_NAME
RS_LIBC(prctl, int (*)(int, unsigned long, unsigned long, unsigned long, unsigned long))
// Most have numbers only, which are the addresses of nothing; what is read or written at one is a few words, or a name.
extern "C" RAMSPAN_API int prctl(int what, ...) noexcept {
  va_list rest;
  va_start(rest, what);
  unsigned long arguments[4];
  for (unsigned long& one : arguments) one = va_arg(rest, unsigned long);
  va_end(rest);
  iovec pieces[4];
  for (size_t i = 0; i < 4; ++i) {
    void* const at = reinterpret_cast<void*>(arguments[i]);
    pieces[i] = {at, IsPlain(at, 1) ? std::min<size_t>(4096, ReachOf(at, 4096).bytes) : 0};
  }
  const PinnedVectors pinned(pieces, std::size(pieces));
  return real_prctl(what, arguments[0], arguments[1], arguments[2], arguments[3]);
}

// ---- With 64 bits they are the same here ----

extern "C" {
RAMSPAN_API int statvfs64(const char* path, struct statvfs64* to) noexcept { return statvfs(path, reinterpret_cast<struct statvfs*>(to)); }
RAMSPAN_API int fstatvfs64(int fd, struct statvfs64* to) noexcept { return fstatvfs(fd, reinterpret_cast<struct statvfs*>(to)); }
RAMSPAN_API int statfs64(const char* path, struct statfs64* to) noexcept { return statfs(path, reinterpret_cast<struct statfs*>(to)); }
RAMSPAN_API int fstatfs64(int fd, struct statfs64* to) noexcept { return fstatfs(fd, reinterpret_cast<struct statfs*>(to)); }
RAMSPAN_API ssize_t sendfile64(int to, int from, off64_t* offset, size_t bytes) noexcept { return sendfile(to, from, reinterpret_cast<off_t*>(offset), bytes); }
RAMSPAN_API int getrlimit64(__rlimit_resource_t what, rlimit64* to) noexcept { return getrlimit(what, reinterpret_cast<rlimit*>(to)); }
RAMSPAN_API int prlimit64(pid_t process, __rlimit_resource what, const rlimit64* now, rlimit64* before) noexcept {
  return prlimit(process, what, reinterpret_cast<const rlimit*>(now), reinterpret_cast<rlimit*>(before));
}
RAMSPAN_API int setrlimit64(__rlimit_resource_t what, const rlimit64* from) noexcept { return setrlimit(what, reinterpret_cast<const rlimit*>(from)); }
}  // extern "C"
