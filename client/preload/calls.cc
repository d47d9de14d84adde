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
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <optional>

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

// Buffers that are always there.
constexpr size_t kReady = 8, kReadyBytes = size_t{64} << 10;
alignas(4096) char ready[kReady][kReadyBytes];
std::atomic<unsigned> ready_in_use{0};  // a bit for each

}  // namespace

// Acquire, release: who used it before has done with its bytes.
Beside::Beside(size_t bytes) {
  if (bytes <= kReadyBytes) {
    unsigned in_use = ready_in_use.load(std::memory_order_relaxed);
    while (in_use != (1U << kReady) - 1) {
      const int free = std::countr_one(in_use);
      if (!ready_in_use.compare_exchange_weak(in_use, in_use | 1U << free, std::memory_order_acquire, std::memory_order_relaxed)) continue;
      begin_ = ready[free];
      return;
    }
  }
  const long begin = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (bytes <= kPiece ? MAP_POPULATE : 0), -1, 0);
  if (begin == -1) return;
  begin_ = reinterpret_cast<char*>(begin);
  mapped_ = bytes;
}

Beside::~Beside() {
  const int error = errno;
  if (mapped_ > 0) {
    syscall(SYS_munmap, begin_, mapped_);
  } else if (begin_ != nullptr) {
    ready_in_use.fetch_and(~(1U << static_cast<size_t>(begin_ - ready[0]) / kReadyBytes), std::memory_order_release);
  }
  errno = error;
}

void Overflow() {
  static constexpr char kText[] = "*** buffer overflow detected ***: terminated\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) std::abort();
  std::abort();
}

}  // namespace ramspan::preload

using ramspan::preload::Copied;
using ramspan::preload::IsHome;
using ramspan::preload::IsOfMessages;
using ramspan::preload::Beside;
using ramspan::preload::IsPlain;
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

// ---- Sockets ----

RAMSPAN_API ssize_t recvfrom(int fd, void* to, size_t bytes, int flags, sockaddr* address, socklen_t* length) {
  if (IsPlain(length, sizeof(*length)) || (length != nullptr && IsPlain(address, *length))) {
    sockaddr_storage own = {};
    const socklen_t room = *length;
    socklen_t given = static_cast<int>(room) < 0 ? room : std::min<socklen_t>(room, sizeof(own));
    const ssize_t got = recvfrom(fd, to, bytes, flags, reinterpret_cast<sockaddr*>(&own), &given);
    if (got >= 0 && address != nullptr) memcpy(address, &own, std::min({room, given, static_cast<socklen_t>(sizeof(own))}));
    if (got >= 0) *length = given;
    return got;
  }
  const Reach reach = ReachOf(to, bytes);
  if (reach.bytes == 0) return real_recvfrom(fd, to, bytes, flags, address, length);
  const auto move = [&](char* at, size_t n, size_t) { return real_recvfrom(fd, at, n, flags, address, length); };
  if (reach.is_protected && IsOfMessages(fd)) return WholeMessage(to, bytes, move);
  if (reach.is_protected) return Straight<Way::kIn>(static_cast<char*>(to), reach, false, move);
  const iovec one = {to, reach.bytes};
  const bool whole = (flags & MSG_PEEK) != 0 || IsOfMessages(fd);
  return Copied<Way::kIn>(Vectors(&one, 1), whole ? reach.bytes : kPiece, !whole && (flags & MSG_WAITALL) != 0, move);
}
RAMSPAN_API ssize_t sendto(int fd, const void* from, size_t bytes, int flags, const sockaddr* address, socklen_t length) {
  if (sockaddr_storage own; length <= sizeof(own) && IsPlain(address, length)) {
    memcpy(&own, address, length);
    return sendto(fd, from, bytes, flags, reinterpret_cast<sockaddr*>(&own), length);
  }
  const Reach reach = ReachOf(from, bytes);
  if (reach.bytes != bytes || bytes == 0) return real_sendto(fd, from, bytes, flags, address, length);
  const auto move = [&](const char* at, size_t n, size_t) { return real_sendto(fd, at, n, flags, address, length); };
  if (reach.is_protected && IsOfMessages(fd)) return WholeMessage(const_cast<void*>(from), bytes, move);
  if (reach.is_protected) return Straight<Way::kOut>(static_cast<const char*>(from), reach, true, move);
  const iovec one = {const_cast<void*>(from), bytes};
  return Copied<Way::kOut>(Vectors(&one, 1), IsOfMessages(fd) ? bytes : kPiece, true, move);
}
RAMSPAN_API ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  if (!NeedsPins(to)) return real_recv(fd, to, bytes, flags);
  return recvfrom(fd, to, bytes, flags, nullptr, nullptr);
}
RAMSPAN_API ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  if (!NeedsPins(from)) return real_send(fd, from, bytes, flags);
  return sendto(fd, from, bytes, flags, nullptr, 0);
}
}  // extern "C"
namespace {

// A message's name, and what goes beside its bytes (descriptors), where the program's own may leave meanwhile.
class MessageBeside {
 public:
  explicit MessageBeside(const msghdr& theirs) : header_(theirs), has_name_(theirs.msg_namelen <= sizeof(name_) && IsPlain(theirs.msg_name, theirs.msg_namelen)) {
    if (has_name_) header_.msg_name = memcpy(&name_, theirs.msg_name, theirs.msg_namelen);
    if (theirs.msg_controllen > kControlMost || !IsPlain(theirs.msg_control, theirs.msg_controllen)) return;
    control_.emplace(theirs.msg_controllen);
    if (control_->begin() != nullptr) header_.msg_control = memcpy(control_->begin(), theirs.msg_control, theirs.msg_controllen);
  }
  static bool IsNeededBy(const msghdr& one) { return NeedsPins(&one) || NeedsPins(one.msg_name) || NeedsPins(one.msg_control); }
  msghdr* header() { return &header_; }
  void Answer(msghdr* theirs) const {
    if (has_name_) memcpy(theirs->msg_name, &name_, std::min<size_t>(theirs->msg_namelen, sizeof(name_)));
    if (header_.msg_control != theirs->msg_control) memcpy(theirs->msg_control, header_.msg_control, std::min(theirs->msg_controllen, header_.msg_controllen));
    theirs->msg_namelen = header_.msg_namelen;
    theirs->msg_controllen = header_.msg_controllen;
    theirs->msg_flags = header_.msg_flags;
  }

