// libramspan-pages, fifth part: calls of libc that take a name, or answer into the program's memory: files, sockets, what waits for descriptors. As calls.cc.
// Thread-safety, cancellation, signals: as the calls that they replace.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "client/preload/beside.h"

using ramspan::preload::Beside;
using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::Pinned;
using ramspan::preload::PinnedName;

RS_LIBC(poll, int (*)(pollfd*, nfds_t, int))
RS_LIBC(select, int (*)(int, fd_set*, fd_set*, fd_set*, timeval*))
RS_LIBC(epoll_ctl, int (*)(int, int, int, epoll_event*))
RS_LIBC(epoll_wait, int (*)(int, epoll_event*, int, int))
RS_LIBC(readlink, ssize_t (*)(const char*, char*, size_t))
RS_LIBC(getcwd, char* (*)(char*, size_t))
RS_LIBC(getdents64, ssize_t (*)(int, void*, size_t))
RS_LIBC(stat, int (*)(const char*, struct stat*))
RS_LIBC(lstat, int (*)(const char*, struct stat*))
RS_LIBC(fstat, int (*)(int, struct stat*))
RS_LIBC(fstatat, int (*)(int, const char*, struct stat*, int))
RS_LIBC(open, int (*)(const char*, int, unsigned))
RS_LIBC(fopen, FILE* (*)(const char*, const char*))
RS_LIBC(access, int (*)(const char*, int))
RS_LIBC(unlink, int (*)(const char*))
RS_LIBC(mkdir, int (*)(const char*, mode_t))
RS_LIBC(rename, int (*)(const char*, const char*))
RS_LIBC(bind, int (*)(int, const sockaddr*, socklen_t))
RS_LIBC(setsockopt, int (*)(int, int, int, const void*, socklen_t))
RS_LIBC(getentropy, int (*)(void*, size_t))
RS_LIBC(getsockopt, int (*)(int, int, int, void*, socklen_t*))
RS_LIBC(getsockname, int (*)(int, sockaddr*, socklen_t*))
RS_LIBC(getpeername, int (*)(int, sockaddr*, socklen_t*))

