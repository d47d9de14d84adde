// Scenarios of `ramspan run --pages` (preloaded.cc): what comes beside a message's bytes, and calls whose names and small arguments have left.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#include <cstring>
#include <thread>
#include <vector>

#include "tests/pages/preloaded.h"

void SendAll(int fd, size_t bytes) {
  const std::vector<char> text(bytes, 'a');
  for (size_t sent = 0; sent < bytes;) {
    const ssize_t n = send(fd, text.data() + sent, bytes - sent, MSG_NOSIGNAL);
    CHECK(n > 0);
    sent += static_cast<size_t>(n);
  }
}

void SendDescriptor(int fd, int descriptor, size_t bytes) {
  std::vector<char> text(bytes + kMiB, 'a');  // large enough to be swapped by pages
  iovec piece = {text.data(), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
  CHECK(sendmsg(fd, &message, 0) == static_cast<ssize_t>(bytes));
}

namespace {

// Bytes of one recvmsg that waits for all.
ssize_t ReceiveAll(int fd, char* to, size_t bytes, msghdr* message) {
  iovec all = {to, bytes};
  message->msg_iov = &all;
  message->msg_iovlen = 1;
  const ssize_t got = recvmsg(fd, message, MSG_WAITALL);
  message->msg_iov = nullptr;
  return got;
}

void Connect(int* ends) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(listener, 1) == 0 && getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(ends[0], reinterpret_cast<sockaddr*>(&address), length) == 0);
  // Its address has room for its family only, at the end of an allocation that has left; then the connection was lost.
  char* const memory = New(kMiB);
  char* const end = memory + kMiB - sizeof(sa_family_t);
  auto* const room = reinterpret_cast<socklen_t*>(memory);
  *room = sizeof(sa_family_t);
  Sweep();
  ends[1] = accept(listener, reinterpret_cast<sockaddr*>(end), room);
  CHECK(ends[1] >= 0 && *room == sizeof(address) && *reinterpret_cast<sa_family_t*>(end) == AF_INET);
  close(listener);
}

// Of a connection with SO_TIMESTAMP. The kernel begins to take times some ms after that call (20 and more where cores are busy), and what arrives before has none: that was all of the 3 MiB.
// It has no end of its own: who runs the scenarios waits for a minute.
void AwaitTimes(const int* ends) {
  for (size_t control_bytes = 0; control_bytes == 0; usleep(1000)) {
    char byte = 'a';
    iovec one = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timeval))];
    msghdr message = {};
    message.msg_iov = &one;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    CHECK(send(ends[0], &byte, 1, MSG_NOSIGNAL) == 1 && recvmsg(ends[1], &message, 0) == 1);
    control_bytes = message.msg_controllen;
  }
}

}  // namespace

// Times and credentials come beside each piece, and end nothing: 1 MiB came of 3. Descriptors do, also where there is no room for them, which was not said.
void ControlData() {
  constexpr size_t kBytes = 3 * kMiB;
  char* const to = New(kBytes);
  for (const bool is_local : {true, false}) {
    int ends[2], one = 1;
    if (is_local) {
      CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) == 0);
    } else {
      Connect(ends);
      CHECK(setsockopt(ends[1], SOL_SOCKET, SO_TIMESTAMP, &one, sizeof(one)) == 0);
      AwaitTimes(ends);
    }
    std::thread sender([&] { SendAll(ends[0], kBytes); });
    alignas(cmsghdr) char control[256];
    msghdr message = {};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    CHECK(ReceiveAll(ends[1], to, kBytes, &message) == static_cast<ssize_t>(kBytes) && message.msg_controllen == 32 && (message.msg_flags & MSG_CTRUNC) == 0 && to[kBytes - 1] == 'a');
    sender.join();
    close(ends[0]);
    close(ends[1]);
  }
  int local[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, local) == 0);
  std::thread sender([&] {
    SendAll(local[0], kMiB - 1000);
    SendDescriptor(local[0], 0, 1000);
    SendAll(local[0], kMiB);
  });
  msghdr without = {};
  CHECK(ReceiveAll(local[1], to, kBytes, &without) == static_cast<ssize_t>(kMiB) && (without.msg_flags & MSG_CTRUNC) != 0);
  msghdr next = {};
  CHECK(ReceiveAll(local[1], to, kMiB, &next) == static_cast<ssize_t>(kMiB) && next.msg_flags == 0);
  sender.join();
  // More room than is given beside: the descriptor was lost.
  msghdr roomy = {};
  roomy.msg_control = New(kMiB);
  roomy.msg_controllen = 128 << 10;
  SendDescriptor(local[0], 0, 10);
  Sweep();
  CHECK(ReceiveAll(local[1], to, 10, &roomy) == 10 && roomy.msg_controllen == CMSG_SPACE(sizeof(int)) && roomy.msg_flags == 0);
  int given = -1;
  std::memcpy(&given, CMSG_DATA(CMSG_FIRSTHDR(&roomy)), sizeof(int));
  CHECK(close(given) == 0);
  // As many as the kernel takes at once.
  constexpr unsigned kMessages = 1100;
  auto* const many = static_cast<mmsghdr*>(std::memset(New(kMiB), 0, kMiB));
  iovec byte = {to, 1};
  for (unsigned i = 0; i < kMessages; ++i) many[i].msg_hdr.msg_iov = &byte, many[i].msg_hdr.msg_iovlen = 1;
  const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  CHECK(bind(datagrams, reinterpret_cast<sockaddr*>(&address), length) == 0 && getsockname(datagrams, reinterpret_cast<sockaddr*>(&address), &length) == 0 && connect(datagrams, reinterpret_cast<sockaddr*>(&address), length) == 0);
  CHECK(sendmmsg(datagrams, many, kMessages, 0) == 1024);
  // An address at the end of an allocation, with more room, says the program, than there is.
  auto* const name = static_cast<sockaddr_in*>(roomy.msg_control) + kMiB / sizeof(sockaddr_in) - 1;
  socklen_t room = sizeof(sockaddr_storage);
  Sweep();
  CHECK(recvfrom(datagrams, to, 1, 0, reinterpret_cast<sockaddr*>(name), &room) == 1 && room == sizeof(*name) && name->sin_port == address.sin_port);
}

