// The words between a rank's keeper (launch/keeper.h) and the launcher: lines of text over a stream socket, so that
// both ends see at once when the other one dies. Keepers on the launcher's host connect to control.sock in the job's
// private folder; those on other hosts by TCP, with a secret.
//
//   keeper -> launcher   hello SECRET RANK PID HOST | init | end CODE SIGNAL LEFT_MPI AT_NS
//   launcher -> keeper   signal N | kill
//
// Thread-safety: none; all of it runs in one event loop.
#pragma once

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

// Cuts a stream into lines. A line over 1 KiB is a protocol error.
class LineReader {
 public:
  // Reads what is there. False: end of file, an error, or too long a line.
  bool ReadFrom(int fd);
  std::optional<std::string> Next();

 private:
  std::string buffer_;
};

// Sends all or nothing and never waits; lines are few and short, so a full socket means a dead peer.
void SendLine(int fd, const std::string& line);

std::string EndLine(const RankEnd& end);
std::optional<RankEnd> ParseEndLine(const std::string& line);

class ControlServer {
 public:
  struct Handlers {
    std::function<void(int rank, long pid, const std::string& host)> hello;
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
  void Send(int rank, const std::string& line);
  size_t connected() const { return rank_of_.size(); }  // keepers that have said hello and are still there

 private:
  struct Connection {
    UniqueFd fd;
    bool needs_secret = false;
    int rank = -1;
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
  void Close(int fd);

  EventLoop& loop_;
  const int ranks_;
  const Handlers handlers_;
  UniqueFd unix_, tcp_;
  std::string secret_, address_;
  std::map<int, Connection> connections_;  // by descriptor
  std::map<int, int> rank_of_;             // rank -> descriptor
};

// The keeper's side: the socket of the folder, else TCP, else no connection (-1): the rank then runs on, and hydra
// alone tells how it ended.
UniqueFd ConnectToLauncher(const char* folder, const char* address);

}  // namespace ramspan
