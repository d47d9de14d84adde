#include "common/socket_address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "common/limit_of_files.h"

namespace ramspan {
namespace {

// As many as the system allows (net.core.somaxconn): the ranks of a node come in one moment.
constexpr int kBacklog = SOMAXCONN;
// A host that is gone answers no probe: after 15 s of silence one every 10 s, and the connection fails with the third, or when
// what was sent is not acknowledged for 45 s. A process that is stopped has a kernel that answers, and is not taken for dead.
// Longer than the silence after which a client gives a server up (30 s): whoever decides first that a network which was cut
// does not come back decides for both, and only the client knows whether it has anything to lose.
constexpr int kKeepIdleSeconds = 15, kKeepEverySeconds = 10, kKeepProbes = 3;
constexpr unsigned kUserTimeoutMs = 45'000;

std::string Reason() {
  const int error = errno;
  return std::strerror(error) + LimitOfFiles(error);
}

constexpr const char* kNobodyListens = "; no memory server listens there now";

// What the system's word for it does not tell.
std::string WhyNobodyListens(const SocketAddress& address, int error) {
  if (error != ECONNREFUSED && error != ENOENT) return "";
  struct stat status {};
  const char* const path = reinterpret_cast<const sockaddr_un*>(&address.storage)->sun_path;
  if (address.storage.ss_family != AF_UNIX || path[0] == '\0' || stat(path, &status) != 0) return kNobodyListens;
  if (S_ISDIR(status.st_mode)) return std::string("; it is a folder: those in which servers write themselves down are named dir:") + path;
  if (S_ISREG(status.st_mode)) return std::string("; it is no socket but a file: one with a place a line is named file:") + path;
  return kNobodyListens;
}

std::string WhyNotListen(const SocketPlace& place, int error) {
  struct stat status {};
  if (error == EADDRNOTAVAIL) return "; no interface of this host has that address";
  if (error != EADDRINUSE) return "";
  const bool is_file = place.is_local() && lstat(place.path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode);
  if (is_file) return "; what is there is no socket, and stays as it is: name another path";
  return std::string("; another process listens there, maybe a memory server") + (place.is_local() ? "" : ". Port 0 is any free one");
}

bool IsPort(const std::string& text) {
  return !text.empty() && text.size() <= 5 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         std::stoul(text) <= 65535;
}

void Set(int socket, int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof value); }

void NoticeDeadHosts(int socket) {
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  Set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepEverySeconds);
  Set(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kUserTimeoutMs));
}

Result<SocketAddress> LocalAddress(const std::string& path) {
  SocketAddress address;
  auto* local = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.size() >= sizeof local->sun_path) return InvalidArgument("a Unix socket's path has at most 107 characters");
  local->sun_family = AF_UNIX;
  std::memcpy(local->sun_path, path.data(), path.size());
  const bool has_file = path[0] != '@';
  if (!has_file) local->sun_path[0] = '\0';
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + (has_file ? 1 : 0));
  return address;
}

Descriptor Open(const SocketAddress& address) {
  Descriptor opened(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (opened && address.storage.ss_family != AF_UNIX) NoticeDeadHosts(opened.number());
  return opened;
}

// Two servers that start at one path would each take the other's new socket for one that a dead server has left. So the folder is locked from
// the look at the old socket until somebody listens at the new one. Where that cannot be, or another process keeps it locked, it goes on without.
Descriptor LockFolderOf(const std::string& path) {
  constexpr int kTries = 400, kTryAgainAfterMs = 5;  // 2 s
  Descriptor folder(path[0] == '@' ? -1 : open(path.substr(0, path.rfind('/') + 1).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < kTries && folder && flock(folder.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i) poll(nullptr, 0, kTryAgainAfterMs);
  return folder;
}

// A server that was killed leaves its socket's file; one that lives answers.
void RemoveDeadFile(const SocketAddress& address, const std::string& path) {
  struct stat status {};
  if (path[0] == '@' || lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return;
  const Descriptor probe = Open(address);
  const bool refused = probe && connect(probe.number(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 &&
                       errno == ECONNREFUSED;
  if (refused) unlink(path.c_str());
}

}  // namespace

std::string SocketPlace::text() const {
  if (is_local()) return path;
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

bool IsOfOneHost(const SocketPlace& place) { return place.is_local() || place.host == "localhost" || place.host == "::1" || place.host.rfind("127.", 0) == 0; }

Result<SocketPlace> ParseSocketPlace(const std::string& text) {
  SocketPlace place;
  if (!text.empty() && (text[0] == '/' || text[0] == '@')) {
    place.path = text;
    if (text.size() > 1) return place;
  }
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos && colon > 0) {
    place.host = text.substr(0, colon);
    place.port = text.substr(colon + 1);
    const bool bracketed = place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']';
    if (bracketed) place.host = place.host.substr(1, place.host.size() - 2);
    const bool host_ok = bracketed || place.host.find_first_of(":[]/ \t") == std::string::npos;
    if (host_ok && !place.host.empty() && IsPort(place.port)) return place;
  }
  return InvalidArgument("\"" + text + "\" is no place of a memory server; write HOST:PORT, [IPV6]:PORT or the /path of a Unix socket");
}

Result<std::vector<SocketPlace>> ParseSocketPlaces(const std::string& text) {
  std::vector<SocketPlace> places;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string one = text.substr(begin, end - begin);
    one.erase(0, one.find_first_not_of(' '));
    one.erase(one.find_last_not_of(' ') + 1);
    Result<SocketPlace> place = ParseSocketPlace(one);
    if (!place.ok()) return place.status();
    places.push_back(std::move(place).value());
    begin = end + 1;
  }
  return places;
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, text, sizeof text);
  } else if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, text, sizeof text);
  }
  return text;
}

uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  return storage.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port) : uint16_t{0};
}

Result<std::vector<SocketAddress>> Resolve(const SocketPlace& place) {
  if (place.is_local()) {
    const Result<SocketAddress> local = LocalAddress(place.path);
    if (!local.ok()) return local.status();
    return std::vector{local.value()};
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &found); error != 0) {
    return Unavailable("no host " + place.host + " is known here: " + gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

Result<Descriptor> Listen(const SocketPlace& place, SocketAddress* bound) {
  const Result<std::vector<SocketAddress>> addresses = Resolve(place);
  if (!addresses.ok()) return InvalidArgument("cannot listen at " + place.text() + ": " + addresses.status().message());
  const SocketAddress& address = addresses.value()[0];
  Descriptor listener = Open(address);
  if (!listener) return Unavailable("cannot listen at " + place.text() + ": " + Reason());
  const Descriptor locked = place.is_local() ? LockFolderOf(place.path) : Descriptor();
  if (place.is_local()) RemoveDeadFile(address, place.path);
  else Set(listener.number(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(listener.number(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 ||
      listen(listener.number(), kBacklog) != 0) {
    const int error = errno;
    return InvalidArgument("cannot listen at " + place.text() + ": " + Reason() + WhyNotListen(place, error));
  }
  bound->length = sizeof bound->storage;
  getsockname(listener.number(), reinterpret_cast<sockaddr*>(&bound->storage), &bound->length);
  return listener;
}

SocketFile::SocketFile(std::string path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return;
  path_ = std::move(path);
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

SocketFile& SocketFile::operator=(SocketFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

SocketFile::~SocketFile() {
  struct stat status {};
  const bool is_ours = !path_.empty() && lstat(path_.c_str(), &status) == 0 && S_ISSOCK(status.st_mode) && status.st_dev == device_ && status.st_ino == inode_;
  if (is_ours) unlink(path_.c_str());
}

Descriptor Accept(const Descriptor& listener) {
  Descriptor socket(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) NoticeDeadHosts(socket.number());  // refused, and not needed, for a Unix socket
  return socket;
}

Result<Descriptor> StartConnect(const SocketAddress& address) {
  Descriptor socket = Open(address);
  if (!socket) return Unavailable(Reason());
  socket.MoveBeyondPrograms();  // before it connects, which may take seconds, in which a program closes what it does not know
  if (connect(socket.number(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 && errno != EINPROGRESS) {
    // Of a Unix socket only: too many others are waiting for it to accept them.
    const int failed = errno;
    return failed == EAGAIN ? Aborted(Reason()) : Unavailable(Reason() + WhyNobodyListens(address, failed));
  }
  return socket;
}

Status FinishConnect(const Descriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) return {};
  return Unavailable(std::strerror(error) + std::string(error == ECONNREFUSED ? kNobodyListens : ""));
}

bool IsDeserted(const SocketPlace& place, std::chrono::milliseconds at_most) {
  const Result<std::vector<SocketAddress>> addresses = Resolve(place);
  return addresses.ok() && IsDeserted(addresses.value(), at_most, -1);
}

bool IsDeserted(const std::vector<SocketAddress>& addresses, std::chrono::milliseconds at_most, int until) {
  for (const SocketAddress& address : addresses) {
    const Descriptor socket = Open(address);
    if (!socket) return false;
    int error = connect(socket.number(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      std::array<pollfd, 2> polled{{{.fd = socket.number(), .events = POLLOUT, .revents = 0}, {.fd = until, .events = POLLIN, .revents = 0}}};
      if (poll(polled.data(), polled.size(), static_cast<int>(at_most.count())) <= 0 || polled[1].revents != 0) return false;
      socklen_t length = sizeof error;
      if (getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return false;
    }
    if (error != ECONNREFUSED && error != ENOENT) return false;
  }
  return true;
}

// Without heap: a destructor asks.
static bool IsSameHost(const SocketAddress& a, const SocketAddress& b) {
  if (a.storage.ss_family != b.storage.ss_family) return false;
  const auto* const a6 = reinterpret_cast<const sockaddr_in6*>(&a.storage);
  const auto* const b6 = reinterpret_cast<const sockaddr_in6*>(&b.storage);
  if (a.storage.ss_family == AF_INET6) return std::memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
  return reinterpret_cast<const sockaddr_in*>(&a.storage)->sin_addr.s_addr == reinterpret_cast<const sockaddr_in*>(&b.storage)->sin_addr.s_addr;
}

bool HangUp(const SocketAddress& peer) {
  if (peer.port() == 0) return false;  // no address of TCP; those of Unix sockets look alike
  bool found = false;
  DIR* const descriptors = opendir("/proc/self/fd");
  if (descriptors == nullptr) return false;
  while (const dirent* const entry = readdir(descriptors)) {
    const int number = std::atoi(entry->d_name);
    SocketAddress other;
    other.length = sizeof other.storage;
    if (number == dirfd(descriptors) || getpeername(number, reinterpret_cast<sockaddr*>(&other.storage), &other.length) != 0) continue;
    if (other.port() == peer.port() && IsSameHost(other, peer)) found = shutdown(number, SHUT_RDWR) == 0 || found;
  }
  closedir(descriptors);
  return found;
}

}  // namespace ramspan