// Names, each a MiB before what else a call reads or answers.
void MoreNames() {
  char folder[] = "/tmp/ramspan-preloaded-XXXXXX", file[] = "/tmp/ramspan-preloaded-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  const int fd = mkstemp(file);
  CHECK(fd >= 0 && chdir(folder) == 0);
  char* const p = Filled(6 * kMiB);
  char* const other = p + kMiB;
  const auto names = [p, other](const char* from, const char* to) {
    std::strcpy(p, from);
    std::strcpy(other, to);
    Sweep();
  };
  names(file, "linked");
  CHECK(linkat(AT_FDCWD, p, AT_FDCWD, other, 0) == 0);
  names("linked", "renamed");
  CHECK(renameat2(AT_FDCWD, p, AT_FDCWD, other, 0) == 0 && unlink("renamed") == 0);
  names(file, "symbolic");
  CHECK(symlinkat(p, AT_FDCWD, other) == 0 && unlink("symbolic") == 0);
  names("memory", "");
  const int in_memory = memfd_create(p, 0);
  CHECK(in_memory >= 0 && close(in_memory) == 0);
  names("pipe", "");
  CHECK(mknod(p, S_IFIFO | 0600, 0) == 0);
  Sweep();
  CHECK(euidaccess(p, R_OK) == 0 && unlink("pipe") == 0);
  auto* const times = reinterpret_cast<utimbuf*>(other);
  auto* const finer = reinterpret_cast<timeval*>(p + 2 * kMiB);
  names(file, "");
  *times = {1000, 2000};
  finer[0] = finer[1] = {3000, 0};
  Sweep();
  struct stat is;
  CHECK(utime(p, times) == 0 && fstat(fd, &is) == 0 && is.st_mtime == 2000);
  Sweep();
  CHECK(lutimes(p, finer) == 0 && fstat(fd, &is) == 0 && is.st_mtime == 3000);
  const auto is_answered = [](ssize_t result) { return result >= 0 || errno == ENODATA || errno == ENOTSUP; };
  names(file, "user.of_ramspan");
  CHECK(is_answered(lgetxattr(p, other, p + 2 * kMiB, 10)));
  Sweep();
  CHECK(is_answered(removexattr(p, other)));
  auto* const hint = reinterpret_cast<uint64_t*>(p);
  *hint = 1;
  Sweep();
  CHECK(fcntl(fd, F_GET_RW_HINT, hint) == 0 && *hint == 0);
  Sweep();
  CHECK(fcntl(fd, F_SET_RW_HINT, hint) == 0 && close(fd) == 0 && unlink(file) == 0);
  auto* const there = reinterpret_cast<unsigned char*>(p);
  CHECK(mincore(p - reinterpret_cast<uintptr_t>(p) % 4096, 4096, there + 2 * kMiB) == 0);
  // System V's.
  const int queue = msgget(IPC_PRIVATE, 0600), set = semget(IPC_PRIVATE, 1, 0600);
  CHECK(queue >= 0 && set >= 0);
  struct Message {
    long type;
    char text[100];
  };
  auto* const message = reinterpret_cast<Message*>(p);
  message->type = 5;
  std::strcpy(message->text, "right");
  Sweep();
  CHECK(msgsnd(queue, message, 6, 0) == 0);
  std::memset(message, 0, sizeof(*message));
  Sweep();
  CHECK(msgrcv(queue, message, 100, 0, IPC_NOWAIT) == 6 && message->type == 5 && std::strcmp(message->text, "right") == 0);  // it was lost
  CHECK(msgctl(queue, IPC_RMID, nullptr) == 0);
  auto* const up = reinterpret_cast<sembuf*>(p);
  *up = {0, 3, 0};
  Sweep();
  CHECK(semop(set, up, 1) == 0 && semctl(set, 0, GETVAL) == 3);
  auto* const about = reinterpret_cast<semid_ds*>(p + 3 * kMiB);
  Sweep();
  CHECK(semctl(set, 0, IPC_STAT, about) == 0 && about->sem_nsems == 1 && semctl(set, 0, IPC_RMID) == 0);
  CHECK(chdir("/") == 0 && rmdir(folder) == 0);
}

