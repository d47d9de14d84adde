// OutsideServers: the memory servers of a job that are no ranks of it (`--transport ofi`): `ramspan server` processes that the
// launcher starts before the application and ends after it. They and the application's ranks share a secret that is made for
// this job alone. On the launcher's host each listens at a Unix socket in the job's private folder; when the job has several
// hosts, mpiexec starts all of them where ranks of their numbers would be, and they listen at the interface that leads to the
// launcher's host (launch/server_start.h).
//
// A server's death ends nothing. It is told to the user: by this where it is a child of the launcher, else by its clients. The servers end by themselves when the launcher dies: the kernel kills
// those that it has started itself, mpiexec's proxies kill the others.
//
// Thread-safety: none; lives in the launcher's event loop. Ownership: of the processes that it starts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "launch/event_loop.h"
#include "launch/plan.h"
#include "launch/process.h"

namespace ramspan {

class OutsideServers {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;

  // `control`: the launcher's address for other hosts (kControlVariable), empty on one host.
  OutsideServers(EventLoop& loop, const Plan& plan, std::string folder, std::string control);
  ~OutsideServers();
  OutsideServers(const OutsideServers&) = delete;
  OutsideServers& operator=(const OutsideServers&) = delete;

  // Makes the secret and starts them. They listen when listening() says so.
  Status Start();
  bool listening() const { return places_.size() == static_cast<size_t>(plan_.outside_servers); }
  // Why they never will; the servers themselves have said more on stderr.
  const Status& failure() const { return failure_; }
  // What the application's ranks need to find them. REQUIRES: listening().
  Environment ForApplication() const;

  // A child of this process has ended. False: it was none of these.
  bool OnChildEnd(pid_t pid, int wait_status);
  void OnTick(int64_t now_ns);  // RunningNs
  // Ends all of them.
  void End();
  bool running() const;

 private:
  struct Process {
    pid_t pid = -1;
    bool running = false;
    UniqueFd output;
    std::string unread;  // the beginning of a line
  };

  Status MakeSecret();
  Status StartOne(std::vector<std::string> line);
  [[noreturn]] void Become(const std::vector<std::string>& line, int output);
  void ReadFrom(size_t process);
  std::string key_file() const { return folder_ + "/server-key"; }

  EventLoop& loop_;
  const Plan& plan_;
  const std::string folder_, control_;
  std::string secret_;
  // mpiexec's standard input: nothing comes, and it does not end before this process does. hydra hands the end of its input to the
  // proxy of rank 0, whose processes (they only hold places) end at once. With /dev/null it wrote to a proxy that had gone, and
  // ended by SIGPIPE or status 255, in one start of five.
  Pipe no_input_;
  std::vector<Process> processes_;
  std::vector<std::string> places_;
  Status failure_;
  bool ending_ = false;
  int64_t begin_ns_ = 0;  // of the wait for them to listen; 0: no tick yet
};

}  // namespace ramspan
