// Stream sockets between clients and memory servers: names of places, listening, connecting. Every socket here has
// close-on-exec and does not block, and writing to a closed one raises no signal (senders use MSG_NOSIGNAL).
//
// Places: "host:port" and "[v6 address]:port" (TCP), "/path" (a Unix socket in the file system), "@name" (one without a file,
// in this network namespace).
//
// Any thread; a host's name is looked up by blocking calls.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/descriptor.h"
#include "common/status.h"

namespace ramspan {

struct SocketPlace {
  std::string host, port;  // TCP
  std::string path;        // Unix; empty for TCP
  bool is_local() const { return !path.empty(); }
  std::string text() const;
};

// Whether it means something on its own host only: a Unix socket, localhost, or a loopback address in numbers.
bool IsOfOneHost(const SocketPlace& place);

// kInvalidArgument with what to write. Port 0 is for listeners only: any free one.
Result<SocketPlace> ParseSocketPlace(const std::string& text);
// Comma-separated, at least one.
Result<std::vector<SocketPlace>> ParseSocketPlaces(const std::string& text);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string host() const;  // numeric; empty for a Unix socket
  uint16_t port() const;
};

// All addresses of the place, at least one. kUnavailable: the name is not known now.
Result<std::vector<SocketAddress>> Resolve(const SocketPlace& place);

// kInvalidArgument: the place cannot be listened at, with the reason. A file of a Unix socket that nobody listens at any more is
// replaced.
Result<Descriptor> Listen(const SocketPlace& place, SocketAddress* bound);

// The file of a Unix socket that this process has bound: removes it in the end, if it is still that file.
class SocketFile {
 public:
  SocketFile() = default;
  explicit SocketFile(std::string path);
  ~SocketFile();
  SocketFile(SocketFile&& other) noexcept { *this = std::move(other); }
  SocketFile& operator=(SocketFile&& other) noexcept;

 private:
  std::string path_;  // empty: none
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// The next one who knocks; none: an empty descriptor. Sets what notices a dead host (below).
Descriptor Accept(const Descriptor& listener);

// Begins to connect; the socket becomes writable when it has succeeded or failed. kAborted: somebody listens there, but too many are
// waiting; try again soon.
Result<Descriptor> StartConnect(const SocketAddress& address);
// Whether it has succeeded. REQUIRES: it was writable.
Status FinishConnect(const Descriptor& socket);

// True: nobody listens there; the system of that host says so (refused), or there is no such socket. False: somebody does, or nobody
// has said anything within the time: a host that is off, a network that is broken. Waits.
bool IsDeserted(const SocketPlace& place, std::chrono::milliseconds at_most);
// Of a place's addresses; false, too, when the descriptor `until` becomes readable (-1: none).
bool IsDeserted(const std::vector<SocketAddress>& addresses, std::chrono::milliseconds at_most, int until);

// Ends, for both directions, every TCP connection that this process has with the peer, whoever made it. Does not wait. True: there was one.
bool HangUp(const SocketAddress& peer);

}  // namespace ramspan
