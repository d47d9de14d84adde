// The words between a rank's keeper (launch/keeper.h) and the launcher: lines of text over a stream socket, so that
// both ends see at once when the other one dies. Keepers on the launcher's host connect to control.sock in the job's
// private folder; those on other hosts by TCP, with a secret. Whoever connects by TCP is a stranger until he has said it.
// Strangers have little time and few places, and the oldest one gives way to the newest: nobody without the secret can
// keep a keeper out for long (a keeper that was turned away before its hello was read comes again).
//
// The secret travels in the environment of mpiexec and the keepers, which the kernel shows to this user only, never on a
// command line; programs do not inherit it. On the wire it is not encrypted, as nothing is between hydra's processes.
//
//   keeper -> launcher   hello SECRET RANK HOST | pid PID | init | end CODE SIGNAL LEFT_MPI AT_NS ORDERED
//   launcher -> keeper   go (the answer to hello; may carry a descriptor) | signal N | kill | end | told
//
// "kill" ends the program; "end" does it so that hydra sees a rank that ends well. "told": the end of each rank is
// known, and a keeper whose own end makes hydra kill all others may go.
//
// Thread-safety: none; all of it runs in one event loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "launch/event_loop.h"
#include "launch/job.h"
#include "launch/process.h"

namespace ramspan {

inline constexpr char kControlSocket[] = "control.sock";            // in RAMSPAN_RUN_DIR
inline constexpr char kControlVariable[] = "RAMSPAN_RUN_CONTROL";  // HOST:PORT:SECRET; never seen by the application
inline constexpr char kFileLimitVariable[] = "RAMSPAN_RUN_FILES";  // the user's soft limit of descriptors; likewise

// Cuts a stream into lines. A line over 1 KiB is a protocol error.
class LineReader {
 public:
  // Reads what is there. False: end of file, an error, or too long a line.
  bool ReadFrom(int fd);
  std::optional<std::string> Next();

 private:
  std::string buffer_;
};

// Sends all or nothing and never waits; lines are few and short, so a full socket means a dead peer. `passed`: a
// descriptor that goes along (Unix sockets only), or -1.
void SendLine(int fd, const std::string& line, int passed = -1);

// Waits for one line and the descriptor that came with it, if one did. Nothing on end of file or after `timeout_ms`.
std::optional<std::string> ReceiveLine(int fd, int timeout_ms, UniqueFd& passed);

std::string EndLine(const RankEnd& end);
std::optional<RankEnd> ParseEndLine(const std::string& line);

class ControlServer {
 public:
  struct Handlers {
    std::function<void(int rank, const std::string& host, bool local)> hello;  // is to send "go"
    std::function<void(int rank, long pid)> pid;
    std::function<void(int rank)> init;
    std::function<void(int rank, const RankEnd&)> end;
    std::function<void(int rank)> closed;
  };

  // Listens in `folder` and, if `by_tcp`, on a free port of all interfaces. `loop` must outlive the server.
  static Result<std::unique_ptr<ControlServer>> Listen(EventLoop& loop, const std::string& folder, bool by_tcp,
                                                       int ranks, Handlers handlers);
  ~ControlServer();

  // The value of kControlVariable; empty without TCP.
  const std::string& address() const { return address_; }
  void Send(int rank, const std::string& line, int passed = -1);
  // Turns strangers away who have been silent for too long. Call it now and then.
  void OnTick(int64_t now_ns);
  size_t strangers() const { return connections_.size() - rank_of_.size(); }
  size_t connected() const { return rank_of_.size(); }  // keepers that have said hello and are still there

 private:
  struct Connection {
    UniqueFd fd;
    bool needs_secret = false;
    int rank = -1;              // -1: has not said hello
    int64_t since_ns = 0;       // RunningNs
    LineReader lines;
  };

  ControlServer(EventLoop& loop, int ranks, Handlers handlers)
      : loop_(loop), ranks_(ranks), handlers_(std::move(handlers)) {}
  Status ListenUnix(const std::string& folder);
  Status ListenTcp();
  void Accept(int listener, bool needs_secret);
  void Serve(int fd);
  bool Understand(Connection& connection, const std::string& line);
  bool Welcome(Connection& connection, const std::string& line);
  void MakeRoomForStranger();
  void Close(int fd);

  EventLoop& loop_;
  const int ranks_;
  const Handlers handlers_;
  UniqueFd unix_, tcp_;
  std::string secret_, address_;
  std::map<int, Connection> connections_;  // by descriptor
  std::map<int, int> rank_of_;             // rank -> descriptor
};

// The keeper's side: the socket of the folder, else TCP. -1: neither can be reached.
UniqueFd ConnectToLauncher(const char* folder, const char* address);

// Connects, says `hello` and waits for the answer, again if the connection ends before there is one. Nothing when the
// launcher cannot be reached; `fd` is the connection, `passed` the descriptor that came with the answer.
std::optional<std::string> GreetLauncher(const char* folder, const char* address, const std::string& hello, UniqueFd& fd,
                                         UniqueFd& passed);

}  // namespace ramspan
