// libramspan-pages, second part: calls of libc that hand the program's memory to the kernel, where the kernel's own accesses are not served (docs/pages.md,
// pageFaults = signal), or a page that a device writes to must not leave (pageMoves = copy). None of them fails with EFAULT.
//
// What may wait for others (sockets, pipes, terminals), and what is small, goes through a buffer of libc's beside: nothing is kept in memory while it waits, and a
// message is sent and received whole. Large pieces of files go straight: their pages are at home as long as the call lasts, one piece after the other.
//
// Memory that the kernel is handed by calls which are not here (io_uring, printf's %s of a string larger than the stream's buffer,
// libc's own calls for a path name or a futex) has just been touched as a rule, and so is at home.
//
// Thread-safety, cancellation, signals: as the calls that they replace. Who leaves one by a jump or is cancelled in it loses its buffer.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/preload/beside.h"

namespace ramspan::preload {
namespace {

constexpr size_t kStraight = size_t{64} << 10;  // smaller pieces of files are copied, too: that takes less time than pins
constexpr size_t kAppended = size_t{4} << 20, kRecord = size_t{16} << 20;  // at most, what is copied whole

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
ssize_t Moved(int fd, Byte* begin, const Reach& reach, const Move& move) {
  const size_t bytes = reach.bytes;
  const Kind kind = KindOf(fd);
  if (reach.is_protected && kind == Kind::kOther && IsOfMessages(fd)) return WholeMessage(begin, bytes, move);
  if (reach.is_protected) return Straight<kWay>(begin, reach, kind == Kind::kFile || (kind == Kind::kOther && kWay == Way::kOut), move);
  const Pieces pieces = PiecesOf<kWay>(fd, kind, bytes);
  if (kind != Kind::kFile || bytes <= kStraight || pieces.most == bytes) {
    const iovec one = {const_cast<char*>(begin), bytes};
    return Copied<kWay>(Vectors(&one, 1), pieces.most, pieces.go_on, move);
  }
  return Straight<kWay>(begin, reach, true, move);
}

// real(): the call itself.
template <Way kWay, typename Real, typename Move>
ssize_t MovedVectors(int fd, const iovec* vectors, int count, const Real& real, const Move& move) {
  const Reach reach = ReachOf(vectors, static_cast<size_t>(count));
  if (reach.bytes == 0) return real();
  const Kind kind = KindOf(fd);
  if (reach.is_protected && kind == Kind::kFile) {
    ssize_t done = 0;
    for (int i = 0; i < count; ++i) {
      const auto bytes = static_cast<ssize_t>(vectors[i].iov_len);
      const ssize_t moved = bytes == 0 ? 0 : Straight<kWay>(static_cast<char*>(vectors[i].iov_base), Reach{vectors[i].iov_len, true}, true, [&](char* at, size_t n, size_t further) {
        return move(at, n, static_cast<size_t>(done) + further);
      });
      if (moved < 0) return done > 0 ? done : moved;
      done += moved;
      if (moved < bytes) break;
    }
    return done;
  }
  if (reach.is_protected) {  // a message is one
    const PinnedVectors pinned(vectors, static_cast<size_t>(count));
    return real();
  }
  const Vectors all(vectors, static_cast<size_t>(count));
  const Pieces pieces = PiecesOf<kWay>(fd, kind, all.bytes());
  return Copied<kWay>(all, pieces.most, pieces.go_on, move);
}

}  // namespace
}  // namespace ramspan::preload

using ramspan::preload::Copied;
using ramspan::preload::IsHome;
using ramspan::preload::IsOfMessages;
using ramspan::preload::kPiece;
using ramspan::preload::kRecord;
using ramspan::preload::Moved;
using ramspan::preload::MovedVectors;
using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::PinnedVectors;
using ramspan::preload::Reach;
using ramspan::preload::ReachOf;
using ramspan::preload::Straight;
using ramspan::preload::Vectors;
using ramspan::preload::Way;
using ramspan::preload::WholeMessage;

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
RS_LIBC(process_vm_readv, ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long))
RS_LIBC(process_vm_writev, ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long))

