// What a busy machine is made of, and what a run costs on it: processes that only compute, at the same priority as the
// benchmark, and the CPU time of this process and of the memory servers beside it.
// Thread-safety: none; the main thread's. A Load owns its processes; they end with it, also when this process is killed.
#pragma once

#include <sys/types.h>

#include <vector>

namespace ramspan::bench {

class Load {
 public:
  // Makes `processes` of them, which rest until Run. REQUIRES: the library has not been used and MPI is not initialised
  // yet, because this forks. Throws std::runtime_error when a process cannot be made.
  explicit Load(int processes);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void Run();
  // Returns when all of them have stopped.
  void Rest();
  int processes() const { return static_cast<int>(spinners_.size()); }

 private:
  void End();
  std::vector<pid_t> spinners_;
};

// Seconds of CPU time, user and system together, of this process with all of its threads.
double ProcessCpuSeconds();
// The same of the memory servers of this job on this host: the processes of those names with the same parent. 0 without any.
double ServerCpuSeconds();
// The longest time for which another thread of the same priority may keep a core: a scheduler's slice, as this kernel's
// tick allows it. In seconds.
double TimeSliceSeconds();

}  // namespace ramspan::bench
