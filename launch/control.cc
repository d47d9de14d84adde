#include "launch/control.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

namespace ramspan {
namespace {

constexpr size_t kLineMax = 1024;
constexpr size_t kStrangersMax = 64;  // connections without a hello, beyond one for each rank that is still to come
constexpr int64_t kHelloMayTake = 10'000'000'000;  // a keeper says it at once; this is for a machine under heavy load
constexpr int kGreetings = 20;                     // a keeper's attempts, when strangers fill all places
constexpr std::chrono::milliseconds kGreetAgain{50};
constexpr int64_t kLookEveryMs = 100;              // at the clock, while waiting for a line
constexpr int kGoMayTakeMs = 60000;  // a launcher that thousands of keepers ask at once

Result<sockaddr_un> UnixAddress(const std::string& folder) {
  const std::string path = folder + "/" + kControlSocket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return InvalidArgument(path + " is too long for a socket; set TMPDIR");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Takes as long for a wrong text as for the right one, so that its time does not tell how much of it was right.
bool IsSecret(const std::string& text, const std::string& secret) {
  if (text.size() != secret.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < text.size(); ++i) differs |= static_cast<unsigned char>(text[i] ^ secret[i]);
  return differs == 0;
}

// A host that has lost its power says nothing, and hours may pass between two lines. Probes also keep firewalls from forgetting the connection. Eleven minutes of
// them in vain end it: a network that is cut for less ends no job.
void Probe(int socket) {
  const auto set = [socket](int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof value); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 30);
  set(IPPROTO_TCP, TCP_KEEPCNT, 20);
}

UniqueFd ConnectTcp(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return UniqueFd();
  UniqueFd result;
  const timeval patience{5, 0};
  for (const addrinfo* one = found; one != nullptr && !result; one = one->ai_next) {
    UniqueFd fd(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
    if (!fd) continue;
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);  // bounds connect() too
    if (connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0) result = std::move(fd);
  }
  freeaddrinfo(found);
  if (result) Probe(result.get());
  return result;
}

}  // namespace

bool LineReader::ReadFrom(int fd) {
  char bytes[4096];
  const ssize_t length = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (length < 0) return errno == EAGAIN || errno == EINTR;
  if (length == 0) return false;
  buffer_.append(bytes, static_cast<size_t>(length));
  return buffer_.size() - (buffer_.rfind('\n') + 1) <= kLineMax;
}

std::optional<std::string> LineReader::Next() {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

void SendLine(int fd, const std::string& line, int passed) {
  if (fd < 0) return;
  std::string bytes = line + "\n";
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
  }
  // A peer that has gone is noticed by reading.
  (void)!sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

std::optional<std::string> ReceiveLine(int fd, int timeout_ms, UniqueFd& passed) {
  std::string line;
  const int64_t until_ns = RunningNs() + int64_t{timeout_ms} * 1'000'000;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};
    const int64_t left_ms = std::max<int64_t>(0, (until_ns - RunningNs()) / 1'000'000);
    const int came = poll(&ready, 1, static_cast<int>(std::min<int64_t>(left_ms, kLookEveryMs)));
    if (came == 0 && left_ms > 0) continue;
    if (came <= 0) return std::nullopt;
    // Byte by byte: what follows the line belongs to the event loop.
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1) return std::nullopt;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(header), sizeof received);
      passed = UniqueFd(received);
    }
    if (byte == '\n') return line;
    line += byte;
    if (line.size() > kLineMax) return std::nullopt;
  }
}

std::string EndLine(const RankEnd& end) {
  return "end " + std::to_string(end.code) + " " + std::to_string(end.signal) + " " + (end.left_mpi ? "1" : "0") + " " +
         std::to_string(end.at_ns) + (end.ordered ? " 1" : " 0");
}

std::optional<RankEnd> ParseEndLine(const std::string& line) {
  std::istringstream words(line);
  std::string kind;
  RankEnd end;
  if (!(words >> kind >> end.code >> end.signal >> end.left_mpi >> end.at_ns >> end.ordered) || kind != "end") return std::nullopt;
  if (end.code < 0 || end.code > 255 || end.signal < 0 || end.signal > 127) return std::nullopt;
  return end;
}

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(EventLoop& loop, const std::string& folder, bool by_tcp,
                                                             int ranks, Handlers handlers) {
  std::unique_ptr<ControlServer> server(new ControlServer(loop, ranks, std::move(handlers)));
  if (Status status = server->ListenUnix(folder); !status.ok()) return status;
  if (!by_tcp) return server;
  if (Status status = server->ListenTcp(); !status.ok()) return status;
  return server;
}

ControlServer::~ControlServer() {
  for (const auto& [fd, connection] : connections_) loop_.Unwatch(fd);
  if (unix_) loop_.Unwatch(unix_.get());
  if (tcp_) loop_.Unwatch(tcp_.get());
}

Status ControlServer::ListenUnix(const std::string& folder) {
  Result<sockaddr_un> address = UnixAddress(folder);
  if (!address.ok()) return address.status();
  unix_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!unix_ || bind(unix_.get(), reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0 ||
      listen(unix_.get(), SOMAXCONN) != 0) {
    return Unavailable("cannot listen in " + folder + ": " + std::strerror(errno));
  }
  loop_.Watch(unix_.get(), POLLIN, [this](short) { Accept(unix_.get(), false); });
  return {};
}

