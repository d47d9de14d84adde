// libramspan-pages, second part: calls of libc that hand the program's memory to the kernel, where the kernel's own accesses are not served (docs/pages.md,
// pageFaults = signal). Each has its pages at home for as long as it lasts, so none fails with EFAULT. What is more than a sixteenth of the memory limit moves in
// pieces: with files one after the other until all is done, elsewhere the call returns after the first one, as it may.
//
// Memory that the kernel is handed by calls which are not here (io_uring, messages of several buffers larger than that, libc's own calls for a path name or a futex)
// has just been touched as a rule, and so is at home.
//
// Thread-safety, cancellation, signals: as the calls that they replace.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "client/preload/homes.h"

namespace ramspan::preload {
namespace {

// Of `begin`, as many bytes as are at home while this lives. 0: none, because memory is full; the call is made, and fails by itself.
class Pinned {
 public:
  Pinned(const void* begin, size_t bytes) : begin_(begin), bytes_(NeedsPins(begin) ? detail::PinPagesForCall(const_cast<void*>(begin), bytes) : 0) {}
  ~Pinned() {
    if (bytes_ > 0) detail::UnpinPagesForCall(begin_, bytes_);
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  size_t bytes() const { return bytes_; }

 private:
  const void* const begin_;
  const size_t bytes_;
};

// Whether a call that moved less than it was asked to would go on by itself.
bool IsFile(int fd) {
  const int error = errno;
  struct stat is;
  const bool file = fstat(fd, &is) == 0 && S_ISREG(is.st_mode);
  errno = error;
  return file;
}

// move(begin, bytes, done): one call of libc's for a piece, `done` bytes behind the beginning.
template <typename Byte, typename Move>
ssize_t InPieces(int fd, Byte* begin, size_t bytes, const Move& move) {
  size_t done = 0;
  do {
    ssize_t moved;
    bool whole;
    {
      const Pinned pinned(begin + done, bytes - done);
      const size_t piece = pinned.bytes() > 0 ? pinned.bytes() : bytes - done;
      moved = move(begin + done, piece, done);
      whole = moved >= 0 && static_cast<size_t>(moved) == piece;
    }
    if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : moved;
    done += static_cast<size_t>(moved);
    if (!whole) break;
  } while (done < bytes && IsFile(fd));
  return static_cast<ssize_t>(done);
}

// Several buffers: as many as can be pinned, the last one perhaps in part.
constexpr int kVectorsMost = 64;
template <typename Call>
auto WithVectors(const iovec* vectors, int count, const Call& call) -> decltype(call(vectors, count)) {
  if (count <= 0 || !std::any_of(vectors, vectors + std::min(count, IOV_MAX), [](const iovec& one) { return NeedsPins(one.iov_base); })) return call(vectors, count);
  struct Pins {
    ~Pins() {
      for (int i = 0; i < count; ++i) {
        if (pinned[i]) detail::UnpinPagesForCall(pieces[i].iov_base, pieces[i].iov_len);
      }
    }
    iovec pieces[kVectorsMost];
    bool pinned[kVectorsMost];
    int count = 0;
  } pins;
  for (int i = 0; i < std::min(count, kVectorsMost); ++i) {
    iovec& piece = pins.pieces[i];
    piece = vectors[i];
    pins.pinned[i] = false;
    if (piece.iov_len > 0 && NeedsPins(piece.iov_base)) {
      const size_t bytes = detail::PinPagesForCall(piece.iov_base, piece.iov_len);
      if (bytes == 0) break;
      pins.pinned[i] = true;
      piece.iov_len = bytes;
    }
    pins.count = i + 1;
    if (piece.iov_len < vectors[i].iov_len) break;
  }
  return pins.count > 0 ? call(pins.pieces, pins.count) : call(vectors, count);
}

[[noreturn]] void Overflow() {
  static constexpr char kText[] = "*** buffer overflow detected ***: terminated\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) std::abort();
  std::abort();
}

// fread and fwrite: libc reads large pieces straight into the program's memory.
template <typename Byte, typename Move>
size_t Stream(Byte* begin, size_t size, size_t count, const Move& move) {
  size_t all = 0;
  if (!NeedsPins(begin) || __builtin_mul_overflow(size, count, &all) || all == 0) return move(begin, size, count);
  size_t done = 0;
  while (done < all) {
    const Pinned pinned(begin + done, all - done);
    const size_t piece = pinned.bytes() > 0 ? pinned.bytes() : all - done, moved = move(begin + done, 1, piece);
    done += moved;
    if (moved < piece) break;
  }
  return done / size;
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::InPieces;
using ramspan::preload::Libc;
using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::Pinned;
using ramspan::preload::Stream;
using ramspan::preload::WithVectors;

extern "C" {

// ---- Files and pipes ----

RAMSPAN_API ssize_t read(int fd, void* to, size_t bytes) {
  static constinit Libc<ssize_t (*)(int, void*, size_t)> next("read");
  if (!NeedsPins(to)) return next(fd, to, bytes);
  return InPieces(fd, static_cast<char*>(to), bytes, [&](char* at, size_t n, size_t) { return next(fd, at, n); });
}
RAMSPAN_API ssize_t write(int fd, const void* from, size_t bytes) {
  static constinit Libc<ssize_t (*)(int, const void*, size_t)> next("write");
  if (!NeedsPins(from)) return next(fd, from, bytes);
  return InPieces(fd, static_cast<const char*>(from), bytes, [&](const char* at, size_t n, size_t) { return next(fd, at, n); });
}
RAMSPAN_API ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  static constinit Libc<ssize_t (*)(int, void*, size_t, off_t)> next("pread");
  if (!NeedsPins(to)) return next(fd, to, bytes, offset);
  return InPieces(fd, static_cast<char*>(to), bytes, [&](char* at, size_t n, size_t done) { return next(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  static constinit Libc<ssize_t (*)(int, const void*, size_t, off_t)> next("pwrite");
  if (!NeedsPins(from)) return next(fd, from, bytes, offset);
  return InPieces(fd, static_cast<const char*>(from), bytes, [&](const char* at, size_t n, size_t done) { return next(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) __attribute__((alias("pread")));
RAMSPAN_API ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t offset) __attribute__((alias("pwrite")));

RAMSPAN_API ssize_t readv(int fd, const iovec* vectors, int count) {
  static constinit Libc<ssize_t (*)(int, const iovec*, int)> next("readv");
  return WithVectors(vectors, count, [&](const iovec* v, int n) { return next(fd, v, n); });
}
RAMSPAN_API ssize_t writev(int fd, const iovec* vectors, int count) {
  static constinit Libc<ssize_t (*)(int, const iovec*, int)> next("writev");
  return WithVectors(vectors, count, [&](const iovec* v, int n) { return next(fd, v, n); });
}
RAMSPAN_API ssize_t preadv(int fd, const iovec* vectors, int count, off_t offset) {
  static constinit Libc<ssize_t (*)(int, const iovec*, int, off_t)> next("preadv");
  return WithVectors(vectors, count, [&](const iovec* v, int n) { return next(fd, v, n, offset); });
}
RAMSPAN_API ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset) {
  static constinit Libc<ssize_t (*)(int, const iovec*, int, off_t)> next("pwritev");
  return WithVectors(vectors, count, [&](const iovec* v, int n) { return next(fd, v, n, offset); });
}
RAMSPAN_API ssize_t preadv64(int fd, const iovec* vectors, int count, off64_t offset) __attribute__((alias("preadv")));
RAMSPAN_API ssize_t pwritev64(int fd, const iovec* vectors, int count, off64_t offset) __attribute__((alias("pwritev")));

// The pipe would keep the pages themselves, which move on without it. Copies, as it may.
RAMSPAN_API ssize_t vmsplice(int fd, const iovec* vectors, size_t count, unsigned flags) {
  static constinit Libc<ssize_t (*)(int, const iovec*, size_t, unsigned)> next("vmsplice");
  if (!std::any_of(vectors, vectors + count, [](const iovec& one) { return ramspan::preload::IsHome(one.iov_base); })) return next(fd, vectors, count, flags);
  const int mode = fcntl(fd, F_GETFL);
  const int most = static_cast<int>(std::min<size_t>(count, IOV_MAX));
  return mode >= 0 && (mode & O_ACCMODE) == O_RDONLY ? readv(fd, vectors, most) : writev(fd, vectors, most);
}

RAMSPAN_API ssize_t getrandom(void* to, size_t bytes, unsigned flags) {
  static constinit Libc<ssize_t (*)(void*, size_t, unsigned)> next("getrandom");
  const Pinned pinned(to, bytes);
  return next(to, pinned.bytes() > 0 ? pinned.bytes() : bytes, flags);
}

// ---- Sockets ----

RAMSPAN_API ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  static constinit Libc<ssize_t (*)(int, void*, size_t, int)> next("recv");
  const Pinned pinned(to, bytes);
  return next(fd, to, pinned.bytes() > 0 ? pinned.bytes() : bytes, flags);
}
RAMSPAN_API ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  static constinit Libc<ssize_t (*)(int, const void*, size_t, int)> next("send");
  const Pinned pinned(from, bytes);
  return next(fd, from, pinned.bytes() > 0 ? pinned.bytes() : bytes, flags);
}
RAMSPAN_API ssize_t recvfrom(int fd, void* to, size_t bytes, int flags, sockaddr* address, socklen_t* length) {
  static constinit Libc<ssize_t (*)(int, void*, size_t, int, sockaddr*, socklen_t*)> next("recvfrom");
  const Pinned pinned(to, bytes);
  return next(fd, to, pinned.bytes() > 0 ? pinned.bytes() : bytes, flags, address, length);
}
RAMSPAN_API ssize_t sendto(int fd, const void* from, size_t bytes, int flags, const sockaddr* address, socklen_t length) {
  static constinit Libc<ssize_t (*)(int, const void*, size_t, int, const sockaddr*, socklen_t)> next("sendto");
  const Pinned pinned(from, bytes);
  return next(fd, from, pinned.bytes() > 0 ? pinned.bytes() : bytes, flags, address, length);
}
RAMSPAN_API ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static constinit Libc<ssize_t (*)(int, msghdr*, int)> next("recvmsg");
  return WithVectors(message->msg_iov, static_cast<int>(message->msg_iovlen), [&](const iovec* v, int n) {
    if (v == message->msg_iov) return next(fd, message, flags);
    iovec* const own = message->msg_iov;
    const size_t count = message->msg_iovlen;
    message->msg_iov = const_cast<iovec*>(v);
    message->msg_iovlen = static_cast<size_t>(n);
    const ssize_t got = next(fd, message, flags);
    message->msg_iov = own;
    message->msg_iovlen = count;
    return got;
  });
}
RAMSPAN_API ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static constinit Libc<ssize_t (*)(int, const msghdr*, int)> next("sendmsg");
  return WithVectors(message->msg_iov, static_cast<int>(message->msg_iovlen), [&](const iovec* v, int n) {
    if (v == message->msg_iov) return next(fd, message, flags);
    msghdr other = *message;
    other.msg_iov = const_cast<iovec*>(v);
    other.msg_iovlen = static_cast<size_t>(n);
    return next(fd, &other, flags);
  });
}
RAMSPAN_API ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long count, const iovec* remote, unsigned long remote_count, unsigned long flags) noexcept {
  static constinit Libc<ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long)> next("process_vm_readv");
  return WithVectors(local, static_cast<int>(count), [&](const iovec* v, int n) { return next(pid, v, static_cast<unsigned long>(n), remote, remote_count, flags); });
}

// ---- stdio ----

RAMSPAN_API size_t fread(void* to, size_t size, size_t count, FILE* file) {
  static constinit Libc<size_t (*)(void*, size_t, size_t, FILE*)> next("fread");
  return Stream(static_cast<char*>(to), size, count, [&](char* at, size_t s, size_t n) { return next(at, s, n, file); });
}
RAMSPAN_API size_t fwrite(const void* from, size_t size, size_t count, FILE* file) {
  static constinit Libc<size_t (*)(const void*, size_t, size_t, FILE*)> next("fwrite");
  return Stream(static_cast<const char*>(from), size, count, [&](const char* at, size_t s, size_t n) { return next(at, s, n, file); });
}
RAMSPAN_API size_t fread_unlocked(void* to, size_t size, size_t count, FILE* file) {
  static constinit Libc<size_t (*)(void*, size_t, size_t, FILE*)> next("fread_unlocked");
  return Stream(static_cast<char*>(to), size, count, [&](char* at, size_t s, size_t n) { return next(at, s, n, file); });
}
RAMSPAN_API size_t fwrite_unlocked(const void* from, size_t size, size_t count, FILE* file) {
  static constinit Libc<size_t (*)(const void*, size_t, size_t, FILE*)> next("fwrite_unlocked");
  return Stream(static_cast<const char*>(from), size, count, [&](const char* at, size_t s, size_t n) { return next(at, s, n, file); });
}

// ---- What _FORTIFY_SOURCE makes of them ----

RAMSPAN_API ssize_t __read_chk(int fd, void* to, size_t bytes, size_t room) {
  if (bytes > room) Overflow();
  return read(fd, to, bytes);
}
RAMSPAN_API ssize_t __pread_chk(int fd, void* to, size_t bytes, off_t offset, size_t room) {
  if (bytes > room) Overflow();
  return pread(fd, to, bytes, offset);
}
RAMSPAN_API ssize_t __pread64_chk(int fd, void* to, size_t bytes, off64_t offset, size_t room) __attribute__((alias("__pread_chk")));
RAMSPAN_API ssize_t __recv_chk(int fd, void* to, size_t bytes, size_t room, int flags) {
  if (bytes > room) Overflow();
  return recv(fd, to, bytes, flags);
}
RAMSPAN_API ssize_t __recvfrom_chk(int fd, void* to, size_t bytes, size_t room, int flags, sockaddr* address, socklen_t* length) {
  if (bytes > room) Overflow();
  return recvfrom(fd, to, bytes, flags, address, length);
}
RAMSPAN_API size_t __fread_chk(void* to, size_t room, size_t size, size_t count, FILE* file) {
  size_t all = 0;
  if (__builtin_mul_overflow(size, count, &all) || all > room) Overflow();
  return fread(to, size, count, file);
}
RAMSPAN_API size_t __fread_unlocked_chk(void* to, size_t room, size_t size, size_t count, FILE* file) {
  size_t all = 0;
  if (__builtin_mul_overflow(size, count, &all) || all > room) Overflow();
  return fread_unlocked(to, size, count, file);
}

}  // extern "C"
