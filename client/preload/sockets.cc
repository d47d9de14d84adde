// libramspan-pages: what is sent and received by sockets, as calls.cc says of all. A message is sent and received whole.
//
// Thread-safety, cancellation, signals: as the calls that they replace. Who leaves one by a jump or is cancelled in it loses its buffer.
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "client/preload/beside.h"

using ramspan::preload::AddressBeside;
using ramspan::preload::Beside;
using ramspan::preload::Copied;
using ramspan::preload::IsOfMessages;
using ramspan::preload::IsPlain;
using ramspan::preload::kPiece;
using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::Own;
using ramspan::preload::PinnedVectors;
using ramspan::preload::Reach;
using ramspan::preload::ReachOf;
using ramspan::preload::ReachOfAddress;
using ramspan::preload::Straight;
using ramspan::preload::Vectors;
using ramspan::preload::Way;
using ramspan::preload::WholeMessage;

RS_LIBC(recv, ssize_t (*)(int, void*, size_t, int))
RS_LIBC(send, ssize_t (*)(int, const void*, size_t, int))
RS_LIBC(recvfrom, ssize_t (*)(int, void*, size_t, int, sockaddr*, socklen_t*))
RS_LIBC(sendto, ssize_t (*)(int, const void*, size_t, int, const sockaddr*, socklen_t))
RS_LIBC(recvmsg, ssize_t (*)(int, msghdr*, int))
RS_LIBC(sendmsg, ssize_t (*)(int, const msghdr*, int))
RS_LIBC(recvmmsg, int (*)(int, mmsghdr*, unsigned, int, timespec*))
RS_LIBC(sendmmsg, int (*)(int, mmsghdr*, unsigned, int))

namespace {

ssize_t ReceiveFrom(int fd, void* to, size_t bytes, int flags, sockaddr* address, socklen_t* length) {
  const Reach reach = ReachOf(to, bytes);
  if (reach.bytes == 0) return real_recvfrom(fd, to, bytes, flags, address, length);
  const auto move = [&](char* at, size_t n, size_t) { return real_recvfrom(fd, at, n, flags, address, length); };
  const bool is_message = IsOfMessages(fd);
  if (reach.is_protected && is_message) return WholeMessage(to, bytes, move);
  // What is cut off a stream (MSG_TRUNC) is stored nowhere: what is there stays.
  if (reach.is_protected || ((flags & MSG_TRUNC) != 0 && !is_message)) return Straight<Way::kIn>(static_cast<char*>(to), reach, false, move);
  const iovec one = {to, reach.bytes};
  const bool whole = (flags & MSG_PEEK) != 0 || is_message;
  return Copied<Way::kIn>(Vectors(&one, 1), whole ? reach.bytes : kPiece, !whole && (flags & MSG_WAITALL) != 0, move);
}
ssize_t SendTo(int fd, const void* from, size_t bytes, int flags, const sockaddr* address, socklen_t length) {
  const Reach reach = ReachOf(from, bytes);
  if (reach.bytes != bytes || bytes == 0) return real_sendto(fd, from, bytes, flags, address, length);
  const auto move = [&](const char* at, size_t n, size_t) { return real_sendto(fd, at, n, flags, address, length); };
  if (reach.is_protected && IsOfMessages(fd)) return WholeMessage(const_cast<void*>(from), bytes, move);
  if (reach.is_protected) return Straight<Way::kOut>(static_cast<const char*>(from), reach, true, move);
  const iovec one = {const_cast<void*>(from), bytes};
  return Copied<Way::kOut>(Vectors(&one, 1), IsOfMessages(fd) ? bytes : kPiece, true, move);
}

// The most that is given beside for what comes beside a message: 253 descriptors take 1 KiB, and no other kind has more.
constexpr size_t kControlMost = 65536;

// A message's header, its name, and what goes beside its bytes (descriptors), where the program's own may leave meanwhile.
class MessageBeside {
 public:
  // Of what is received the program may say more room than there is: a name, or what comes beside, may need less.
  MessageBeside(const msghdr& theirs, Way way) : name_there_(There(theirs.msg_name, NameBytes(theirs), way)) {
    own_->header = theirs;
    if (name_there_ > 0) {
      own_->header.msg_name = memcpy(&own_->name, theirs.msg_name, name_there_);
      own_->header.msg_namelen = static_cast<socklen_t>(NameBytes(theirs));
    }
    const size_t bytes = way == Way::kIn ? std::min(theirs.msg_controllen, kControlMost) : theirs.msg_controllen;
    if (bytes > kControlMost) return;
    control_there_ = There(theirs.msg_control, bytes, way);
    if (control_there_ == 0) return;
    control_.emplace(bytes);
    if (control_->begin() == nullptr) return;
    own_->header.msg_control = memcpy(control_->begin(), theirs.msg_control, control_there_);
    own_->header.msg_controllen = bytes;
  }
  static bool IsNeededBy(const msghdr& one) { return NeedsPins(&one) || NeedsPins(one.msg_name) || NeedsPins(one.msg_control); }
  msghdr* header() { return &own_->header; }
  void Answer(msghdr* theirs) {
    const msghdr& header = own_->header;
    if (name_there_ > 0) memcpy(theirs->msg_name, &own_->name, std::min<size_t>(name_there_, header.msg_namelen));
    if (header.msg_control != theirs->msg_control) memcpy(theirs->msg_control, header.msg_control, std::min(control_there_, header.msg_controllen));
    theirs->msg_namelen = header.msg_namelen;
    theirs->msg_controllen = header.msg_controllen;
    theirs->msg_flags = header.msg_flags;
  }

