// A process that belongs to the benchmark: a server, a client, a raw peer. It ends with its object, and when the benchmark is killed.
// Thread-safety: none; the main thread's.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace ramspan::bench {

class Child {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;  // beside this process's own

  // Its stdout is read by ReadLine, and its stdin ends with this process; when this process dies it is killed. words[0] is a path.
  // Throws std::runtime_error.
  static Child Server(std::vector<std::string> words, const Environment& environment = {}) { return Child(std::move(words), environment, true); }
  // It has this process's stdout; when this process dies it gets SIGTERM, so that it may end what it has started in its turn.
  static Child Program(std::vector<std::string> words, const Environment& environment) { return Child(std::move(words), environment, false); }
  // SIGTERM; who has not ended by it in 5 s is killed.
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  // The next line, without its end; waits for it. Empty: there will be none.
  std::string ReadLine();
  // Waits for its end; the exit status, 128 + number of a signal.
  int Wait();

 private:
  Child(std::vector<std::string> words, const Environment& environment, bool server);

  pid_t pid_ = -1;
  int output_ = -1, input_ = -1;
  std::string read_;
};

}  // namespace ramspan::bench