extern "C" {

// ---- Files and pipes ----

RAMSPAN_API ssize_t read(int fd, void* to, size_t bytes) {
  const Reach reach = ReachOf(to, bytes);
  if (reach.bytes == 0) return real_read(fd, to, bytes);
  return Moved<Way::kIn>(fd, static_cast<char*>(to), reach, [&](char* at, size_t n, size_t) { return real_read(fd, at, n); });
}
RAMSPAN_API ssize_t write(int fd, const void* from, size_t bytes) {
  const Reach reach = ReachOf(from, bytes);
  if (reach.bytes == 0) return real_write(fd, from, bytes);
  return Moved<Way::kOut>(fd, static_cast<const char*>(from), reach, [&](const char* at, size_t n, size_t) { return real_write(fd, at, n); });
}
RAMSPAN_API ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  const Reach reach = ReachOf(to, bytes);
  if (reach.bytes == 0) return real_pread(fd, to, bytes, offset);
  return Moved<Way::kIn>(fd, static_cast<char*>(to), reach, [&](char* at, size_t n, size_t done) { return real_pread(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pwrite(int fd, const void* from, size_t bytes, off_t offset) {
  const Reach reach = ReachOf(from, bytes);
  if (reach.bytes == 0) return real_pwrite(fd, from, bytes, offset);
  return Moved<Way::kOut>(fd, static_cast<const char*>(from), reach, [&](const char* at, size_t n, size_t done) { return real_pwrite(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) __attribute__((alias("pread")));
RAMSPAN_API ssize_t pwrite64(int fd, const void* from, size_t bytes, off64_t offset) __attribute__((alias("pwrite")));

RAMSPAN_API ssize_t readv(int fd, const iovec* vectors, int count) {
  return MovedVectors<Way::kIn>(fd, vectors, count, [&] { return real_readv(fd, vectors, count); }, [&](char* at, size_t n, size_t) { return real_read(fd, at, n); });
}
RAMSPAN_API ssize_t writev(int fd, const iovec* vectors, int count) {
  return MovedVectors<Way::kOut>(fd, vectors, count, [&] { return real_writev(fd, vectors, count); }, [&](const char* at, size_t n, size_t) { return real_write(fd, at, n); });
}
RAMSPAN_API ssize_t preadv(int fd, const iovec* vectors, int count, off_t offset) {
  return MovedVectors<Way::kIn>(fd, vectors, count, [&] { return real_preadv(fd, vectors, count, offset); }, [&](char* at, size_t n, size_t done) { return real_pread(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t pwritev(int fd, const iovec* vectors, int count, off_t offset) {
  return MovedVectors<Way::kOut>(fd, vectors, count, [&] { return real_pwritev(fd, vectors, count, offset); }, [&](const char* at, size_t n, size_t done) { return real_pwrite(fd, at, n, offset + static_cast<off_t>(done)); });
}
RAMSPAN_API ssize_t preadv64(int fd, const iovec* vectors, int count, off64_t offset) __attribute__((alias("preadv")));
RAMSPAN_API ssize_t pwritev64(int fd, const iovec* vectors, int count, off64_t offset) __attribute__((alias("pwritev")));
// An offset of -1: the file's own.
RAMSPAN_API ssize_t preadv2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  return MovedVectors<Way::kIn>(fd, vectors, count, [&] { return real_preadv2(fd, vectors, count, offset, flags); }, [&](char* at, size_t n, size_t done) {
    const iovec one = {at, n};
    return real_preadv2(fd, &one, 1, offset == -1 ? offset : offset + static_cast<off_t>(done), flags);
  });
}
RAMSPAN_API ssize_t pwritev2(int fd, const iovec* vectors, int count, off_t offset, int flags) {
  return MovedVectors<Way::kOut>(fd, vectors, count, [&] { return real_pwritev2(fd, vectors, count, offset, flags); }, [&](char* at, size_t n, size_t done) {
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
  const Reach reach = ReachOf(to, bytes);
  if (reach.bytes == 0) return real_getrandom(to, bytes, flags);
  const auto move = [&](char* at, size_t n, size_t) { return real_getrandom(at, n, flags); };
  if (reach.is_protected) return Straight<Way::kIn>(static_cast<char*>(to), reach, true, move);
  const iovec one = {to, reach.bytes};
  return Copied<Way::kIn>(Vectors(&one, 1), kPiece, true, move);
}

RAMSPAN_API ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long count, const iovec* remote, unsigned long remote_count, unsigned long flags) noexcept {
  const Reach reach = ReachOf(local, count);
  if (reach.bytes == 0) return real_process_vm_readv(pid, local, count, remote, remote_count, flags);
  if (reach.is_protected) {
    const PinnedVectors pinned(local, count);
    return real_process_vm_readv(pid, local, count, remote, remote_count, flags);
  }
  const Vectors all(local, count);
  return Copied<Way::kIn>(all, kRecord, false, [&](char* at, size_t n, size_t) {
    const iovec one = {at, n};
    return real_process_vm_readv(pid, &one, 1, remote, remote_count, flags);
  });
}
RAMSPAN_API ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long count, const iovec* remote, unsigned long remote_count, unsigned long flags) noexcept {
  const Reach reach = ReachOf(local, count);
  if (reach.bytes == 0) return real_process_vm_writev(pid, local, count, remote, remote_count, flags);
  if (reach.is_protected) {
    const PinnedVectors pinned(local, count);
    return real_process_vm_writev(pid, local, count, remote, remote_count, flags);
  }
  const Vectors all(local, count);
  return Copied<Way::kOut>(all, kRecord, false, [&](char* at, size_t n, size_t) {
    const iovec one = {at, n};
    return real_process_vm_writev(pid, &one, 1, remote, remote_count, flags);
  });
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

}  // extern "C"
