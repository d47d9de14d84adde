// libramspan-pages, fifth part: calls of libc that take a name, or answer into the program's memory: files, sockets. As calls.cc.
// Thread-safety, cancellation, signals: as the calls that they replace.
#include <dirent.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "client/preload/beside.h"

using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::Pinned;
using ramspan::preload::PinnedName;

RS_LIBC(epoll_ctl, int (*)(int, int, int, epoll_event*))
RS_LIBC(readlink, ssize_t (*)(const char*, char*, size_t))
RS_LIBC(readlinkat, ssize_t (*)(int, const char*, char*, size_t))
RS_LIBC(getcwd, char* (*)(char*, size_t))
RS_LIBC(getdents64, ssize_t (*)(int, void*, size_t))
RS_LIBC(stat, int (*)(const char*, struct stat*))
RS_LIBC(lstat, int (*)(const char*, struct stat*))
RS_LIBC(fstat, int (*)(int, struct stat*))
RS_LIBC(fstatat, int (*)(int, const char*, struct stat*, int))
RS_LIBC(open, int (*)(const char*, int, unsigned))
RS_LIBC(openat, int (*)(int, const char*, int, unsigned))
RS_LIBC(fopen, FILE* (*)(const char*, const char*))
RS_LIBC(freopen, FILE* (*)(const char*, const char*, FILE*))
RS_LIBC(opendir, DIR* (*)(const char*))
RS_LIBC(access, int (*)(const char*, int))
RS_LIBC(faccessat, int (*)(int, const char*, int, int))
RS_LIBC(unlink, int (*)(const char*))
RS_LIBC(unlinkat, int (*)(int, const char*, int))
RS_LIBC(remove, int (*)(const char*))
RS_LIBC(mkdir, int (*)(const char*, mode_t))
RS_LIBC(mkdirat, int (*)(int, const char*, mode_t))
RS_LIBC(rmdir, int (*)(const char*))
RS_LIBC(chdir, int (*)(const char*))
RS_LIBC(chmod, int (*)(const char*, mode_t))
RS_LIBC(truncate, int (*)(const char*, off_t))
RS_LIBC(truncate64, int (*)(const char*, off64_t))
RS_LIBC(rename, int (*)(const char*, const char*))
RS_LIBC(renameat, int (*)(int, const char*, int, const char*))
RS_LIBC(renameat2, int (*)(int, const char*, int, const char*, unsigned))
RS_LIBC(link, int (*)(const char*, const char*))
RS_LIBC(linkat, int (*)(int, const char*, int, const char*, int))
RS_LIBC(symlink, int (*)(const char*, const char*))
RS_LIBC(symlinkat, int (*)(const char*, int, const char*))
RS_LIBC(euidaccess, int (*)(const char*, int))
RS_LIBC(mknod, int (*)(const char*, mode_t, dev_t))
RS_LIBC(mknodat, int (*)(int, const char*, mode_t, dev_t))
RS_LIBC(bind, int (*)(int, const sockaddr*, socklen_t))
RS_LIBC(setsockopt, int (*)(int, int, int, const void*, socklen_t))
RS_LIBC(getentropy, int (*)(void*, size_t))
RS_LIBC(getsockopt, int (*)(int, int, int, void*, socklen_t*))
RS_LIBC(getsockname, int (*)(int, sockaddr*, socklen_t*))
RS_LIBC(getpeername, int (*)(int, sockaddr*, socklen_t*))

