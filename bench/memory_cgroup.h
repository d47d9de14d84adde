// A memory cgroup for one child process, of version 1 or 2, gone when the object is. Needs root, as a rule.
// Thread-safety: none; RunChild blocks signals of the calling thread, so call it before there are others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ramspan::bench {

class MemoryCgroup {
 public:
  // `limit` bytes, or no limit where that is 0. Nothing, and the reason with its remedy, where there is no memory controller that this
  // user may write to.
  static std::optional<MemoryCgroup> Make(uint64_t limit, std::string* why_not);

  MemoryCgroup(MemoryCgroup&& other) noexcept : directory_(std::move(other.directory_)) { other.directory_.clear(); }
  MemoryCgroup& operator=(MemoryCgroup&&) = delete;
  ~MemoryCgroup();  // REQUIRES: its processes have ended

  struct Outcome {
    int status = 0;  // of waitpid
    std::string output;
  };
  // Runs `words` within, to the end; what it writes to stdout, at most 64 KiB, comes back. SIGINT, SIGTERM and SIGHUP kill
  // the child, remove the cgroup and then end this process as they would have.
  Outcome RunChild(std::vector<std::string> words);

  const std::string& directory() const { return directory_; }

  // For a process that makes itself a member, and for those who watch it: of the cgroup whose directory() they were told.
  // Throws std::runtime_error.
  static void Enter(const std::string& directory);
  // What is used now and `more` bytes are the limit from now on, so that what a program is made of does not count. Throws
  // std::runtime_error.
  static void HoldTo(const std::string& directory, uint64_t more);
  struct Use {
    uint64_t anonymous = 0;
    uint64_t page_cache = 0;  // of files
    uint64_t shared = 0;      // of shared memory, tmpfs, memory files
  };
  static Use UseOf(const std::string& directory);

 private:
  explicit MemoryCgroup(std::string directory) : directory_(std::move(directory)) {}
  void Remove();

  std::string directory_;
};

}  // namespace ramspan::bench
