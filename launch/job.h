// Job: what the launcher knows about a running job, and what it decides. A pure state machine: events in (with their
// time), orders and a verdict out; run.cc carries the orders out.
//
// | event                                                     | order                | verdict                          |
// |-----------------------------------------------------------|----------------------|----------------------------------|
// | an app rank fails, or ends within MPI                     | kill all             | its status; 1 if that was 0      |
// | an app rank leaves MPI properly, then exits with N != 0   | -                    | the first such N                 |
// | a server fails while app ranks run                        | kill all             | its status, a remedy             |
// | all app ranks have ended, none has used MPI               | end the servers      | as without servers               |
// | all app ranks have ended well, a server is still there    | end it after a while | 0, a note                        |
// | an app rank ends without MPI_Init, another waits in it    | kill all, after 3 s  | 1, an explanation                |
// | a keeper vanishes without a report, mpiexec dies          | kill all             | 128 + signal; 1 if unknown       |
// | mpiexec ends well, but an app rank was never heard of     | -                    | 1, an explanation                |
// | a signal to the launcher                                  | forward to app ranks | the app's; 128 + signal if killed|
// | 5 s later, or a second signal                             | kill all             | 128 + signal                     |
//
// Of several failures the earliest is the cause; the others follow from it. But a rank that something outside the job
// killed (SIGKILL) comes before ranks that ended up to a second earlier: they may have noticed its death, and their
// keepers may have been faster to tell. No rank's failure makes another rank die of a SIGKILL that nobody here has sent.
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ramspan {

// How a rank's program ended, as its keeper reports it.
struct RankEnd {
  int code = 0;           // exit status, when signal is 0
  int signal = 0;         // what killed it
  bool left_mpi = false;  // called MPI_Finalize
  int64_t at_ns = 0;      // MonotonicNs of the launcher's host
  bool ordered = false;   // its keeper killed it, by our order or because it lost us or mpiexec
  bool ok() const { return code == 0 && signal == 0; }
};

class Job {
 public:
  Job(int ranks, int servers, std::string app_name);

  void OnHello(int rank, const std::string& host);
  void OnPid(int rank, long pid);
  void OnMpiInit(int rank);
  void OnEnd(int rank, const RankEnd& end);
  void OnKeeperLost(int rank, int64_t now_ns);  // no further report will come from this rank
  void OnCannotStart(std::string why, int64_t now_ns);
  void OnMpiexecEnd(int wait_status, int64_t now_ns);
  void OnSignal(int signal_number);
  void OnTick(int64_t now_ns);  // deadlines; call at least every 100 ms

  bool IsServer(int rank) const { return rank >= ranks_; }
  int size() const { return static_cast<int>(rank_.size()); }

  // Orders, sticky once given.
  bool kill_all() const { return killing_; }
  bool end_servers() const { return ending_servers_ || killing_; }
  bool started() const { return heard_ > 0; }  // a keeper has been heard
  int heard() const { return heard_; }         // how many have
  bool told() const { return !AnyRunning(0, size()); }  // each rank's end is known, or no report will come of it

  struct Verdict {
    int status = 0;
    std::vector<std::string> messages;  // for stderr
    bool explained = false;             // the reports account for the status; mpiexec's own banner adds nothing
  };
  // REQUIRES: mpiexec has ended, or will not matter any more.
  Verdict Finish() const;

 private:
  struct Rank {
    long pid = 0;
    std::string host;
    bool in_mpi = false;  // has called MPI_Init
    bool lost = false;
    std::optional<RankEnd> end;
  };
  struct Failure {
    int64_t at_ns;
    int status;
    std::string message;
    bool from_outside = false;  // a SIGKILL that neither we nor hydra sent
    bool unexplained = false;   // mpiexec may know more
    int exited_within_mpi = -1;  // the app rank whose exit status this is, when it had not left MPI
  };

  void Fail(int64_t at_ns, int status, std::string message) { Fail(Failure{at_ns, status, std::move(message)}); }
  void Fail(Failure failure);
  const Failure& Cause() const;
  void OnAppEnd(int rank, const RankEnd& end);
  void AfterAnyEnd();
  void CheckMixedUse(int64_t now_ns);
  bool Running(int rank) const;
  bool AnyRunning(int first, int last) const;
  std::string Name(int rank) const;
  std::string FailureText(int rank, const RankEnd& end) const;
  std::string WhoExitedAlike(const Failure& cause) const;
  Verdict VerdictAfterSignal() const;
  Verdict VerdictOfMpiexec(Verdict verdict) const;

  const int ranks_;
  const std::string app_name_;
  std::vector<Rank> rank_;
  std::vector<Failure> failures_;
  std::vector<std::string> notes_;
  int heard_ = 0;
  bool killing_ = false;
  int64_t killed_at_ns_ = 0;
  bool ending_servers_ = false;
  // Deadlines count the time during which the launcher itself ran (common/running_clock.h), as its ticks show it.
  int64_t last_tick_ns_ = 0, running_ns_ = 0;
  std::optional<int64_t> end_servers_at_ns_, mixed_since_ns_, signal_deadline_ns_;  // of running_ns_
  int first_signal_ = 0;
  int late_status_ = 0;  // of the first app rank that failed after it had left MPI
  std::optional<int> mpiexec_status_;
};

}  // namespace ramspan
