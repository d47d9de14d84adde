// WaitJudge: who keeps this process waiting for too long. Pure: looks at counters in, verdicts out; the watchdog
// (mpi_watchdog.h) looks every so often and acts.
//
// A call to a server is stuck when no call to it came or went since the last look. It is stuck by right as long as its
// bytes may take on a wire of 10 MB/s. Calls to other servers may be held up by such a call, because MPI lets one thread
// in at a time; so their time does not count while another's is stuck by right.
//
// Thread-safety: none; the watchdog's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ramspan {

class WaitJudge {
 public:
  // Of one server: calls that went in and that came out since the beginning, and the bytes of those inside.
  struct Look {
    uint64_t entered = 0;
    uint64_t left = 0;
    uint64_t bytes = 0;
  };
  enum class Verdict { kFine, kWarn, kGiveUp };

  WaitJudge(std::chrono::milliseconds warn_after, std::chrono::milliseconds give_up_after)
      : warn_after_(warn_after), give_up_after_(give_up_after) {}

  // `since_last`: running time (running_clock.h) since the last call. One look a server, by server.
  void Observe(std::span<const Look> looks, std::chrono::milliseconds since_last);

  // Of the last Observe. kWarn once a stuck call.
  Verdict VerdictOf(size_t server) const { return servers_[server].verdict; }
  std::chrono::milliseconds WaitedFor(size_t server) const { return servers_[server].waited; }

 private:
  struct Server {
    Look last;
    bool stuck = false, by_right = false, warned = false;
    std::chrono::milliseconds waited{0};
    Verdict verdict = Verdict::kFine;
  };

  const std::chrono::milliseconds warn_after_, give_up_after_;
  std::vector<Server> servers_;
};

}  // namespace ramspan
