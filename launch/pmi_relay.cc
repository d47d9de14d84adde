#include "launch/pmi_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ramspan {
namespace {

// PMI messages are short and each side waits for the other's answer, so that a blocking write cannot dam up.
bool WriteAll(int fd, const char* bytes, size_t length) {
  while (length > 0) {
    const ssize_t written = write(fd, bytes, length);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, 1000);
      continue;
    }
    if (written <= 0) return false;
    bytes += written;
    length -= static_cast<size_t>(written);
  }
  return true;
}

// As recv; and the process that sent it, where the kernel says so.
ssize_t ReceiveFrom(int fd, char* bytes, size_t size, pid_t& sender) {
  iovec part{bytes, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* header = length > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS) return length;
  ucred credentials{};
  std::memcpy(&credentials, CMSG_DATA(header), sizeof credentials);
  if (credentials.pid > 0) sender = credentials.pid;
  return length;
}

}  // namespace

void PmiScanner::Feed(std::string_view bytes) {
  constexpr size_t kLongestCommand = 64;
  const std::string text = tail_ + std::string(bytes);
  init_ = init_ || text.find("cmd=init") != std::string::npos;
  finalize_ = finalize_ || text.find("cmd=finalize") != std::string::npos;
  const size_t abort = text.find("cmd=abort");
  const size_t code = abort == std::string::npos ? abort : text.find("exitcode=", abort);
  if (code != std::string::npos) abort_code_ = std::atoi(text.c_str() + code + std::strlen("exitcode="));
  tail_ = text.substr(text.size() - std::min(text.size(), kLongestCommand));
}

std::unique_ptr<PmiRelay> PmiRelay::FromEnvironment(EventLoop& loop, Handlers handlers) {
  const char* text = std::getenv("PMI_FD");
  const int fd = text == nullptr ? -1 : std::atoi(text);
  int pair[2];
  if (fd <= 2 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return nullptr;
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return nullptr;
  const int yes = 1;
  setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes);  // the kernel tells who speaks
  fcntl(pair[0], F_SETFD, FD_CLOEXEC);
  std::unique_ptr<PmiRelay> relay(new PmiRelay(loop, std::move(handlers)));
  relay->hydra_ = UniqueFd(fd);
  relay->ours_ = UniqueFd(pair[0]);
  relay->programs_end_ = UniqueFd(pair[1]);
  setenv("PMI_FD", std::to_string(pair[1]).c_str(), 1);
  PmiRelay* self = relay.get();
  loop.Watch(fd, POLLIN, [self](short) { self->ToProgram(); });
  loop.Watch(pair[0], POLLIN, [self](short) { self->ToHydra(); });
  return relay;
}

PmiRelay::~PmiRelay() {
  loop_.Unwatch(hydra_.get());
  loop_.Unwatch(ours_.get());
}

bool PmiRelay::ToHydra() {
  char bytes[16384];
  pid_t speaker = speaker_;
  const ssize_t length = ReceiveFrom(ours_.get(), bytes, sizeof bytes, speaker);
  if (length < 0) return false;
  if (length == 0) {
    loop_.Unwatch(ours_.get());  // hydra learns it when the keeper ends
    return false;
  }
  if (speaker != speaker_) handlers_.speaker(speaker_ = speaker);
  scanner_.Feed({bytes, static_cast<size_t>(length)});
  handlers_.news();
  return WriteAll(hydra_.get(), bytes, static_cast<size_t>(length));
}

void PmiRelay::ToProgram() {
  char bytes[16384];
  const ssize_t length = read(hydra_.get(), bytes, sizeof bytes);
  if (length < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (length > 0 && WriteAll(ours_.get(), bytes, static_cast<size_t>(length))) return;
  loop_.Unwatch(hydra_.get());
  if (length <= 0) handlers_.proxy_gone();
}

void PmiRelay::Drain() {
  while (ToHydra()) {
  }
}

void PmiRelay::FinalizeForProgram() {
  constexpr std::string_view kFinalize = "cmd=finalize\n";
  if (!scanner_.init() || scanner_.finalize()) return;
  loop_.Unwatch(hydra_.get());
  if (!WriteAll(hydra_.get(), kFinalize.data(), kFinalize.size())) return;
  const int64_t until_ns = RunningNs() + 2'000'000'000;
  std::string answer;
  while (answer.find("finalize_ack") == std::string::npos && RunningNs() < until_ns) {
    pollfd ready{hydra_.get(), POLLIN, 0};
    char bytes[1024];
    if (poll(&ready, 1, 100) <= 0) continue;
    const ssize_t length = read(hydra_.get(), bytes, sizeof bytes);
    if (length <= 0) return;
    answer.append(bytes, static_cast<size_t>(length));
  }
}

}  // namespace ramspan