extern "C" {

// ---- What tells of files ----

RAMSPAN_API ssize_t readlink(const char* path, char* to, size_t bytes) noexcept {
  const Pinned pinned(to, bytes);
  const PinnedName name(path);
  return real_readlink(path, to, bytes);
}
RAMSPAN_API ssize_t readlinkat(int folder, const char* path, char* to, size_t bytes) noexcept {
  const Pinned pinned(to, bytes);
  const PinnedName name(path);
  return real_readlinkat(folder, path, to, bytes);
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

// With the name of a file, or two, at home.
#define RS_ONE_NAME(RESULT, NAME, PARAMETERS, PATH, ...)  \
  RAMSPAN_API RESULT NAME PARAMETERS noexcept {           \
    const PinnedName name(PATH);                          \
    return real_##NAME(__VA_ARGS__);                      \
  }
#define RS_TWO_NAMES(NAME, PARAMETERS, FROM, TO, ...)     \
  RAMSPAN_API int NAME PARAMETERS noexcept {              \
    const PinnedName from_name(FROM), to_name(TO);        \
    return real_##NAME(__VA_ARGS__);                      \
  }

RAMSPAN_API int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = va_arg(rest, unsigned);
  va_end(rest);
  const PinnedName name(path);
  return real_open(path, flags, mode);
}
RAMSPAN_API int open64(const char* path, int flags, ...) __attribute__((alias("open")));
RAMSPAN_API int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = va_arg(rest, unsigned);
  va_end(rest);
  const PinnedName name(path);
  return real_openat(folder, path, flags, mode);
}
RAMSPAN_API int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));
RAMSPAN_API FILE* fopen(const char* path, const char* mode) {
  const PinnedName name(path);
  return real_fopen(path, mode);
}
RAMSPAN_API FILE* fopen64(const char* path, const char* mode) __attribute__((alias("fopen")));
RAMSPAN_API FILE* freopen(const char* path, const char* mode, FILE* file) {
  const PinnedName name(path);
  return real_freopen(path, mode, file);
}
RAMSPAN_API FILE* freopen64(const char* path, const char* mode, FILE* file) __attribute__((alias("freopen")));
RAMSPAN_API int creat(const char* path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
RAMSPAN_API int creat64(const char* path, mode_t mode) __attribute__((alias("creat")));
RAMSPAN_API DIR* opendir(const char* path) {
  const PinnedName name(path);
  return real_opendir(path);
}
RS_ONE_NAME(int, access, (const char* path, int mode), path, path, mode)
RS_ONE_NAME(int, faccessat, (int folder, const char* path, int mode, int flags), path, folder, path, mode, flags)
RS_ONE_NAME(int, euidaccess, (const char* path, int mode), path, path, mode)
RS_ONE_NAME(int, mknod, (const char* path, mode_t mode, dev_t device), path, path, mode, device)
RS_ONE_NAME(int, mknodat, (int folder, const char* path, mode_t mode, dev_t device), path, folder, path, mode, device)
RS_ONE_NAME(int, unlink, (const char* path), path, path)
RS_ONE_NAME(int, unlinkat, (int folder, const char* path, int flags), path, folder, path, flags)
RS_ONE_NAME(int, remove, (const char* path), path, path)
RS_ONE_NAME(int, mkdir, (const char* path, mode_t mode), path, path, mode)
RS_ONE_NAME(int, mkdirat, (int folder, const char* path, mode_t mode), path, folder, path, mode)
RS_ONE_NAME(int, rmdir, (const char* path), path, path)
RS_ONE_NAME(int, chdir, (const char* path), path, path)
RS_ONE_NAME(int, chmod, (const char* path, mode_t mode), path, path, mode)
RS_ONE_NAME(int, truncate, (const char* path, off_t bytes), path, path, bytes)
RS_ONE_NAME(int, truncate64, (const char* path, off64_t bytes), path, path, bytes)
RS_TWO_NAMES(rename, (const char* from, const char* to), from, to, from, to)
RS_TWO_NAMES(renameat, (int folder, const char* from, int other, const char* to), from, to, folder, from, other, to)
RS_TWO_NAMES(renameat2, (int folder, const char* from, int other, const char* to, unsigned flags), from, to, folder, from, other, to, flags)
RS_TWO_NAMES(linkat, (int folder, const char* from, int other, const char* to, int flags), from, to, folder, from, other, to, flags)
RS_TWO_NAMES(symlinkat, (const char* from, int folder, const char* to), from, to, from, folder, to)
RS_TWO_NAMES(link, (const char* from, const char* to), from, to, from, to)
RS_TWO_NAMES(symlink, (const char* from, const char* to), from, to, from, to)
RAMSPAN_API int eaccess(const char* path, int mode) noexcept __attribute__((alias("euidaccess")));
#undef RS_ONE_NAME
#undef RS_TWO_NAMES
RAMSPAN_API int bind(int fd, const sockaddr* address, socklen_t bytes) noexcept {
  const Pinned pinned(address, bytes);
  return real_bind(fd, address, bytes);
}
RAMSPAN_API int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) noexcept {
  const Pinned pinned(value, bytes);
  return real_setsockopt(fd, level, name, value, bytes);
}

// ---- Other answers ----

RAMSPAN_API int epoll_ctl(int fd, int what, int of, epoll_event* event) noexcept {
  const Pinned pinned(event, sizeof(*event));
  return real_epoll_ctl(fd, what, of, event);
}
RAMSPAN_API int getentropy(void* to, size_t bytes) {
  const Pinned pinned(to, bytes);
  return real_getentropy(to, bytes);
}
RAMSPAN_API int getsockopt(int fd, int level, int name, void* to, socklen_t* bytes) noexcept {
  const Pinned pinned(to, NeedsPins(to) && bytes != nullptr ? *bytes : 0), length(bytes, sizeof(*bytes));
  return real_getsockopt(fd, level, name, to, bytes);
}
RAMSPAN_API int getsockname(int fd, sockaddr* to, socklen_t* bytes) noexcept {
  const Pinned pinned(to, NeedsPins(to) && bytes != nullptr ? *bytes : 0), length(bytes, sizeof(*bytes));
  return real_getsockname(fd, to, bytes);
}
RAMSPAN_API int getpeername(int fd, sockaddr* to, socklen_t* bytes) noexcept {
  const Pinned pinned(to, NeedsPins(to) && bytes != nullptr ? *bytes : 0), length(bytes, sizeof(*bytes));
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

RAMSPAN_API ssize_t __readlink_chk(const char* path, char* to, size_t bytes, size_t room) noexcept {
  if (bytes > room) Overflow();
  return readlink(path, to, bytes);
}
RAMSPAN_API ssize_t __readlinkat_chk(int folder, const char* path, char* to, size_t bytes, size_t room) noexcept {
  if (bytes > room) Overflow();
  return readlinkat(folder, path, to, bytes);
}
RAMSPAN_API char* __getcwd_chk(char* to, size_t bytes, size_t room) noexcept {
  if (bytes > room) Overflow();
  return getcwd(to, bytes);
}

// Without the mode that a new file wants: they are not for new ones.
RAMSPAN_API int __open_2(const char* path, int flags) { return open(path, flags, 0); }
RAMSPAN_API int __open64_2(const char* path, int flags) __attribute__((alias("__open_2")));
RAMSPAN_API int __openat_2(int folder, const char* path, int flags) { return openat(folder, path, flags, 0); }
RAMSPAN_API int __openat64_2(int folder, const char* path, int flags) __attribute__((alias("__openat_2")));

}  // extern "C"
