#include "bench/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

extern char** environ;

namespace ramspan::bench {

std::string SelfPath() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : std::string();
}

std::optional<std::string> FindInPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    const std::string candidate = rest.substr(0, colon) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  return std::nullopt;
}

std::string FindProgram(const std::string& name) {
  const std::string self = SelfPath();
  const std::string folder = self.substr(0, self.rfind('/') + 1);
  for (const char* where : {"", "../bin/", "../../bin/"}) {
    const std::string path = folder + where + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return FindInPath(name).value_or("");
}

std::vector<char*> Pointers(std::vector<std::string>* words) {
  std::vector<char*> pointers;
  for (std::string& word : *words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

namespace {

// `output`: the child's stdout, or -1 for this process's own.
int Run(std::vector<std::string> words, const std::string& directory, int output, const std::function<void()>& meanwhile) {
  std::vector<char*> line = Pointers(&words);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!directory.empty()) posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
  if (output >= 0) posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, line[0], &actions, nullptr, line.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (output >= 0) close(output);
  if (error != 0) {
    std::fprintf(stderr, "ramspan-bench: cannot start %s: %s\n", line[0], std::strerror(error));
    return 1;
  }
  meanwhile();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int RunToEnd(std::vector<std::string> words, const std::string& directory) {
  return Run(std::move(words), directory, -1, [] {});
}

int RunForOutput(std::vector<std::string> words, std::string* output) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return 1;
  const int status = Run(std::move(words), "", ends[1], [&] {
    char some[4096];
    for (ssize_t n; (n = read(ends[0], some, sizeof some)) > 0 || (n < 0 && errno == EINTR);) {
      if (n > 0) output->append(some, static_cast<size_t>(n));
    }
  });
  close(ends[0]);
  return status;
}

}  // namespace ramspan::bench