extern "C" {

// ---- What waits for descriptors ----

RAMSPAN_API int poll(pollfd* descriptors, nfds_t count, int timeout) {
  if (!NeedsPins(descriptors) || count > INT_MAX) return real_poll(descriptors, count, timeout);
  const Beside beside(count * sizeof(pollfd));
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  memcpy(beside.begin(), descriptors, count * sizeof(pollfd));
  const int ready = real_poll(reinterpret_cast<pollfd*>(beside.begin()), count, timeout);
  if (ready >= 0) memcpy(descriptors, beside.begin(), count * sizeof(pollfd));
  return ready;
}
RAMSPAN_API int select(int count, fd_set* in, fd_set* out, fd_set* failed, timeval* timeout) {
  fd_set* const theirs[] = {in, out, failed};
  if (count < 0 || count > FD_SETSIZE || std::none_of(theirs, theirs + 3, [](fd_set* set) { return NeedsPins(set); })) return real_select(count, in, out, failed, timeout);
  fd_set own[3];
  fd_set* sets[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (theirs[i] != nullptr) sets[i] = static_cast<fd_set*>(memcpy(own + i, theirs[i], sizeof(fd_set)));
  }
  const int ready = real_select(count, sets[0], sets[1], sets[2], timeout);
  for (int i = 0; i < 3; ++i) {
    if (ready >= 0 && theirs[i] != nullptr) memcpy(theirs[i], own + i, sizeof(fd_set));
  }
  return ready;
}
RAMSPAN_API int epoll_ctl(int fd, int what, int of, epoll_event* event) noexcept {
  const Pinned pinned(event, sizeof(*event));
  return real_epoll_ctl(fd, what, of, event);
}
RAMSPAN_API int epoll_wait(int fd, epoll_event* events, int count, int timeout) {
  if (!NeedsPins(events) || count <= 0) return real_epoll_wait(fd, events, count, timeout);
  const Beside beside(static_cast<size_t>(count) * sizeof(epoll_event));
  if (beside.begin() == nullptr) return errno = ENOMEM, -1;
  const int ready = real_epoll_wait(fd, reinterpret_cast<epoll_event*>(beside.begin()), count, timeout);
  if (ready > 0) memcpy(events, beside.begin(), static_cast<size_t>(ready) * sizeof(epoll_event));
  return ready;
}

// ---- What tells of files ----

RAMSPAN_API ssize_t readlink(const char* path, char* to, size_t bytes) noexcept {
  const Pinned pinned(to, bytes);
  const PinnedName name(path);
  return real_readlink(path, to, bytes);
}
RAMSPAN_API char* getcwd(char* to, size_t bytes) noexcept {
  const Pinned pinned(to, bytes);
  return real_getcwd(to, bytes);
}
RAMSPAN_API ssize_t getdents64(int fd, void* to, size_t bytes) noexcept {
  const Pinned pinned(to, bytes);
  return real_getdents64(fd, to, bytes);
}
RAMSPAN_API int stat(const char* path, struct stat* to) noexcept {
  const Pinned pinned(to, sizeof(*to));
  const PinnedName name(path);
  return real_stat(path, to);
}
RAMSPAN_API int lstat(const char* path, struct stat* to) noexcept {
  const Pinned pinned(to, sizeof(*to));
  const PinnedName name(path);
  return real_lstat(path, to);
}
RAMSPAN_API int fstat(int fd, struct stat* to) noexcept {
  const Pinned pinned(to, sizeof(*to));
  return real_fstat(fd, to);
}
RAMSPAN_API int fstatat(int fd, const char* path, struct stat* to, int flags) noexcept {
  const Pinned pinned(to, sizeof(*to));
  const PinnedName name(path);
  return real_fstatat(fd, path, to, flags);
}
RAMSPAN_API int stat64(const char* path, struct stat64* to) noexcept { return stat(path, reinterpret_cast<struct stat*>(to)); }
RAMSPAN_API int lstat64(const char* path, struct stat64* to) noexcept { return lstat(path, reinterpret_cast<struct stat*>(to)); }
RAMSPAN_API int fstat64(int fd, struct stat64* to) noexcept { return fstat(fd, reinterpret_cast<struct stat*>(to)); }
RAMSPAN_API int fstatat64(int fd, const char* path, struct stat64* to, int flags) noexcept { return fstatat(fd, path, reinterpret_cast<struct stat*>(to), flags); }

// ---- Names ----

RAMSPAN_API int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = va_arg(rest, unsigned);
  va_end(rest);
  const PinnedName name(path);
  return real_open(path, flags, mode);
}
RAMSPAN_API int open64(const char* path, int flags, ...) __attribute__((alias("open")));
RAMSPAN_API FILE* fopen(const char* path, const char* mode) {
  const PinnedName name(path);
  return real_fopen(path, mode);
}
RAMSPAN_API FILE* fopen64(const char* path, const char* mode) __attribute__((alias("fopen")));
RAMSPAN_API int access(const char* path, int mode) noexcept {
  const PinnedName name(path);
  return real_access(path, mode);
}
RAMSPAN_API int unlink(const char* path) noexcept {
  const PinnedName name(path);
  return real_unlink(path);
}
RAMSPAN_API int mkdir(const char* path, mode_t mode) noexcept {
  const PinnedName name(path);
  return real_mkdir(path, mode);
}
RAMSPAN_API int rename(const char* from, const char* to) noexcept {
  const PinnedName name(from);
  const PinnedName other(to);
  return real_rename(from, to);
}
RAMSPAN_API int bind(int fd, const sockaddr* address, socklen_t bytes) noexcept {
  const Pinned pinned(address, bytes);
  return real_bind(fd, address, bytes);
}
RAMSPAN_API int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) noexcept {
  const Pinned pinned(value, bytes);
  return real_setsockopt(fd, level, name, value, bytes);
}

// ---- Other answers ----

RAMSPAN_API int getentropy(void* to, size_t bytes) noexcept {
  const Pinned pinned(to, bytes);
  return real_getentropy(to, bytes);
}
RAMSPAN_API int getsockopt(int fd, int level, int name, void* to, socklen_t* bytes) noexcept {
  const Pinned pinned(to, NeedsPins(to) ? *bytes : 0), length(bytes, sizeof(*bytes));
  return real_getsockopt(fd, level, name, to, bytes);
}
RAMSPAN_API int getsockname(int fd, sockaddr* to, socklen_t* bytes) noexcept {
  const Pinned pinned(to, NeedsPins(to) ? *bytes : 0), length(bytes, sizeof(*bytes));
  return real_getsockname(fd, to, bytes);
}
RAMSPAN_API int getpeername(int fd, sockaddr* to, socklen_t* bytes) noexcept {
  const Pinned pinned(to, NeedsPins(to) ? *bytes : 0), length(bytes, sizeof(*bytes));
  return real_getpeername(fd, to, bytes);
}
// How much it uses is its own affair: most take a few words.
RAMSPAN_API int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  const Pinned pinned(argument, 4096);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

// ---- What _FORTIFY_SOURCE makes of them ----

RAMSPAN_API int __poll_chk(pollfd* descriptors, nfds_t count, int timeout, size_t room) {
  if (count > room / sizeof(pollfd)) Overflow();
  return poll(descriptors, count, timeout);
}
RAMSPAN_API ssize_t __readlink_chk(const char* path, char* to, size_t bytes, size_t room) noexcept {
  if (bytes > room) Overflow();
  return readlink(path, to, bytes);
}
RAMSPAN_API char* __getcwd_chk(char* to, size_t bytes, size_t room) noexcept {
  if (bytes > room) Overflow();
  return getcwd(to, bytes);
}

}  // extern "C"