 private:
  static size_t NameBytes(const msghdr& one) { return std::min<size_t>(one.msg_namelen, sizeof(sockaddr_storage)); }  // more the kernel does not look at
  // Bytes of it that can go beside; 0: none, and the kernel is given the program's own.
  static size_t There(const void* begin, size_t bytes, Way way) {
    const Reach reach = ReachOf(begin, bytes);
    return reach.is_protected || (way == Way::kOut && reach.bytes < bytes) ? 0 : reach.bytes;
  }
  struct Kept {
    msghdr header;
    sockaddr_storage name;
  };
  const size_t name_there_;
  size_t control_there_ = 0;
  Own<Kept> own_;
  std::optional<Beside> control_;
};
bool NeedsBeside(const mmsghdr& one) { return MessageBeside::IsNeededBy(one.msg_hdr) || ReachOf(one.msg_hdr.msg_iov, one.msg_hdr.msg_iovlen).bytes > 0; }

// Of a stream of AF_UNIX the kernel gives nothing behind a piece with descriptors, for which there may have been no room. What else comes beside the bytes (times, credentials) comes with each piece.
bool EndsReceiving(int fd, const msghdr& message) {
  bool has_credentials = false;
  for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(const_cast<msghdr*>(&message), one)) {
    if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS) return true;
    has_credentials |= one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_CREDENTIALS;
  }
  if ((message.msg_flags & MSG_CTRUNC) == 0) return false;
  const int error = errno;
  const auto option = [fd](int name) {
    int value = 0;
    socklen_t length = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : 0;
  };
  const bool ends = option(SO_DOMAIN) == AF_UNIX && (has_credentials || option(SO_PASSCRED) == 0);  // it was not the credentials that had no room
  errno = error;
  return ends;
}

