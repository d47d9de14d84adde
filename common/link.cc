#include "common/link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/bytes.h"

namespace ramspan {
namespace {

// ETOOMANYREFS: more descriptors are under way than this user may have; they become fewer as others take theirs.
bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ETOOMANYREFS; }

// Why a link is closed. All of these need no heap: what was wrong has been taken from the socket by then, so without them nobody would
// see it again.
Status SocketFailed(int error) {
  return WithWords(StatusCode::kUnavailable, [&] { return std::string(std::strerror(error)); }, StaticText("its socket fails"));
}
Status BreaksProtocol(StaticText how) { return {StatusCode::kFailedPrecondition, how}; }
Status BreaksProtocol(const Status& how) {
  return WithWords(StatusCode::kFailedPrecondition, [&] { return how.message(); }, StaticText("it sends what cannot be"));
}

}  // namespace

Link::Link(Descriptor socket, Handshake::Role role, const Secret& secret)
    : socket_(std::move(socket)), role_(role), handshake_(std::make_unique<Handshake>(role, secret)) {
  descriptors_.reserve(2 * kDescriptorsMax);  // as many as may wait, and as many as may come in one message
}

void Link::Close(Status why) {
  if (is_closed()) return;
  closed_ = std::move(why);
  socket_.Close();
  unsent_.clear();
  descriptors_.clear();
}

void Link::Progress() {
  Flush();
  if (handshake_) Greet();
  while (!is_closed() && Read()) {
    if (handshake_) Greet();
  }
}

// True: something has come, and there may be more.
bool Link::Read() {
  if (input_begin_ > 0) {
    std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
    input_end_ -= std::exchange(input_begin_, 0);
  }
  if (input_end_ == input_.size()) return false;  // Next makes room
  iovec part{input_.data() + input_end_, input_.size() - input_end_};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kDescriptorsMax)> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (role_ != Handshake::Role::kServer && trusted_) {  // others' descriptors are dropped by the kernel
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  const ssize_t n = recvmsg(socket_.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && WouldBlock(errno)) return false;
  if (n <= 0) {
    const Status reason = n == 0 ? Status(StatusCode::kUnavailable, StaticText("the connection was closed")) : SocketFailed(errno);
    ended_ = n == 0 && trusted_;
    if (ended_ && !input().empty()) return false;  // what came before the end is still taken; then Next closes
    Close(trusted_ ? reason : Unavailable(reason.message() + " before both sides had proved to know the secret (the same key file?)"));
    return false;
  }
  ++arrivals_;
  input_end_ += static_cast<size_t>(n);
  TakeDescriptors(&message);
  return true;
}

void Link::TakeDescriptors(void* raw) {
  auto* message = static_cast<msghdr*>(raw);
  if (message->msg_control == nullptr) return;
  const size_t before = descriptors_.size();
  for (cmsghdr* one = CMSG_FIRSTHDR(message); one != nullptr; one = CMSG_NXTHDR(message, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(one) + i * sizeof number, sizeof number);
      descriptors_.emplace_back(number);
    }
  }
  // One comes at a time (Write), so when the kernel had to drop some and none came, it was one: this process has no number
  // left for it. Its frame gets an empty one, and the next frames get their own.
  const bool dropped = (message->msg_flags & MSG_CTRUNC) != 0;
  if (dropped && descriptors_.size() == before) descriptors_.emplace_back();
  else if (dropped || descriptors_.size() > before + 1) return Close(BreaksProtocol(StaticText("it sends more descriptors than leases")));
  if (descriptors_.size() > kDescriptorsMax) Close(BreaksProtocol(StaticText("it sends more descriptors than leases")));
}

void Link::Greet() {
  input_begin_ += handshake_->Take(input());
  if (const std::span<const std::byte> out = handshake_->Give(); !out.empty() && !SendBytes(out, {})) return;
  if (handshake_->state() == Handshake::State::kFailed) return Close(handshake_->failure());
  if (handshake_->state() != Handshake::State::kTrusted) return;
  keys_ = handshake_->keys();
  peer_role_ = handshake_->peer_role();
  handshake_.reset();
  trusted_ = true;
  BeginSealing();
}

void Link::BeginSealing() {
  const bool is_client = role_ != Handshake::Role::kServer;
  std::array<std::byte, kHeaderBytes> header;
  crypto_secretstream_xchacha20poly1305_init_push(&seal_, Raw(header.data()), Raw((is_client ? keys_.to_server : keys_.to_client).data()));
  SendBytes(header, {});
}

bool Link::TakePeersHeader() {
  if (peers_header_known_) return true;
  if (input().size() < kHeaderBytes) return false;
  const bool is_client = role_ != Handshake::Role::kServer;
  const int error = crypto_secretstream_xchacha20poly1305_init_pull(
      &unseal_, Raw(input().data()), Raw((is_client ? keys_.to_client : keys_.to_server).data()));
  input_begin_ += kHeaderBytes;
  sodium_memzero(&keys_, sizeof keys_);
  if (error != 0) Close(BreaksProtocol(StaticText("the seal does not begin as it should")));
  return peers_header_known_ = error == 0;
}