Status ControlServer::ListenTcp() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  char host[HOST_NAME_MAX + 1] = "";
  tcp_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!tcp_ || bind(tcp_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(tcp_.get(), SOMAXCONN) != 0 ||
      getsockname(tcp_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      gethostname(host, sizeof host) != 0) {
    return Unavailable(std::string("cannot listen for the ranks of other hosts: ") + std::strerror(errno));
  }
  secret_ = RandomSecret();
  address_ = std::string(host) + ":" + std::to_string(ntohs(address.sin_port)) + ":" + secret_;
  loop_.Watch(tcp_.get(), POLLIN, [this](short) { Accept(tcp_.get(), true); });
  return {};
}

void ControlServer::Accept(int listener, bool needs_secret) {
  UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  // Without a free descriptor the connection would wait in the kernel's queue, and poll would report it for ever.
  if (!fd && (errno == EMFILE || errno == ENFILE)) return MakeRoomForStranger();
  if (!fd) return;
  const size_t awaited = static_cast<size_t>(ranks_) - rank_of_.size();
  if (needs_secret && strangers() >= awaited + kStrangersMax) MakeRoomForStranger();
  const int number = fd.get();
  if (needs_secret) Probe(number);
  Connection connection;
  connection.fd = std::move(fd);
  connection.needs_secret = needs_secret;
  connection.since_ns = RunningNs();
  connections_.emplace(number, std::move(connection));
  loop_.Watch(number, POLLIN, [this, number](short) { Serve(number); });
}

// The oldest stranger goes, as it had the most time to say hello. Who came through the private folder is none.
void ControlServer::MakeRoomForStranger() {
  auto oldest = connections_.end();
  for (auto one = connections_.begin(); one != connections_.end(); ++one) {
    if (one->second.rank >= 0 || !one->second.needs_secret) continue;
    if (oldest == connections_.end() || one->second.since_ns < oldest->second.since_ns) oldest = one;
  }
  if (oldest != connections_.end()) Close(oldest->first);
}

void ControlServer::OnTick(int64_t now_ns) {
  std::vector<int> late;
  for (const auto& [fd, one] : connections_) {
    if (one.rank < 0 && one.needs_secret && now_ns - one.since_ns > kHelloMayTake) late.push_back(fd);
  }
  for (int fd : late) Close(fd);
}

void ControlServer::Serve(int fd) {
  Connection& connection = connections_.at(fd);
  const bool open = connection.lines.ReadFrom(fd);
  bool sane = true;
  while (sane) {
    const std::optional<std::string> line = connection.lines.Next();
    if (!line) break;
    sane = Understand(connection, *line);
  }
  if (!open || !sane) Close(fd);
}

bool ControlServer::Understand(Connection& connection, const std::string& line) {
  if (connection.rank < 0) return Welcome(connection, line);
  if (line == "init") {
    handlers_.init(connection.rank);
    return true;
  }
  if (line.rfind("pid ", 0) == 0) {
    handlers_.pid(connection.rank, std::atol(line.c_str() + std::strlen("pid ")));
    return true;
  }
  const std::optional<RankEnd> end = ParseEndLine(line);
  if (end) handlers_.end(connection.rank, *end);
  return end.has_value();
}

bool ControlServer::Welcome(Connection& connection, const std::string& line) {
  std::istringstream words(line);
  std::string kind, secret, host;
  int rank = -1;
  if (!(words >> kind >> secret >> rank >> host) || kind != "hello") return false;
  if (connection.needs_secret && !IsSecret(secret, secret_)) return false;
  if (rank < 0 || rank >= ranks_ || rank_of_.count(rank) != 0) return false;
  connection.rank = rank;
  rank_of_[rank] = connection.fd.get();
  handlers_.hello(rank, host, !connection.needs_secret);
  return true;
}

void ControlServer::Close(int fd) {
  loop_.Unwatch(fd);
  const int rank = connections_.at(fd).rank;
  connections_.erase(fd);
  if (rank < 0) return;
  rank_of_.erase(rank);
  handlers_.closed(rank);
}

void ControlServer::Send(int rank, const std::string& line, int passed) {
  const auto found = rank_of_.find(rank);
  if (found != rank_of_.end()) SendLine(found->second, line, passed);
}

UniqueFd ConnectToLauncher(const char* folder, const char* address) {
  if (folder != nullptr) {
    Result<sockaddr_un> path = UnixAddress(folder);
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd && path.ok() &&
        connect(fd.get(), reinterpret_cast<const sockaddr*>(&path.value()), sizeof(sockaddr_un)) == 0) {
      return fd;
    }
  }
  if (address == nullptr) return UniqueFd();
  std::istringstream parts(address);
  std::string host, port;
  std::getline(parts, host, ':');
  std::getline(parts, port, ':');
  return ConnectTcp(host, port);
}

std::optional<std::string> GreetLauncher(const char* folder, const char* address, const std::string& hello, UniqueFd& fd,
                                         UniqueFd& passed) {
  for (int i = 0; i < kGreetings; ++i) {
    fd = ConnectToLauncher(folder, address);
    if (!fd) return std::nullopt;
    SendLine(fd.get(), hello);
    const int64_t begin_ns = RunningNs();
    std::optional<std::string> answer = ReceiveLine(fd.get(), kGoMayTakeMs, passed);
    if (answer || RunningNs() - begin_ns >= int64_t{kGoMayTakeMs} * 1'000'000) return answer;
    std::this_thread::sleep_for(kGreetAgain);
  }
  return std::nullopt;
}

}  // namespace ramspan
