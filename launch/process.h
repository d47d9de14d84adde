// What the launcher needs of processes and descriptors, in thin wrappers around Linux. No state; single-threaded users.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace ramspan {

// Owns a file descriptor. Move-only.
class UniqueFd {
 public:
  explicit UniqueFd(int fd = -1) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Reset();

 private:
  int fd_;
};

struct Pipe {
  UniqueFd read_end, write_end;
};
// With close-on-exec; both ends are empty when there are no descriptors left (errno).
Pipe MakePipe();

// 128 random bits as text.
std::string RandomSecret();

// The executable of this process, and the folder it lies in.
std::string SelfPath();
std::string SelfFolder();

bool IsExecutableFile(const std::string& path);

// A program the way a shell finds it: as it is when the name holds a "/", else along `path` (PATH's notation). The
// error tells "not there" from "not executable" and suggests "./name" where that would work.
Result<std::string> FindProgram(const std::string& name, const std::string& path);

// Says on stderr which limits of this process (ulimit) are so small that they may be why a job failed; nothing where none is.
void TellSmallLimits();

// Why fork() failed, with the limit that the user can raise.
std::string ForkError(int error);
// The limits that make fork() fail, and how to raise them.
std::string ProcessLimits();
// Whether this process could fork now.
bool CanFork();

// "signal 11 (Segmentation fault)"
std::string DescribeSignal(int signal_number);

// A process for good: its number may come again, but not with the same time of start (clock ticks since boot).
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;
};
ProcessId Identify(pid_t pid);
// Neither ended nor a zombie, which holds nothing any more.
bool IsAlive(const ProcessId& process);

// Whether it has been sent a SIGKILL already, or is ending: a process with much memory takes its time.
bool IsEnding(pid_t pid);

// Whether the signal is handled there, or blocked (who takes it by sigwait has it blocked in all threads): else it would end the
// process, or be ignored. Takes 20 ms where it is blocked, up to 1 s where the process stands in the middle of making another one.
bool Hears(pid_t pid, int signal_number);

// The processes that this one has started, and that they have started in their turn. REQUIRES: AdoptOrphans() was called.
std::vector<pid_t> Descendants();

// Makes this process the one that orphans among its descendants fall to.
void AdoptOrphans();

// Reaps all children; those still there after `grace` are killed, and what they leave behind too, until none is left
// (or 5 s have passed: a process in uninterruptible sleep). REQUIRES: AdoptOrphans() was called.
void EndChildren(std::chrono::milliseconds grace);

// Waits for the next signal in the set of BlockSignals() as a descriptor to read siginfo from.
UniqueFd BlockSignals(const std::vector<int>& signals);
// A file that would grow beyond the limit (ulimit -f) is an error of write() from here on, not the end of this process.
// RestoreSignals() undoes it.
void IgnoreFileSizeSignal();

// SIGUSR1 and SIGUSR2 ask programs for reports, and would end whoever does not listen yet, or never does.
// First thing in main: they wait until somebody takes them, or are lost with this process. Release, before this process becomes another
// program, and RestoreSignals() undo it.
void HoldReportSignals();
void ReleaseReportSignals();
// In a new child, before it becomes a server, which has no report to print (`ramspan ctl list` asks it for one): they end it at no time.
void IgnoreReportSignals();

// In a new child, before exec: the dispositions and mask that programs expect. SIGUSR1 and SIGUSR2 that have come already are dropped:
// they ask for a report that a program can give only later.
void RestoreSignals();

// Nanoseconds during which this process ran, for deadlines (common/running_clock.h): a launcher that was stopped, and a
// laptop that slept, are not late. Who waits looks at least twice a second.
int64_t RunningNs();

// Nanoseconds of CLOCK_MONOTONIC, one clock for all processes of a host.
int64_t MonotonicNs();

}  // namespace ramspan
