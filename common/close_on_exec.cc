#include "common/close_on_exec.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "common/descriptor.h"

namespace ramspan {
namespace {

// Not by std::filesystem, whose directory_iterator (libstdc++ 12) calls std::terminate where it finds no heap.
std::vector<int> NumbersIn(const char* folder) {
  std::vector<int> numbers;
  struct Closed {
    void operator()(DIR* entries) const { closedir(entries); }
  };
  const std::unique_ptr<DIR, Closed> entries(opendir(folder));
  for (const dirent* entry = nullptr; entries != nullptr && (entry = readdir(entries.get())) != nullptr;) {
    int number = -1;
    std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), number);
    if (number >= 0) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// What is open under a number at one moment. Each socket has an inode of its own; epoll sets and eventfds share one, so of those one may be taken
// for another that got its number.
struct Open {
  int number = -1;
  ino_t inode = 0;
  bool operator==(const Open&) const = default;
  bool is_there() const {
    struct stat status {};
    return fstat(number, &status) == 0 && status.st_ino == inode;
  }
};

void Mark(const Open& open) {
  if (!open.is_there()) return;
  // Right before they are changed: what the program has opened under this number since, with close-on-exec, keeps it.
  const int flags = fcntl(open.number, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC) != 0) return;
  fcntl(open.number, F_SETFD, flags | FD_CLOEXEC);
  // Its library has closed it, and the program got the number for something of its own.
  if (!open.is_there()) fcntl(open.number, F_SETFD, flags);
}

// Of /proc/self/fdinfo/N. Room for one is made first: getline takes a line for which there is no heap as the end of the file.
constexpr size_t kLineBytesMax = 256;

// Of an epoll set; empty for anything else.
std::vector<Open> WatchedBy(int number) {
  std::vector<Open> watched;
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(number));
  std::string line;
  line.reserve(kLineBytesMax);
  while (std::getline(info, line)) {
    Open one;
    uint64_t inode = 0;
    if (std::sscanf(line.c_str(), "tfd: %d events: %*x data: %*x pos:%*d ino:%" SCNx64, &one.number, &inode) != 2) continue;
    one.inode = inode;
    // What was closed here while a child kept it open is still in the set, under a number that may be the program's by now.
    if (one.is_there()) watched.push_back(one);
  }
  return watched;
}

bool IsUnixSocket(int number) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

// The inode of the socket at the other end; 0 where the kernel does not tell it.
ino_t PeerOf(ino_t inode) {
  const Descriptor kernel(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!kernel) return 0;
  struct {
    nlmsghdr header;
    unix_diag_req question;
  } request{};
  request.header = {.nlmsg_len = sizeof request, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = 0, .nlmsg_pid = 0};
  request.question.sdiag_family = AF_UNIX;
  request.question.udiag_states = ~0u;
  request.question.udiag_ino = static_cast<uint32_t>(inode);
  request.question.udiag_show = UDIAG_SHOW_PEER;
  request.question.udiag_cookie[0] = request.question.udiag_cookie[1] = ~0u;
  if (send(kernel.number(), &request, sizeof request, 0) != sizeof request) return 0;
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const ssize_t received = recv(kernel.number(), answer.data(), answer.size(), MSG_DONTWAIT);  // it is there when send returns
  const auto* header = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (received < 0 || !NLMSG_OK(header, static_cast<size_t>(received)) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return 0;
  const auto* message = static_cast<const unix_diag_msg*>(NLMSG_DATA(header));
  auto bytes = static_cast<int64_t>(header->nlmsg_len) - static_cast<int64_t>(NLMSG_LENGTH(sizeof *message));
  for (const auto* one = reinterpret_cast<const rtattr*>(message + 1); RTA_OK(one, bytes); one = RTA_NEXT(one, bytes)) {
    uint32_t peer = 0;
    if (one->rta_type != UNIX_DIAG_PEER || RTA_PAYLOAD(one) < sizeof peer) continue;
    std::memcpy(&peer, RTA_DATA(one), sizeof peer);
    return peer;
  }
  return 0;
}

}  // namespace

bool IsEventQueue(int number) {
  char target[32];
  const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(number)).c_str(), target, sizeof target);
  return length > 0 && std::string_view(target, static_cast<size_t>(length)) == "anon_inode:[eventpoll]";
}

void CloseOnExec(int event_queue) {
  struct stat status {};
  if (event_queue < 0 || fstat(event_queue, &status) != 0) return;
  std::vector<Open> ours = {{event_queue, status.st_ino}};
  std::vector<ino_t> others;  // ends of pairs
  for (size_t i = 0; i < ours.size(); ++i) {
    for (const Open& one : WatchedBy(ours[i].number)) {
      if (std::find(ours.begin(), ours.end(), one) == ours.end()) ours.push_back(one);
    }
    if (!IsUnixSocket(ours[i].number)) continue;
    if (const ino_t peer = PeerOf(ours[i].inode)) others.push_back(peer);
  }
  for (const int number : others.empty() ? std::vector<int>() : NumbersIn("/proc/self/fd")) {
    if (fstat(number, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    if (std::find(others.begin(), others.end(), status.st_ino) != others.end()) ours.push_back({number, status.st_ino});
  }
  for (const Open& one : ours) Mark(one);
}

CloseOnExecOfACall::CloseOnExecOfACall() : alone_(NumbersIn("/proc/self/task").size() == 1) {
  if (!alone_) return;
  before_ = NumbersIn("/proc/self/fd");
  std::erase_if(before_, [](int number) { return fcntl(number, F_GETFD) < 0; });  // that of the look itself
}

CloseOnExecOfACall::~CloseOnExecOfACall() {
  for (const int number : Opened()) {
    const int flags = fcntl(number, F_GETFD);
    if (flags >= 0) fcntl(number, F_SETFD, flags | FD_CLOEXEC);
  }
}

std::vector<int> CloseOnExecOfACall::Opened() const {
  if (!alone_) return {};
  std::vector<int> opened = NumbersIn("/proc/self/fd");
  std::erase_if(opened, [&](int number) { return std::binary_search(before_.begin(), before_.end(), number); });
  return opened;
}

std::vector<int> CloseOnExecOfACall::EventQueues() const {
  std::vector<int> opened = Opened();
  std::erase_if(opened, [](int number) { return !IsEventQueue(number); });
  return opened;
}

}  // namespace ramspan
