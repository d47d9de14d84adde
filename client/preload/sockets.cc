// libramspan-pages: what is sent and received by sockets, as calls.cc says of all. A message is sent and received whole.
//
// Thread-safety, cancellation, signals: as the calls that they replace. Who leaves one by a jump or is cancelled in it loses its buffer.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "client/preload/beside.h"

using ramspan::preload::Beside;
using ramspan::preload::Copied;
using ramspan::preload::IsOfMessages;
using ramspan::preload::IsPlain;
using ramspan::preload::kPiece;
using ramspan::preload::NeedsPins;
using ramspan::preload::Overflow;
using ramspan::preload::PinnedVectors;
using ramspan::preload::Reach;
using ramspan::preload::ReachOf;
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