bool Link::Next(LinkFrame* frame, Descriptor* descriptor) {
  if (TakeNext(frame, descriptor)) return true;
  if (ended_ && !is_closed()) Close(Status(StatusCode::kUnavailable, StaticText("the connection was closed")));
  return false;
}

bool Link::TakeNext(LinkFrame* frame, Descriptor* descriptor) {
  if (!is_trusted()) return false;
  if (input().size() < 2 || input().size() < 2 + size_t{GetLittle<uint16_t>(input(), 0)}) Read();
  if (is_closed() || !TakePeersHeader() || input().size() < 2) return false;
  const size_t sealed = GetLittle<uint16_t>(input(), 0);
  if (sealed <= kSealBytes || sealed > kSealedBytesMax) {
    Close(WithWords(StatusCode::kFailedPrecondition, [&] { return "it sends a frame of " + std::to_string(sealed) + " bytes"; }, StaticText("it sends a frame of a size that none has")));
    return false;
  }
  if (input().size() < 2 + sealed) return false;
  FrameBuffer plain;
  unsigned long long length = 0;
  unsigned char tag = 0;
  const int error = crypto_secretstream_xchacha20poly1305_pull(&unseal_, Raw(plain.data()), &length, &tag, Raw(input().data() + 2), sealed, nullptr, 0);
  input_begin_ += 2 + sealed;
  Status decoded = error == 0 ? WithinHeap([&] { return DecodeFrame(std::span(plain).first(length), frame); }, OutOfHeap())
                              : BreaksProtocol(StaticText("a broken seal: somebody else writes into the connection"));
  if (decoded.ok() && frame->access.has_descriptor && descriptors_.empty()) decoded = BreaksProtocol(StaticText("a frame without its descriptor"));
  if (!decoded.ok()) {
    Close(decoded.code() == StatusCode::kFailedPrecondition ? std::move(decoded) : BreaksProtocol(decoded));
    return false;
  }
  if (frame->access.has_descriptor) {
    *descriptor = std::move(descriptors_.front());
    descriptors_.erase(descriptors_.begin());
  }
  return true;
}

void Link::PrepareToSend() {
  if (spare_.empty() && !is_closed()) spare_.emplace_back();
}

bool Link::Send(const LinkFrame& frame, int descriptor) {
  if (!is_trusted()) return false;
  PrepareToSend();
  // In case that the socket is full. Now, because a frame that is sealed has to be sent.
  Descriptor kept(descriptor >= 0 ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0) : -1);
  if (descriptor >= 0 && !kept) return false;
  FrameBuffer plain;
  const size_t length = EncodeFrame(frame, &plain);
  std::array<std::byte, 2 + kSealedBytesMax> sealed;
  crypto_secretstream_xchacha20poly1305_push(&seal_, Raw(sealed.data() + 2), nullptr, Raw(plain.data()), length, nullptr, 0,
                                             crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
  PutLittle(sealed, 0, static_cast<uint16_t>(length + kSealBytes));
  return SendBytes(std::span(sealed).first(2 + length + kSealBytes), std::move(kept));
}

ssize_t Link::Write(std::span<const std::byte> bytes, int descriptor) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return sendmsg(socket_.number(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Now if the socket takes it; else it is kept.
bool Link::SendBytes(std::span<const std::byte> bytes, Descriptor descriptor) {
  if (is_closed()) return false;
  PrepareToSend();
  size_t sent = 0;
  if (unsent_.empty()) {
    const ssize_t n = Write(bytes, descriptor.number());
    if (n < 0 && !WouldBlock(errno)) {
      // Who hangs up before the handshake is over may have said why. Read hears that, or finds the end.
      if (handshake_ != nullptr && (errno == EPIPE || errno == ECONNRESET)) return true;
      Close(SocketFailed(errno));
      return false;
    }
    if (n > 0) {
      sent = static_cast<size_t>(n);
      descriptor.Close();
    }
  }
  if (sent == bytes.size()) return true;
  if (unsent_.size() == kUnsentFramesMax) {
    Close(Status(StatusCode::kUnavailable, StaticText("it does not take what is sent to it")));
    return false;
  }
  unsent_.splice(unsent_.end(), spare_, spare_.begin());
  Unsent& rest = unsent_.back();
  rest.begin = 0;
  std::copy(bytes.begin() + static_cast<ptrdiff_t>(sent), bytes.end(), rest.bytes.begin());
  rest.end = bytes.size() - sent;
  rest.descriptor = std::move(descriptor);
  return true;
}

void Link::Flush() {
  while (!unsent_.empty() && !is_closed()) {
    Unsent& first = unsent_.front();
    const ssize_t n = Write(std::span(first.bytes).subspan(first.begin, first.end - first.begin), first.descriptor.number());
    if (n < 0 && WouldBlock(errno)) return;
    if (n < 0) return Close(SocketFailed(errno));
    first.descriptor.Close();
    first.begin += static_cast<size_t>(n);
    if (first.begin != first.end) continue;
    if (spare_.empty()) {
      spare_.splice(spare_.end(), unsent_, unsent_.begin());
    } else {
      unsent_.pop_front();
    }
  }
}

}  // namespace ramspan