// What the program says is larger than what is there, or than what others have room for.
void RoomsThatEnd() {
  constexpr size_t kPageBytes = 4096, kBlock = 65536;
  char* const memory = Map(2 * kMiB);
  CHECK(munmap(memory + kMiB, kMiB) == 0);
  char* const end = memory + kMiB;
  char byte = 'x';
  iovec piece = {&byte, 1};
  // A name, with the room that any address needs.
  const int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  CHECK(bind(datagrams, reinterpret_cast<sockaddr*>(&address), length) == 0 && getsockname(datagrams, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  for (int i = 0; i < 2; ++i) CHECK(sendto(datagrams, &byte, 1, 0, reinterpret_cast<sockaddr*>(&address), length) == 1);
  auto* const name = reinterpret_cast<sockaddr_in*>(end) - 1;
  mmsghdr many = {};
  msghdr& named = many.msg_hdr;
  for (const bool is_one : {true, false}) {
    named = {name, sizeof(sockaddr_storage), &piece, 1, nullptr, 0, 0};
    name->sin_port = 0;
    Sweep();
    CHECK(is_one ? recvmsg(datagrams, &named, 0) == 1 : recvmmsg(datagrams, &many, 1, 0, nullptr) == 1);
    CHECK(named.msg_namelen == sizeof(*name) && name->sin_port == address.sin_port);
  }
  // A descriptor, with room for many.
  int local[2];
  CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, local) == 0);
  SendDescriptor(local[0], 0, 1);
  msghdr message = {nullptr, 0, &piece, 1, end - CMSG_SPACE(sizeof(int)), kPageBytes, 0};
  std::memset(message.msg_control, 0, CMSG_SPACE(sizeof(int)));
  Sweep();
  CHECK(recvmsg(local[1], &message, 0) == 1 && message.msg_controllen == CMSG_SPACE(sizeof(int)) && message.msg_flags == 0);
  int given = -1;
  std::memcpy(&given, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
  CHECK(close(given) == 0);
  // All semaphores of a set, which begin at the end of a block.
  constexpr size_t kSemaphores = 3000;
  const int set = semget(IPC_PRIVATE, kSemaphores, 0600);
  CHECK(set >= 0);
  auto* const values = reinterpret_cast<unsigned short*>(memory + -reinterpret_cast<uintptr_t>(memory) % kBlock + kBlock - 5000);
  for (size_t i = 0; i < kSemaphores; ++i) values[i] = static_cast<unsigned short>(i);
  Sweep();
  CHECK(semctl(set, 0, SETALL, values) == 0);
  std::memset(values, 0, kSemaphores * sizeof(*values));
  Sweep();
  CHECK(semctl(set, 0, GETALL, values) == 0 && semctl(set, 0, IPC_RMID) == 0);
  for (size_t i = 0; i < kSemaphores; ++i) CHECK(values[i] == i);
  // A message, with more room than the system has memory: there was none.
  constexpr size_t kMuch = size_t{256} << 30;
  auto* const text = static_cast<char*>(mmap(nullptr, kMuch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  const int queue = msgget(IPC_PRIVATE, 0600);
  struct {
    long type;
    char text[6];
  } const sent = {5, "right"};
  CHECK(static_cast<void*>(text) != MAP_FAILED && queue >= 0 && msgsnd(queue, &sent, 6, 0) == 0 && msgrcv(queue, text, kMuch - sizeof(long), 0, IPC_NOWAIT) == 6 && std::strcmp(text + sizeof(long), "right") == 0);
  CHECK(msgsnd(queue, &sent, 6, 0) == 0 && msgrcv(queue, text, 3, 0, IPC_NOWAIT) == -1 && errno == E2BIG && msgrcv(queue, text, 3, 0, IPC_NOWAIT | MSG_NOERROR) == 3 && msgctl(queue, IPC_RMID, nullptr) == 0);
}
