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
  // Nothing, and the reason with its remedy, where there is no memory controller that this user may write to.
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

 private:
  explicit MemoryCgroup(std::string directory) : directory_(std::move(directory)) {}
  void Remove();

  std::string directory_;
};

}  // namespace ramspan::bench