 private:
  static constexpr size_t kControlMost = 65536;
  msghdr header_;
  const bool has_name_;
  sockaddr_storage name_;
  std::optional<Beside> control_;
};
bool NeedsBeside(const mmsghdr& one) { return MessageBeside::IsNeededBy(one.msg_hdr) || ReachOf(one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen).bytes > 0; }

ssize_t Receive(int fd, msghdr* message, int flags) {
  const Reach reach = ReachOf(message->msg_iov, message->msg_iovlen);
  if (reach.bytes == 0) return real_recvmsg(fd, message, flags);
  if (reach.is_protected) {
    const PinnedVectors pinned(message->msg_iov, message->msg_iovlen);
    return real_recvmsg(fd, message, flags);
  }
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
ssize_t Send(int fd, const msghdr* message, int flags) {
  const Reach reach = ReachOf(message->msg_iov, message->msg_iovlen);
  if (reach.bytes == 0) return real_sendmsg(fd, message, flags);
  if (reach.is_protected) {
    const PinnedVectors pinned(message->msg_iov, message->msg_iovlen);
    return real_sendmsg(fd, message, flags);
  }
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
}  // namespace
extern "C" {

RAMSPAN_API ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (message == nullptr) return real_recvmsg(fd, message, flags);
  if (!MessageBeside::IsNeededBy(*message)) return Receive(fd, message, flags);
  MessageBeside own(*message);
  const ssize_t got = Receive(fd, own.header(), flags);
  if (got >= 0) own.Answer(message);
  return got;
}
RAMSPAN_API ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (message == nullptr) return real_sendmsg(fd, message, flags);
  if (!MessageBeside::IsNeededBy(*message)) return Send(fd, message, flags);
  MessageBeside own(*message);
  return Send(fd, own.header(), flags);
}
// One after the other, where one of them needs it.
RAMSPAN_API int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  if (messages == nullptr || timeout != nullptr || (!NeedsPins(messages) && !std::any_of(messages, messages + count, NeedsBeside))) return real_recvmmsg(fd, messages, count, flags, timeout);
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
  if (messages == nullptr || (!NeedsPins(messages) && !std::any_of(messages, messages + count, NeedsBeside))) return real_sendmmsg(fd, messages, count, flags);
  unsigned sent = 0;
  for (; sent < count; ++sent) {
    const ssize_t bytes = sendmsg(fd, &messages[sent].msg_hdr, flags);
    if (bytes < 0) return sent > 0 ? static_cast<int>(sent) : -1;
    messages[sent].msg_len = static_cast<unsigned>(bytes);
  }
  return static_cast<int>(sent);
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
RAMSPAN_API ssize_t __recv_chk(int fd, void* to, size_t bytes, size_t room, int flags) {
  if (bytes > room) Overflow();
  return recv(fd, to, bytes, flags);
}
RAMSPAN_API ssize_t __recvfrom_chk(int fd, void* to, size_t bytes, size_t room, int flags, sockaddr* address, socklen_t* length) {
  if (bytes > room) Overflow();
  return recvfrom(fd, to, bytes, flags, address, length);
}

}  // extern "C"
