#include "launch/job.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "common/check.h"
#include "common/running_clock.h"
#include "launch/process.h"

namespace ramspan {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kServersMayTake = 15 * kSecond;  // to leave, after the application; giving pages back takes time
constexpr int64_t kMixedUseMayTake = 3 * kSecond;
constexpr int64_t kSignalMayTake = 5 * kSecond;
constexpr int64_t kReportMayBeLate = kSecond;  // a keeper's report of a death, on a machine under heavy load

int StatusOf(const RankEnd& end) { return end.signal != 0 ? 128 + end.signal : end.code; }

// What a user can do about a signal that the kernel sends when a limit is reached.
std::string Remedy(int signal_number) {
  switch (signal_number) {
    case SIGKILL: return "; if the kernel ran out of memory (dmesg), lower --memory or --server-memory";
    case SIGXFSZ: return "; a file grew beyond the limit of file sizes: raise it (ulimit -f, in kilobytes or blocks)";
    case SIGXCPU: return "; it used more CPU time than the limit allows: raise it (ulimit -t, in seconds)";
    case SIGBUS: return "; a file in memory may have found no room: look at df /dev/shm, and at df $TMPDIR. (With --pages: or a stack that is swapped was needed by the kernel, docs/pages.md)";
    default: return "";
  }
}

}  // namespace

Job::Job(int ranks, int servers, std::string app_name)
    : ranks_(ranks), app_name_(std::move(app_name)), rank_(static_cast<size_t>(ranks + servers)) {}

void Job::OnHello(int rank, const std::string& host) {
  rank_[static_cast<size_t>(rank)].host = host;
  ++heard_;
}

void Job::OnPid(int rank, long pid) { rank_[static_cast<size_t>(rank)].pid = pid; }

void Job::OnMpiInit(int rank) { rank_[static_cast<size_t>(rank)].in_mpi = true; }

void Job::OnEnd(int rank, const RankEnd& end) {
  rank_[static_cast<size_t>(rank)].end = end;
  // What was killed by our own order explains nothing.
  const bool by_our_order = killing_ && (end.ordered || end.at_ns >= killed_at_ns_ + kReportMayBeLate ||
                                         (end.signal != SIGKILL && end.at_ns >= killed_at_ns_));
  if (!by_our_order && !IsServer(rank)) OnAppEnd(rank, end);
  if (!by_our_order && IsServer(rank) && !end.ok() && !ending_servers_) {
    if (killing_ || AnyRunning(0, ranks_)) {
      Fail({end.at_ns, StatusOf(end), FailureText(rank, end), end.signal == SIGKILL && !end.ordered});
    } else {
      notes_.push_back(Name(rank) + " failed after the application had ended");
    }
  }
  AfterAnyEnd();
}

void Job::OnAppEnd(int rank, const RankEnd& end) {
  const bool others_run = AnyRunning(0, ranks_);
  const bool within_mpi = rank_[static_cast<size_t>(rank)].in_mpi && !end.left_mpi;
  if (end.ok()) {
    if (within_mpi && others_run) {
      Fail(end.at_ns, 1, Name(rank) + " ended without MPI_Finalize while others were at work; all were ended");
    }
    return;
  }
  if (end.left_mpi && end.signal == 0) {
    if (late_status_ == 0) late_status_ = end.code;
    return;
  }
  // A shell says nothing about a status either; with several ranks the user wants to know which one it was.
  const bool speak = end.signal != 0 || rank_.size() > 1;
  Fail({end.at_ns, StatusOf(end), speak ? FailureText(rank, end) : "", end.signal == SIGKILL && !end.ordered,
        /*unexplained=*/false, end.signal == 0 && within_mpi ? rank : -1});
}

void Job::AfterAnyEnd() {
  if (killing_ || ending_servers_ || AnyRunning(0, ranks_) || !AnyRunning(ranks_, size())) return;
  const bool used_mpi =
      std::any_of(rank_.begin(), rank_.begin() + ranks_, [](const Rank& one) { return one.in_mpi; });
  if (used_mpi) {
    if (!end_servers_at_ns_) end_servers_at_ns_ = running_ns_ + kServersMayTake;
    return;
  }
  notes_.push_back(app_name_ + " ended without using Ramspan or MPI; the memory servers had nothing to do");
  ending_servers_ = true;
}

