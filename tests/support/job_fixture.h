// Processes and whole jobs as a user starts them, each test in a folder and an environment of its own: HOME, TMPDIR and no
// RAMSPAN_ variables. After each test nothing may be left: no process, no file in TMPDIR, no segment of shared memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace ramspan {

using Words = std::vector<std::string>;

std::string ReadFile(const std::filesystem::path& path);

struct Outcome {
  int status = -1;  // as a shell's $?
  std::string out, err;
  double seconds = 0;  // from Wait to the end
};

class JobFixture : public testing::Test {
 protected:
  JobFixture();
  ~JobFixture() override;

  // Starts a command line in a process group of its own. `environment` holds NAME=VALUE. The processes find the folder
  // for what Ready reads in RAMSPAN_TEST_READY.
  pid_t StartCommand(Words command, const Words& environment = {}, const std::string& input = "/dev/null");

  // Only what hangs takes so long: a job takes one second or two, and twenty times that on a slow machine that is busy.
  static constexpr std::chrono::seconds kPatience{100};

  // A job that takes longer than `patience` fails the test and is killed.
  Outcome Wait(pid_t pid, std::chrono::seconds patience = kPatience);

  // Looks again and again; whether it became true in time.
  static bool Becomes(const std::function<bool()>& condition, std::chrono::seconds patience = kPatience);

  // The pid that this rank wrote into its file ready/rank-N. Waits for it.
  pid_t Ready(int rank);
  void ClearReady();

  // Also those that a scan of environments misses, because they are in the middle of an exec.
  std::set<pid_t> JobProcesses();
  pid_t JobProcess(const std::string& name);  // by the first 15 characters of its name; -1 if there is none
  static pid_t ParentOf(pid_t pid);
  void ExpectNothingLeft();

  // UCX, when it is loaded, makes a segment of one page and removes it at once. Keepers know a program that a script starts from
  // its first word to hydra on, which comes later: of one that is killed in between a page stays, as without Ramspan.
  void RemoveUcxProbes() const;

  std::filesystem::path folder_;  // with bin, home, ready, tmp

 private:
  void SetChildEnvironment(const Words& environment);
  static std::set<std::string> SharedMemory();

  std::string marker_;
  std::set<std::string> shm_before_;
};

}  // namespace ramspan
