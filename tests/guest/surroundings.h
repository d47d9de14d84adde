// What there is in the process around the library, for tests that look at it before and after.
#pragma once

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <locale>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/guest/every_call.h"

namespace guest {

namespace fs = std::filesystem;

inline std::vector<void*> Handlers() {
  std::vector<void*> handlers;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    handlers.push_back(reinterpret_cast<void*>(action.sa_handler));
  }
  return handlers;
}

inline std::map<int, std::string> OpenFiles() {
  std::map<int, std::string> files;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    const fs::path target = fs::read_symlink(entry.path(), gone);
    if (!gone && target.string().find("/fd") == std::string::npos) files[std::stoi(entry.path().filename())] = target;
  }
  return files;
}

inline std::string Surroundings() {
  std::ostringstream text;
  for (char** entry = environ; *entry != nullptr; ++entry) text << *entry << '\n';
  text << fs::current_path() << '\n' << std::setlocale(LC_ALL, nullptr) << ' ' << std::locale().name() << ' '
       << static_cast<const void*>(uselocale(nullptr)) << '\n';
  const mode_t mask = umask(0);
  umask(mask);
  text << "umask " << mask << " nice " << getpriority(PRIO_PROCESS, 0) << '\n';
  for (const int timer : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    itimerval value{};
    getitimer(static_cast<__itimer_which_t>(timer), &value);
    text << value.it_value.tv_sec << '.' << value.it_value.tv_usec << ' ' << value.it_interval.tv_sec << '\n';
  }
  for (int limit = 0; limit < RLIM_NLIMITS; ++limit) {
    rlimit value{};
    getrlimit(static_cast<__rlimit_resource_t>(limit), &value);
    text << limit << ": " << value.rlim_cur << ' ' << value.rlim_max << '\n';
  }
  text << reinterpret_cast<const void*>(std::get_terminate()) << ' ' << reinterpret_cast<const void*>(std::get_new_handler());
  return text.str();
}

// Of the threads of this process but the first: name and blocked signals.
struct OtherThread {
  std::string name;
  uint64_t blocked = 0;  // bit n - 1: signal n
};

inline std::vector<OtherThread> OtherThreads() {
  std::vector<OtherThread> threads;
  for (const auto& task : fs::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    std::ifstream status(task.path() / "status");
    OtherThread thread;
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("Name:", 0) == 0) thread.name = line.substr(6);
      if (line.rfind("SigBlk:", 0) == 0) thread.blocked = std::stoull(line.substr(7), nullptr, 16);
    }
    threads.push_back(thread);
  }
  return threads;
}

// Those that programs handle; the others are the kernel's answers to a thread's own mistakes, or cannot be blocked.
inline void ExpectNoHandlerRunsOn(const OtherThread& thread) {
  for (const int one : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGWINCH}) {
    EXPECT_NE(thread.blocked >> (one - 1) & 1, 0u) << "thread " << thread.name << ", signal " << one;
  }
}

inline void Sweep(std::vector<managedPtr<double>>& data) {
  for (auto& one : data) {
    adhereTo<double> glue(one);
    double* p = glue;
    p[0] += 1;
  }
}

inline std::vector<managedPtr<double>> Swapped() {
  std::vector<managedPtr<double>> data;
  for (int i = 0; i < 256; ++i) data.emplace_back(size_t{8192}, 1.0);  // 16 MiB
  return data;
}

// A thread that allocates gets an arena of its own from glibc: 64 MiB of addresses, pages only for what it uses.
inline size_t Arenas() {
  char* text = nullptr;
  size_t bytes = 0;
  std::FILE* file = open_memstream(&text, &bytes);
  malloc_info(0, file);
  std::fclose(file);
  const std::string all(text, bytes);
  std::free(text);
  size_t arenas = 0;
  for (size_t at = 0; (at = all.find("<heap nr=", at)) != std::string::npos; ++at) ++arenas;
  return arenas;
}

// How deep the calls of `body` go into the stack of a thread, which is painted below it before.
template <class Body>
size_t StackDepthOf(Body body) {
  constexpr size_t kBytes = 512 << 10;
  struct Run {
    Body* body;
    char* memory;
    size_t depth;
  } run = {&body, static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), 0};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, run.memory, kBytes);
  pthread_t thread;
  const auto start = [](void* what) -> void* {
    Run& mine = *static_cast<Run*>(what);
    char* const here = static_cast<char*>(__builtin_frame_address(0));
    constexpr size_t kOwn = 1024;  // of this function and of memset
    std::memset(mine.memory, 0x5a, static_cast<size_t>(here - mine.memory) - kOwn);
    (*mine.body)();
    mine.depth = static_cast<size_t>(here - std::find_if(mine.memory, here, [](char c) { return c != 0x5a; }));
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, start, &run), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  munmap(run.memory, kBytes);
  return run.depth;
}

}  // namespace guest
