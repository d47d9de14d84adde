// libramspan-pages, second part: calls of libc that hand the program's memory to the kernel, where the kernel's own accesses are not served (docs/pages.md,
// pageFaults = signal), or a page that a device writes to must not leave (pageMoves = copy). None of them fails with EFAULT.
//
// What may wait for others (sockets, pipes, terminals), and what is small, goes through a buffer of libc's beside: nothing is kept in memory while it waits, and a
// message is sent and received whole. Large pieces of files go straight: their pages are at home as long as the call lasts, one piece after the other.
//
// Memory that the kernel is handed by calls which are not here (io_uring, printf's %s of a string larger than the stream's buffer, addresses and control data of
// messages, libc's own calls for a path name or a futex) has just been touched as a rule, and so is at home.
//
// Thread-safety, cancellation, signals: as the calls that they replace. Who leaves one by a jump or is cancelled in it loses its buffer.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "client/preload/homes.h"

extern "C" {
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace ramspan::preload {
namespace {

// Of `begin`, as many bytes as are at home while this lives. 0: none, because memory is full.
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

// Beside the program's memory. Aligned as O_DIRECT wants it. Null where libc has none.
class Beside {
 public:
  explicit Beside(size_t bytes) : begin_(static_cast<char*>(__libc_memalign(4096, std::max<size_t>(bytes, 1)))) {}
  ~Beside() {
    const int error = errno;
    __libc_free(begin_);
    errno = error;
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  char* begin() const { return begin_; }

 private:
  char* const begin_;
};

constexpr size_t kStraight = size_t{64} << 10;  // smaller pieces of files are copied, too: that takes less time than pins
constexpr size_t kPiece = size_t{1} << 20;      // of what is copied, but for messages
constexpr size_t kAppended = size_t{4} << 20, kRecord = size_t{16} << 20;  // at most, what is copied whole

enum class Kind { kFile, kDevice, kOther };  // of a descriptor: a device may give a record with each call
Kind KindOf(int fd) {
  struct stat is;
  const int error = errno;
  const bool known = fstat(fd, &is) == 0;
  errno = error;
  if (!known) return Kind::kOther;
  return S_ISREG(is.st_mode) || S_ISBLK(is.st_mode) ? Kind::kFile : S_ISCHR(is.st_mode) ? Kind::kDevice : Kind::kOther;
}

// Whether what is sent or received at once is one thing.
bool IsOfMessages(int fd) {
  const int error = errno;
  int type = SOCK_STREAM;
  socklen_t length = sizeof(type);
  const bool of_messages = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type != SOCK_STREAM;
  errno = error;
  return of_messages;
}

// Several buffers, as one after the other.
class Vectors {
 public:
  Vectors(const iovec* vectors, size_t count) : vectors_(vectors), count_(count) {
    for (size_t i = 0; i < count; ++i) bytes_ += std::min(vectors[i].iov_len, SSIZE_MAX - bytes_);
  }
  size_t bytes() const { return bytes_; }
  // The next `bytes` of them.
  void CopyTo(char* to, size_t bytes) {
    Step(bytes, [&to](char* here, size_t n) {
      memcpy(to, here, n);
      to += n;
    });
  }
  void CopyFrom(const char* from, size_t bytes) {
    Step(bytes, [&from](char* here, size_t n) {
      memcpy(here, from, n);
      from += n;
    });
  }

 private:
  template <typename Do>
  void Step(size_t bytes, const Do& part) {
    while (bytes > 0 && at_ < count_) {
      const size_t n = std::min(bytes, vectors_[at_].iov_len - offset_);
      if (n > 0) part(static_cast<char*>(vectors_[at_].iov_base) + offset_, n);
      bytes -= n;
      offset_ += n;
      if (offset_ == vectors_[at_].iov_len) ++at_, offset_ = 0;
    }
  }
  const iovec* const vectors_;
  const size_t count_;
  size_t bytes_ = 0, at_ = 0, offset_ = 0;
};

// Of what the kernel will refuse nothing is taken.
bool NeedPins(const iovec* vectors, size_t count) {
  if (vectors == nullptr || count > IOV_MAX) return false;
  bool need = false;
  size_t all = 0;
  for (size_t i = 0; i < count; ++i) {
    const iovec& one = vectors[i];
    if (one.iov_len > SSIZE_MAX - all) return false;
    all += one.iov_len;
    if (one.iov_len == 0 || !NeedsPins(one.iov_base)) continue;
    if (detail::UsedPages(one.iov_base, one.iov_len) < one.iov_len) return false;
    need = true;
  }
  return need;
}

// Of `bytes` from `begin` on, what may be moved: what is behind the allocation is not the program's. 0: nothing, and the kernel says so.
size_t Movable(void* begin, size_t bytes) { return NeedsPins(begin) && bytes <= SSIZE_MAX ? detail::UsedPages(begin, bytes) : 0; }

enum class Way { kIn, kOut };
// move(begin, bytes, done): one call of libc's for a piece, `done` bytes behind the beginning. `goes_on`: as long as pieces are moved whole.
template <Way kWay, typename Move>
ssize_t Copied(Vectors vectors, size_t piece_most, bool goes_on, const Move& move) {
  const size_t bytes = vectors.bytes(), most = std::min(bytes, piece_most);
  const Beside beside(most);
  if (beside.begin() == nullptr) {
    errno = ENOMEM;
    return -1;
  }
  size_t done = 0;
  do {
    const size_t piece = std::min(most, bytes - done);
    if constexpr (kWay == Way::kOut) vectors.CopyTo(beside.begin(), piece);
    const ssize_t moved = move(beside.begin(), piece, done);
    if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : moved;
    if constexpr (kWay == Way::kIn) vectors.CopyFrom(beside.begin(), std::min(static_cast<size_t>(moved), piece));  // more: a message that was cut (MSG_TRUNC)
    done += static_cast<size_t>(moved);
    if (static_cast<size_t>(moved) != piece) break;
  } while (done < bytes && goes_on);
  return static_cast<ssize_t>(done);
}

// How much is copied at once, and whether a call that moved less than it was asked to would go on by itself.
struct Pieces {
  size_t most;
  bool go_on;
};
template <Way kWay>
Pieces PiecesOf(int fd, Kind kind, size_t bytes) {
  if (kind == Kind::kDevice) return {std::min(bytes, kRecord), true};
  // What several append to is written whole, as far as it is not too much.
  if (kWay == Way::kOut && kind == Kind::kFile && bytes <= kAppended && (fcntl(fd, F_GETFL) & O_APPEND) != 0) return {bytes, true};
  return {bytes > kPiece && kind == Kind::kOther && IsOfMessages(fd) ? bytes : kPiece, kWay == Way::kOut || kind == Kind::kFile};
}

template <Way kWay, typename Byte, typename Move>
ssize_t Moved(int fd, Byte* begin, size_t bytes, const Move& move) {
  const Kind kind = KindOf(fd);
  const Pieces pieces = PiecesOf<kWay>(fd, kind, bytes);
  if (kind != Kind::kFile || bytes <= kStraight || pieces.most == bytes) {
    const iovec one = {const_cast<char*>(begin), bytes};
    return Copied<kWay>(Vectors(&one, 1), pieces.most, pieces.go_on, move);
  }
  size_t done = 0;
  do {
    ssize_t moved;
    size_t piece;
    {
      const Pinned pinned(begin + done, bytes - done);
      piece = pinned.bytes();
      if (piece == 0) {  // memory is full
        const iovec rest = {const_cast<char*>(begin) + done, bytes - done};
        const ssize_t last = Copied<kWay>(Vectors(&rest, 1), kPiece, true, [&](char* at, size_t n, size_t further) { return move(at, n, done + further); });
        return last < 0 ? done > 0 ? static_cast<ssize_t>(done) : last : static_cast<ssize_t>(done) + last;
      }
      moved = move(begin + done, piece, done);
    }
    if (moved < 0) return done > 0 ? static_cast<ssize_t>(done) : moved;
    done += static_cast<size_t>(moved);
    if (static_cast<size_t>(moved) != piece) break;
  } while (done < bytes);
  return static_cast<ssize_t>(done);
}

template <Way kWay, typename Move>
ssize_t MovedVectors(int fd, const iovec* vectors, int count, const Move& move) {
  const Vectors all(vectors, static_cast<size_t>(count));
  const Pieces pieces = PiecesOf<kWay>(fd, KindOf(fd), all.bytes());
  return Copied<kWay>(all, pieces.most, pieces.go_on, move);
}

[[noreturn]] void Overflow() {
  static constexpr char kText[] = "*** buffer overflow detected ***: terminated\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) std::abort();
  std::abort();
}

// fread and fwrite: libc reads and writes large pieces straight from the program's memory.
template <Way kWay, typename Byte, typename Move>
size_t Stream(Byte* begin, size_t size, size_t count, const Move& move) {
  size_t all = 0;
  if (!NeedsPins(begin) || __builtin_mul_overflow(size, count, &all) || all == 0) return move(begin, size, count);
  const iovec one = {const_cast<char*>(begin), all};
  const ssize_t done = Copied<kWay>(Vectors(&one, 1), kPiece, true, [&](char* at, size_t n, size_t) { return static_cast<ssize_t>(move(at, 1, n)); });
  return done < 0 ? 0 : static_cast<size_t>(done) / size;
}

// In pieces, as one.
class StreamLock {
 public:
  explicit StreamLock(FILE* file) : file_(file) { flockfile(file); }
  ~StreamLock() { funlockfile(file_); }
  StreamLock(const StreamLock&) = delete;
  StreamLock& operator=(const StreamLock&) = delete;

 private:
  FILE* const file_;
};

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::Beside;
using ramspan::preload::Copied;
using ramspan::preload::IsHome;
using ramspan::preload::IsOfMessages;
using ramspan::preload::kPiece;
using ramspan::preload::kRecord;
using ramspan::preload::Movable;
using ramspan::preload::Moved;
using ramspan::preload::MovedVectors;
using ramspan::preload::NeedPins;
using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::Pinned;
using ramspan::preload::Stream;
using ramspan::preload::StreamLock;
using ramspan::preload::Vectors;
using ramspan::preload::Way;

RS_LIBC(read, ssize_t (*)(int, void*, size_t))
RS_LIBC(write, ssize_t (*)(int, const void*, size_t))
RS_LIBC(pread, ssize_t (*)(int, void*, size_t, off_t))
RS_LIBC(pwrite, ssize_t (*)(int, const void*, size_t, off_t))
RS_LIBC(readv, ssize_t (*)(int, const iovec*, int))
RS_LIBC(writev, ssize_t (*)(int, const iovec*, int))
RS_LIBC(preadv, ssize_t (*)(int, const iovec*, int, off_t))
RS_LIBC(pwritev, ssize_t (*)(int, const iovec*, int, off_t))
RS_LIBC(preadv2, ssize_t (*)(int, const iovec*, int, off_t, int))
RS_LIBC(pwritev2, ssize_t (*)(int, const iovec*, int, off_t, int))
RS_LIBC(vmsplice, ssize_t (*)(int, const iovec*, size_t, unsigned))
RS_LIBC(getrandom, ssize_t (*)(void*, size_t, unsigned))
RS_LIBC(recv, ssize_t (*)(int, void*, size_t, int))
RS_LIBC(send, ssize_t (*)(int, const void*, size_t, int))
RS_LIBC(recvfrom, ssize_t (*)(int, void*, size_t, int, sockaddr*, socklen_t*))
RS_LIBC(sendto, ssize_t (*)(int, const void*, size_t, int, const sockaddr*, socklen_t))
RS_LIBC(recvmsg, ssize_t (*)(int, msghdr*, int))
RS_LIBC(sendmsg, ssize_t (*)(int, const msghdr*, int))
RS_LIBC(recvmmsg, int (*)(int, mmsghdr*, unsigned, int, timespec*))
RS_LIBC(sendmmsg, int (*)(int, mmsghdr*, unsigned, int))
RS_LIBC(process_vm_readv, ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long))
RS_LIBC(process_vm_writev, ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long))
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
RS_LIBC(open64, int (*)(const char*, int, unsigned))
RS_LIBC(fopen, FILE* (*)(const char*, const char*))
RS_LIBC(fopen64, FILE* (*)(const char*, const char*))
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
RS_LIBC(fread, size_t (*)(void*, size_t, size_t, FILE*))
RS_LIBC(fwrite, size_t (*)(const void*, size_t, size_t, FILE*))
RS_LIBC(fread_unlocked, size_t (*)(void*, size_t, size_t, FILE*))
RS_LIBC(fwrite_unlocked, size_t (*)(const void*, size_t, size_t, FILE*))
RS_LIBC(fputs, int (*)(const char*, FILE*))
RS_LIBC(puts, int (*)(const char*))
RS_LIBC(setvbuf, int (*)(FILE*, char*, int, size_t))

extern "C" {

// ---- Files and pipes ----

RAMSPAN_API ssize_t read(int fd, void* to, size_t bytes) {
  const size_t movable = Movable(to, bytes);
  if (movable == 0) return real_read(fd, to, bytes);
  return Moved<Way::kIn>(fd, static_cast<char*>(to), movable, [&](char* at, size_t n, size_t) { return real_read(fd, at, n); });
}
RAMSPAN_API ssize_t write(int fd, const void* from, size_t bytes) {
  const size_t movable = Movable(const_cast<void*>(from), bytes);
  if (movable == 0) return real_write(fd, from, bytes);
  return Moved<Way::kOut>(fd, static_cast<const char*>(from), movable, [&](const char* at, size_t n, size_t) { return real_write(fd, at, n); });
}
RAMSPAN_API ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  const size_t movable = Movable(to, bytes);
  if (movable == 0) return real_pread(fd, to, bytes, offset);
  return Moved<Way::kIn>(fd, static_cast<char*>(to), movable, [&](char* at, size_t n, size_t done) { return real_pread(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  const size_t movable = Movable(const_cast<void*>(from), bytes);
  if (movable == 0) return real_pwrite(fd, from, bytes, offset);
  return Moved<Way::kOut>(fd, static_cast<const char*>(from), movable, [&](const char* at, size_t n, size_t done) { return real_pwrite(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) __attribute__((alias("pread")));
RAMSPAN_API ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t offset) __attribute__((alias("pwrite")));

RAMSPAN_API ssize_t readv(int fd, const iovec* vectors, int count) {
  if (count <= 0 || !NeedPins(vectors, static_cast<size_t>(count))) return real_readv(fd, vectors, count);
  return MovedVectors<Way::kIn>(fd, vectors, count, [&](char* at, size_t n, size_t) { return real_read(fd, at, n); });
}
RAMSPAN_API ssize_t writev(int fd, const iovec* vectors, int count) {
  if (count <= 0 || !NeedPins(vectors, static_cast<size_t>(count))) return real_writev(fd, vectors, count);
  return MovedVectors<Way::kOut>(fd, vectors, count, [&](const char* at, size_t n, size_t) { return real_write(fd, at, n); });
}
RAMSPAN_API ssize_t preadv(int fd, const iovec* vectors, int count, off_t offset) {
  if (count <= 0 || !NeedPins(vectors, static_cast<size_t>(count))) return real_preadv(fd, vectors, count, offset);
  return MovedVectors<Way::kIn>(fd, vectors, count, [&](char* at, size_t n, size_t done) { return real_pread(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset) {
  if (count <= 0 || !NeedPins(vectors, static_cast<size_t>(count))) return real_pwritev(fd, vectors, count, offset);
  return MovedVectors<Way::kOut>(fd, vectors, count, [&](const char* at, size_t n, size_t done) { return real_pwrite(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t preadv64(int fd, const iovec* vectors, int count, off64_t offset) __attribute__((alias("preadv")));
RAMSPAN_API ssize_t pwritev64(int fd, const iovec* vectors, int count, off64_t offset) __attribute__((alias("pwritev")));
// An offset of -1: the file's own.
RAMSPAN_API ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  if (count <= 0 || !NeedPins(vectors, static_cast<size_t>(count))) return real_preadv2(fd, vectors, count, offset, flags);
  return MovedVectors<Way::kIn>(fd, vectors, count, [&](char* at, size_t n, size_t done) {
    const iovec one = {at, n};
    return real_preadv2(fd, &one, 1, offset == -1 ? offset : offset + static_cast<off_t>(done), flags);
  });
}
RAMSPAN_API ssize_t pwritev2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  if (count <= 0 || !NeedPins(vectors, static_cast<size_t>(count))) return real_pwritev2(fd, vectors, count, offset, flags);
  return MovedVectors<Way::kOut>(fd, vectors, count, [&](char* at, size_t n, size_t done) {
    const iovec one = {at, n};
    return real_pwritev2(fd, &one, 1, offset == -1 ? offset : offset + static_cast<off_t>(done), flags);
  });
}
RAMSPAN_API ssize_t preadv64v2(int fd, const iovec* vectors, int count, off64_t offset, int flags) __attribute__((alias("preadv2")));
RAMSPAN_API ssize_t pwritev64v2(int fd, const iovec* vectors, int count, off64_t offset, int flags) __attribute__((alias("pwritev2")));

// The pipe would keep the pages themselves, which move on without it. Copies, as it may.
RAMSPAN_API ssize_t vmsplice(int fd, const iovec* vectors, size_t count, unsigned flags) {
  if (vectors == nullptr || count > IOV_MAX || !std::any_of(vectors, vectors + count, [](const iovec& one) { return IsHome(one.iov_base); })) return real_vmsplice(fd, vectors, count, flags);
  const int mode = fcntl(fd, F_GETFL), most = static_cast<int>(count);
  if ((flags & SPLICE_F_NONBLOCK) != 0) {
    return mode >= 0 && (mode & O_ACCMODE) == O_RDONLY ? preadv2(fd, vectors, most, -1, RWF_NOWAIT) : pwritev2(fd, vectors, most, -1, RWF_NOWAIT);
  }
  return mode >= 0 && (mode & O_ACCMODE) == O_RDONLY ? readv(fd, vectors, most) : writev(fd, vectors, most);
}

RAMSPAN_API ssize_t getrandom(void* to, size_t bytes, unsigned flags) {
  const size_t movable = Movable(to, bytes);
  if (movable == 0) return real_getrandom(to, bytes, flags);
  const iovec one = {to, movable};
  return Copied<Way::kIn>(Vectors(&one, 1), kPiece, true, [&](char* at, size_t n, size_t) { return real_getrandom(at, n, flags); });
}

// ---- Sockets ----

RAMSPAN_API ssize_t recvfrom(int fd, void* to, size_t bytes, int flags, sockaddr* address, socklen_t* length) {
  const size_t movable = Movable(to, bytes);
  if (movable == 0) return real_recvfrom(fd, to, bytes, flags, address, length);
  const iovec one = {to, movable};
  const bool whole = (flags & MSG_PEEK) != 0 || IsOfMessages(fd);
  return Copied<Way::kIn>(Vectors(&one, 1), whole ? movable : kPiece, !whole && (flags & MSG_WAITALL) != 0, [&](char* at, size_t n, size_t) { return real_recvfrom(fd, at, n, flags, address, length); });
}
RAMSPAN_API ssize_t sendto(int fd, const void* from, size_t bytes, int flags, const sockaddr* address, socklen_t length) {
  if (Movable(const_cast<void*>(from), bytes) != bytes || bytes == 0) return real_sendto(fd, from, bytes, flags, address, length);
  const iovec one = {const_cast<void*>(from), bytes};
  return Copied<Way::kOut>(Vectors(&one, 1), IsOfMessages(fd) ? bytes : kPiece, true, [&](char* at, size_t n, size_t) { return real_sendto(fd, at, n, flags, address, length); });
}
RAMSPAN_API ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  if (!NeedsPins(to)) return real_recv(fd, to, bytes, flags);
  return recvfrom(fd, to, bytes, flags, nullptr, nullptr);
}
RAMSPAN_API ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  if (!NeedsPins(from)) return real_send(fd, from, bytes, flags);
  return sendto(fd, from, bytes, flags, nullptr, 0);
}
RAMSPAN_API ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (message == nullptr || !NeedPins(message->msg_iov, message->msg_iovlen)) return real_recvmsg(fd, message, flags);
  const Vectors all(message->msg_iov, message->msg_iovlen);
  const bool whole = (flags & MSG_PEEK) != 0 || IsOfMessages(fd);
  return Copied<Way::kIn>(all, whole ? all.bytes() : kPiece, !whole && (flags & MSG_WAITALL) != 0, [&](char* at, size_t n, size_t done) {
    iovec one = {at, n};
    msghdr other = *message;
    other.msg_iov = &one;
    other.msg_iovlen = 1;
    if (done > 0) return real_recv(fd, at, n, flags);  // what comes beside the bytes has come with the first piece
    const ssize_t got = real_recvmsg(fd, &other, flags);
    message->msg_namelen = other.msg_namelen;
    message->msg_controllen = other.msg_controllen;
    message->msg_flags = other.msg_flags;
    return got;
  });
}
// What goes beside the bytes (descriptors) goes with the first piece.
RAMSPAN_API ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (message == nullptr || !NeedPins(message->msg_iov, message->msg_iovlen)) return real_sendmsg(fd, message, flags);
  const Vectors all(message->msg_iov, message->msg_iovlen);
  return Copied<Way::kOut>(all, IsOfMessages(fd) ? all.bytes() : kPiece, true, [&](char* at, size_t n, size_t done) {
    iovec one = {at, n};
    msghdr other = *message;
    other.msg_iov = &one;
    other.msg_iovlen = 1;
    if (done > 0) other.msg_control = nullptr, other.msg_controllen = 0;
    return real_sendmsg(fd, &other, flags);
  });
}
// One after the other, where one of them needs it.
RAMSPAN_API int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const auto needs = [](const mmsghdr& one) { return NeedPins(one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen); };
  if (messages == nullptr || timeout != nullptr || (!NeedsPins(messages) && !std::any_of(messages, messages + count, needs))) return real_recvmmsg(fd, messages, count, flags, timeout);
  unsigned got = 0;
  for (; got < count; ++got) {
    const int how = (flags & ~MSG_WAITFORONE) | (got > 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0);
    const ssize_t bytes = recvmsg(fd, &messages[got].msg_hdr, how);
    if (bytes < 0) return got > 0 ? static_cast<int>(got) : -1;
    messages[got].msg_len = static_cast<unsigned>(bytes);
  }
  return static_cast<int>(got);
}
RAMSPAN_API int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  const auto needs = [](const mmsghdr& one) { return NeedPins(one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen); };
  if (messages == nullptr || (!NeedsPins(messages) && !std::any_of(messages, messages + count, needs))) return real_sendmmsg(fd, messages, count, flags);
  unsigned sent = 0;
  for (; sent < count; ++sent) {
    const ssize_t bytes = sendmsg(fd, &messages[sent].msg_hdr, flags);
    if (bytes < 0) return sent > 0 ? static_cast<int>(sent) : -1;
    messages[sent].msg_len = static_cast<unsigned>(bytes);
  }
  return static_cast<int>(sent);
}
RAMSPAN_API ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long count, const iovec* remote, unsigned long remote_count, unsigned long flags) noexcept {
  if (!NeedPins(local, count)) return real_process_vm_readv(pid, local, count, remote, remote_count, flags);
  const Vectors all(local, count);
  return Copied<Way::kIn>(all, kRecord, false, [&](char* at, size_t n, size_t) {
    const iovec one = {at, n};
    return real_process_vm_readv(pid, &one, 1, remote, remote_count, flags);
  });
}
RAMSPAN_API ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long count, const iovec* remote, unsigned long remote_count, unsigned long flags) noexcept {
  if (!NeedPins(local, count)) return real_process_vm_writev(pid, local, count, remote, remote_count, flags);
  const Vectors all(local, count);
  return Copied<Way::kOut>(all, kRecord, false, [&](char* at, size_t n, size_t) {
    const iovec one = {at, n};
    return real_process_vm_writev(pid, &one, 1, remote, remote_count, flags);
  });
}

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
  const Pinned pinned(to, bytes), name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
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
  const Pinned pinned(to, sizeof(*to)), name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_stat(path, to);
}
RAMSPAN_API int lstat(const char* path, struct stat* to) noexcept {
  const Pinned pinned(to, sizeof(*to)), name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_lstat(path, to);
}
RAMSPAN_API int fstat(int fd, struct stat* to) noexcept {
  const Pinned pinned(to, sizeof(*to));
  return real_fstat(fd, to);
}
RAMSPAN_API int fstatat(int fd, const char* path, struct stat* to, int flags) noexcept {
  const Pinned pinned(to, sizeof(*to)), name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
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
  const Pinned name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_open(path, flags, mode);
}
RAMSPAN_API int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const unsigned mode = va_arg(rest, unsigned);
  va_end(rest);
  const Pinned name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_open64(path, flags, mode);
}
RAMSPAN_API FILE* fopen(const char* path, const char* mode) {
  const Pinned name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_fopen(path, mode);
}
RAMSPAN_API FILE* fopen64(const char* path, const char* mode) {
  const Pinned name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_fopen64(path, mode);
}
RAMSPAN_API int access(const char* path, int mode) noexcept {
  const Pinned name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_access(path, mode);
}
RAMSPAN_API int unlink(const char* path) noexcept {
  const Pinned name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_unlink(path);
}
RAMSPAN_API int mkdir(const char* path, mode_t mode) noexcept {
  const Pinned name(path, NeedsPins(path) ? strlen(path) + 1 : 0);
  return real_mkdir(path, mode);
}
RAMSPAN_API int rename(const char* from, const char* to) noexcept {
  const Pinned name(from, NeedsPins(from) ? strlen(from) + 1 : 0), other(to, NeedsPins(to) ? strlen(to) + 1 : 0);
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

// ---- stdio ----

RAMSPAN_API size_t fread(void* to, size_t size, size_t count, FILE* file) {
  if (!NeedsPins(to)) return real_fread(to, size, count, file);
  const StreamLock lock(file);
  return Stream<Way::kIn>(static_cast<char*>(to), size, count, [&](char* at, size_t s, size_t n) { return real_fread(at, s, n, file); });
}
RAMSPAN_API size_t fwrite(const void* from, size_t size, size_t count, FILE* file) {
  if (!NeedsPins(from)) return real_fwrite(from, size, count, file);
  const StreamLock lock(file);
  return Stream<Way::kOut>(static_cast<const char*>(from), size, count, [&](const char* at, size_t s, size_t n) { return real_fwrite(at, s, n, file); });
}
RAMSPAN_API size_t fread_unlocked(void* to, size_t size, size_t count, FILE* file) {
  return Stream<Way::kIn>(static_cast<char*>(to), size, count, [&](char* at, size_t s, size_t n) { return real_fread_unlocked(at, s, n, file); });
}
RAMSPAN_API size_t fwrite_unlocked(const void* from, size_t size, size_t count, FILE* file) {
  return Stream<Way::kOut>(static_cast<const char*>(from), size, count, [&](const char* at, size_t s, size_t n) { return real_fwrite_unlocked(at, s, n, file); });
}
RAMSPAN_API int fputs(const char* text, FILE* file) {
  if (!NeedsPins(text)) return real_fputs(text, file);
  const size_t bytes = strlen(text);
  return fwrite(text, 1, bytes, file) == bytes ? 1 : EOF;
}
RAMSPAN_API int puts(const char* text) {
  if (!NeedsPins(text)) return real_puts(text);
  const StreamLock lock(stdout);
  return fputs(text, stdout) == EOF || putc_unlocked('\n', stdout) == EOF ? EOF : 1;
}
// A stream hands its buffer to the kernel at any time: it takes one of libc's.
RAMSPAN_API int setvbuf(FILE* file, char* buffer, int mode, size_t bytes) noexcept { return real_setvbuf(file, NeedsPins(buffer) ? nullptr : buffer, mode, bytes); }
RAMSPAN_API void setbuffer(FILE* file, char* buffer, size_t bytes) noexcept { static_cast<void>(setvbuf(file, buffer, buffer != nullptr ? _IOFBF : _IONBF, bytes)); }
RAMSPAN_API void setbuf(FILE* file, char* buffer) noexcept { setbuffer(file, buffer, BUFSIZ); }

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