void Job::OnKeeperLost(int rank, int64_t now_ns) {
  Rank& one = rank_[static_cast<size_t>(rank)];
  if (one.end || one.lost) return;
  one.lost = true;
  const bool needed = !IsServer(rank) || AnyRunning(0, ranks_);
  if (killing_ || !needed) return;
  // mpiexec ends all of its processes at once for many reasons, also for its own; which one it was cannot be seen here.
  Fail({now_ns, 128 + SIGKILL,
        Name(rank) + " was lost: its keeper (the process that starts it) ended without a report. Either it or mpiexec's "
                     "hydra_pmi_proxy was killed, or mpiexec gave up; what mpiexec said about it is above, if anything",
        false, /*unexplained=*/true});
}

void Job::OnCannotStart(std::string why, int64_t now_ns) {
  if (killing_) return;
  Fail({now_ns, 1, std::to_string(heard_) + " of " + std::to_string(size()) + " ranks have started: " + std::move(why),
        false, /*unexplained=*/true});
}

void Job::OnMpiexecEnd(int wait_status, int64_t now_ns) {
  mpiexec_status_ = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  if (WIFSIGNALED(wait_status) && !killing_ && AnyRunning(0, size())) {
    Fail(now_ns, *mpiexec_status_, "mpiexec was killed by " + DescribeSignal(WTERMSIG(wait_status)));
  }
}

void Job::OnSignal(int signal_number) {
  if (first_signal_ == 0) {
    first_signal_ = signal_number;
    signal_deadline_ns_ = running_ns_ + kSignalMayTake;
    return;
  }
  signal_deadline_ns_ = running_ns_;
}

void Job::OnTick(int64_t now_ns) {
  using std::chrono::nanoseconds;
  if (last_tick_ns_ != 0) running_ns_ += RunningClock::Step(nanoseconds(last_tick_ns_), nanoseconds(now_ns)).count();
  last_tick_ns_ = now_ns;
  if (signal_deadline_ns_ && running_ns_ >= *signal_deadline_ns_ && !killing_) {
    killing_ = true;
    killed_at_ns_ = now_ns;
  }
  if (end_servers_at_ns_ && running_ns_ >= *end_servers_at_ns_ && !end_servers() && AnyRunning(ranks_, size())) {
    notes_.push_back("a memory server was still there long after the application had ended; it was killed");
    ending_servers_ = true;
  }
  CheckMixedUse(now_ns);
}

// An MPI_Init that waits for a rank which has ended would wait for ever.
void Job::CheckMixedUse(int64_t now_ns) {
  int absent = -1, waiting = -1;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Rank& one = rank_[static_cast<size_t>(rank)];
    if (one.end && !one.in_mpi) absent = rank;
    if (one.in_mpi && Running(rank)) waiting = rank;
  }
  if (absent < 0 || waiting < 0 || killing_) {
    mixed_since_ns_.reset();
    return;
  }
  if (!mixed_since_ns_) mixed_since_ns_ = running_ns_;
  if (running_ns_ - *mixed_since_ns_ < kMixedUseMayTake) return;
  Fail(now_ns, 1, Name(absent) + " ended without MPI_Init, for which " + Name(waiting) + " would wait for ever");
}

void Job::Fail(Failure failure) {
  failures_.push_back(std::move(failure));
  if (killing_) return;
  killing_ = true;
  killed_at_ns_ = failures_.back().at_ns;
}

const Job::Failure& Job::Cause() const {
  const auto before = [](const Failure& a, const Failure& b) {
    return a.at_ns - (a.from_outside ? kReportMayBeLate : 0) < b.at_ns - (b.from_outside ? kReportMayBeLate : 0);
  };
  return *std::min_element(failures_.begin(), failures_.end(), before);
}

bool Job::Running(int rank) const {
  const Rank& one = rank_[static_cast<size_t>(rank)];
  return !one.end && !one.lost;
}

bool Job::AnyRunning(int first, int last) const {
  for (int rank = first; rank < last; ++rank) {
    if (Running(rank)) return true;
  }
  return false;
}

std::string Job::Name(int rank) const {
  const Rank& one = rank_[static_cast<size_t>(rank)];
  const std::string where = one.host.empty() ? "" : "pid " + std::to_string(one.pid) + " on " + one.host;
  if (IsServer(rank)) return "memory server rank " + std::to_string(rank) + (where.empty() ? "" : " (" + where + ")");
  return "rank " + std::to_string(rank) + " (" + app_name_ + (where.empty() ? "" : ", " + where) + ")";
}