ssize_t Receive(int fd, msghdr* message, int flags) {
  const Reach reach = ReachOf(message->msg_iov, message->msg_iovlen);
  if (reach.bytes == 0) return real_recvmsg(fd, message, flags);
  const bool is_message = IsOfMessages(fd);
  if (reach.is_protected || ((flags & MSG_TRUNC) != 0 && !is_message)) {  // as ReceiveFrom
    const PinnedVectors pinned(message->msg_iov, message->msg_iovlen);
    return real_recvmsg(fd, message, flags);
  }
  const Vectors all(message->msg_iov, message->msg_iovlen);
  const bool whole = (flags & MSG_PEEK) != 0 || is_message;
  struct Call {
    msghdr header;
    iovec one;
  };
  Own<Call> call;
  const size_t room = message->msg_controllen;
  std::optional<Beside> later;  // what came beside the pieces of before stays until there is other
  return Copied<Way::kIn>(all, whole ? all.bytes() : kPiece, !whole && (flags & MSG_WAITALL) != 0, [&](char* at, size_t n, size_t done) -> ssize_t {
    if (done > 0 && EndsReceiving(fd, *message)) return 0;
    msghdr& other = call->header;
    call->one = {at, n};
    other = *message;
    other.msg_iov = &call->one;
    other.msg_iovlen = 1;
    other.msg_controllen = room;
    if (done > 0) {
      if (!later) later.emplace(std::min(room, kControlMost));
      other.msg_name = nullptr, other.msg_namelen = 0;
      if (later->begin() != nullptr) other.msg_control = later->begin(), other.msg_controllen = std::min(room, kControlMost);
    }
    const ssize_t got = real_recvmsg(fd, &other, flags);
    if (got < 0 || (got == 0 && done > 0)) return got;
    if (done == 0) message->msg_namelen = other.msg_namelen, message->msg_flags = 0;
    const bool has_control = done == 0 || other.msg_controllen > 0;  // else what came before stays
    if (has_control && other.msg_control != message->msg_control) memcpy(message->msg_control, other.msg_control, other.msg_controllen);
    if (has_control) message->msg_controllen = other.msg_controllen;
    message->msg_flags |= other.msg_flags;
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

// ---- Sockets ----

// Their addresses may leave meanwhile; the library's own do not.
RAMSPAN_API ssize_t recvfrom(int fd, void* to, size_t bytes, int flags, sockaddr* address, socklen_t* length) {
  if (address == nullptr || length == nullptr || (!NeedsPins(address) && !IsPlain(length, sizeof(*length)))) return ReceiveFrom(fd, to, bytes, flags, address, length);
  const socklen_t room = *length;
  const Reach reach = ReachOfAddress(address, room);
  if (reach.is_protected || (reach.bytes == 0 && room > 0)) return ReceiveFrom(fd, to, bytes, flags, address, length);
  Own<AddressBeside> own;
  own->length = static_cast<int>(room) < 0 ? room : std::min<socklen_t>(room, sizeof(own->address));
  const ssize_t got = ReceiveFrom(fd, to, bytes, flags, own->get(), &own->length);
  if (got >= 0) own->Answer(address, static_cast<socklen_t>(reach.bytes), length);
  return got;
}
RAMSPAN_API ssize_t sendto(int fd, const void* from, size_t bytes, int flags, const sockaddr* address, socklen_t length) {
  if (length > sizeof(sockaddr_storage) || !IsPlain(address, length)) return SendTo(fd, from, bytes, flags, address, length);
  Own<sockaddr_storage> own;
  memcpy(own.get(), address, length);
  return SendTo(fd, from, bytes, flags, reinterpret_cast<const sockaddr*>(own.get()), length);
}
RAMSPAN_API ssize_t recv(int fd, void* to, size_t bytes, int flags) {
  if (!NeedsPins(to)) return real_recv(fd, to, bytes, flags);
  return ReceiveFrom(fd, to, bytes, flags, nullptr, nullptr);
}
RAMSPAN_API ssize_t send(int fd, const void* from, size_t bytes, int flags) {
  if (!NeedsPins(from)) return real_send(fd, from, bytes, flags);
  return SendTo(fd, from, bytes, flags, nullptr, 0);
}
RAMSPAN_API ssize_t recvmsg(int fd, msghdr* message, int flags) {
  if (message == nullptr) return real_recvmsg(fd, message, flags);
  if (!MessageBeside::IsNeededBy(*message)) return Receive(fd, message, flags);
  MessageBeside own(*message, Way::kIn);
  const ssize_t got = Receive(fd, own.header(), flags);
  if (got >= 0) own.Answer(message);
  return got;
}
RAMSPAN_API ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (message == nullptr) return real_sendmsg(fd, message, flags);
  if (!MessageBeside::IsNeededBy(*message)) return Send(fd, message, flags);
  MessageBeside own(*message, Way::kOut);
  return Send(fd, own.header(), flags);
}
// One after the other, where one of them needs it. As the kernel looks at the time: behind each message.
RAMSPAN_API int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  constexpr long kSecond = 1'000'000'000;
  if (messages == nullptr || count == 0 || (!NeedsPins(messages) && !NeedsPins(timeout) && !std::any_of(messages, messages + count, NeedsBeside))) return real_recvmmsg(fd, messages, count, flags, timeout);
  if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec >= kSecond)) return errno = EINVAL, -1;
  timespec begin = {};
  if (timeout != nullptr) clock_gettime(CLOCK_MONOTONIC, &begin);
  const timespec wanted = timeout != nullptr ? *timeout : timespec{};
  unsigned got = 0;
  for (bool goes_on = true; got < count && goes_on; ++got) {
    const int how = (flags & ~MSG_WAITFORONE) | (got > 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0);
    const ssize_t bytes = recvmsg(fd, &messages[got].msg_hdr, how);
    if (bytes < 0) return got > 0 ? static_cast<int>(got) : -1;
    messages[got].msg_len = static_cast<unsigned>(bytes);
    if (timeout == nullptr) continue;
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    timespec left = {wanted.tv_sec - (now.tv_sec - begin.tv_sec), wanted.tv_nsec - (now.tv_nsec - begin.tv_nsec)};
    for (; left.tv_nsec < 0; left.tv_nsec += kSecond) --left.tv_sec;
    for (; left.tv_nsec >= kSecond; left.tv_nsec -= kSecond) ++left.tv_sec;
    if (left.tv_sec < 0) left = {};
    *timeout = left;
    goes_on = left.tv_sec > 0 || left.tv_nsec > 0;
  }
  return static_cast<int>(got);
}
RAMSPAN_API int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  count = std::min<unsigned>(count, UIO_MAXIOV);  // as the kernel
  if (messages == nullptr || count == 0 || (!NeedsPins(messages) && !std::any_of(messages, messages + count, NeedsBeside))) return real_sendmmsg(fd, messages, count, flags);
  unsigned sent = 0;
  for (; sent < count; ++sent) {
    const ssize_t bytes = sendmsg(fd, &messages[sent].msg_hdr, flags);
    if (bytes < 0) return sent > 0 ? static_cast<int>(sent) : -1;
    messages[sent].msg_len = static_cast<unsigned>(bytes);
  }
  return static_cast<int>(sent);
}

// ---- What _FORTIFY_SOURCE makes of them ----

RAMSPAN_API ssize_t __recv_chk(int fd, void* to, size_t bytes, size_t room, int flags) {
  if (bytes > room) Overflow();
  return recv(fd, to, bytes, flags);
}
RAMSPAN_API ssize_t __recvfrom_chk(int fd, void* to, size_t bytes, size_t room, int flags, sockaddr* address, socklen_t* length) {
  if (bytes > room) Overflow();
  return recvfrom(fd, to, bytes, flags, address, length);
}

}  // extern "C"
