#include "launch/guard.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "launch/control.h"
#include "launch/leftovers.h"
#include "launch/process.h"
#include "launch/run_folder.h"

namespace ramspan {
namespace {

constexpr std::chrono::milliseconds kKeepersMayTake{500};  // keepers end their programs by themselves meanwhile

void PassSignalsOn(int signals, int orders) {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;
    const bool by_terminal = info.ssi_code == SI_KERNEL;
    SendLine(orders, "signal " + std::to_string(info.ssi_signo) + (by_terminal ? " 1" : " 0"));
  }
}

int CleanUpAfterWorker(const std::string& folder, int64_t started_ns, int signal_number) {
  EndChildren(kKeepersMayTake);
  CleanUpRun(folder, started_ns);
  std::fprintf(stderr, "ramspan: the launcher's worker process was killed by %s; the job was ended\n",
               DescribeSignal(signal_number).c_str());
  TellSmallLimits();
  return 128 + signal_number;
}

}  // namespace

int RunGuarded(const std::string& folder, const std::function<int(UniqueFd orders)>& work) {
  const int64_t started_ns = RealtimeNs();
  const UniqueFd signals = BlockSignals({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2});
  AdoptOrphans();
  int pair[2];
  RS_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair: %s", std::strerror(errno));
  UniqueFd ours(pair[0]), theirs(pair[1]);
  const pid_t worker = fork();
  if (worker < 0) {
    std::fprintf(stderr, "ramspan: %s\n", ForkError(errno).c_str());
    return 1;
  }
  if (worker == 0) {
    ours.Reset();  // or the worker would never see the guard's end
    _exit(work(std::move(theirs)));
  }
  theirs.Reset();
  for (;;) {
    pollfd ready{signals.get(), POLLIN, 0};
    poll(&ready, 1, -1);
    PassSignalsOn(signals.get(), ours.get());
    int status = 0;
    if (waitpid(worker, &status, WNOHANG) != worker) continue;
    if (WIFSIGNALED(status)) return CleanUpAfterWorker(folder, started_ns, WTERMSIG(status));
    RemoveFolderOfTheDead(folder);
    return WEXITSTATUS(status);
  }
}

}  // namespace ramspan