std::string Job::FailureText(int rank, const RankEnd& end) const {
  if (!IsServer(rank)) {
    std::string text = Name(rank);
    text += end.signal != 0 ? " was killed by " + DescribeSignal(end.signal)
                            : " exited with status " + std::to_string(end.code);
    return text + Remedy(end.signal);
  }
  const std::string number = "memory server rank " + std::to_string(rank);
  if (end.signal == 0) return number + " failed with status " + std::to_string(end.code) + "; the job was ended";
  if (end.signal != SIGKILL) {
    return number + " was killed by " + DescribeSignal(end.signal) + "; the chunks that it held are lost" +
           Remedy(end.signal);
  }
  return number + " was killed by signal " + std::to_string(end.signal) +
         "; the chunks that it held are lost. Remedy: start the job again; if the kernel killed it for lack of memory "
         "(dmesg), lower --server-memory or --memory, or run without servers (-s 0)";
}

// MPI_Abort on a communicator other than MPI_COMM_WORLD (with servers: the program's) is no word to mpiexec. MPICH tells the other ranks,
// each exits with the status, and who is the first to end is chance.
std::string Job::WhoExitedAlike(const Failure& cause) const {
  if (cause.exited_within_mpi < 0) return "";
  int others = 0, last = -1;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Rank& one = rank_[static_cast<size_t>(rank)];
    const bool alike = one.end && one.in_mpi && !one.end->left_mpi && one.end->signal == 0 && one.end->code == cause.status &&
                       one.end->at_ns - cause.at_ns < kReportMayBeLate;
    if (rank == cause.exited_within_mpi || !alike) continue;
    ++others;
    last = rank;
  }
  if (others == 0) return "";
  const std::string who = others == 1 ? "rank " + std::to_string(last) : std::to_string(others) + " other ranks";
  return ", and so did " + who + " within a second; if that was MPI_Abort, what MPI says above names the rank that called it";
}

Job::Verdict Job::VerdictAfterSignal() const {
  Verdict verdict{0, notes_, true};
  for (int rank = 0; rank < ranks_; ++rank) {
    const Rank& one = rank_[static_cast<size_t>(rank)];
    if (!one.end || one.end->signal != 0) return {128 + first_signal_, notes_, true};
    if (verdict.status == 0) verdict.status = one.end->code;
  }
  return verdict;
}

Job::Verdict Job::Finish() const {
  if (first_signal_ != 0) return VerdictAfterSignal();
  Verdict verdict{late_status_, notes_, true};
  if (!failures_.empty()) {
    const Failure& cause = Cause();
    verdict.status = cause.status;
    verdict.explained = !cause.unexplained;
    if (!cause.message.empty()) verdict.messages.push_back(cause.message + WhoExitedAlike(cause));
    return verdict;
  }
  return AnyRunning(0, ranks_) ? VerdictOfMpiexec(std::move(verdict)) : verdict;
}

// Of some ranks nothing was ever heard (hosts from which we cannot be reached): mpiexec's word is all there is. That all
// is well it cannot know: each rank reports its end to us before mpiexec can see it.
Job::Verdict Job::VerdictOfMpiexec(Verdict verdict) const {
  verdict.explained = false;
  verdict.status = mpiexec_status_.value_or(1);
  if (verdict.status != 0) {
    if (!started()) {
      verdict.messages.push_back("mpiexec ended with status " + std::to_string(verdict.status) +
                                 " and started no rank; what it said is above. If it lacked processes: " + ProcessLimits());
    }
    return verdict;
  }
  verdict.status = 1;
  std::string who = started() ? "a rank" : "all ranks";
  for (int rank = 0; started() && rank < ranks_; ++rank) {
    if (Running(rank)) who = "rank " + std::to_string(rank);
  }
  verdict.messages.push_back("mpiexec ended with status 0, but " + who +
                             " of the job never reported, so that nothing may have run. Remedy: give MPICH's mpiexec "
                             "(hydra) by --mpiexec PATH; on a cluster its hosts must reach this one by TCP");
  return verdict;
}

}  // namespace ramspan
