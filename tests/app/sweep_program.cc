// sweep_program BYTES CHUNK_BYTES THREADS PINS SWEEPS: writes a pattern into managedPtrs, sweeps over them SWEEPS times
// (each sweep verifies the last one's pattern and writes its own; 0: until a file named stop appears), verifies the last
// and prints "verified N bytes". Each thread holds PINS chunks at a time. Threads meet when each holds half of its
// first PINS, so that more pins than the limit are sure to get stuck. No MPI: any program may be run as ranks.
// After the first sweep it writes its process id into the file $RAMSPAN_TEST_READY/rank-N, for tests.
#include <ramspan/managed_ptr.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using ramspan::adhereTo;
using ramspan::managedPtr;

namespace {

struct Task {
  size_t words_per_chunk, threads, pins;
  unsigned long sweeps;
  std::vector<managedPtr<uint64_t>> chunks;
};

uint64_t rank_number = 0;

uint64_t Pattern(size_t chunk, size_t word, unsigned long sweep) {
  return (rank_number << 56) ^ (uint64_t{sweep} << 40) ^ (chunk * 0x9e3779b97f4a7c15u) ^ (word * 0x2545f491u);
}

void Verify(const uint64_t* words, const Task& task, size_t chunk, unsigned long sweep) {
  for (size_t k = 0; k < task.words_per_chunk; ++k) {
    if (words[k] != Pattern(chunk, k, sweep)) throw std::logic_error("WRONG DATA in chunk " + std::to_string(chunk));
  }
}

// One thread's part of sweep number `sweep`: groups of PINS chunks, every THREADS-th group.
void Sweep(Task& task, size_t thread, unsigned long sweep, std::barrier<>& half_pinned) {
  for (size_t first = thread * task.pins; first < task.chunks.size(); first += task.threads * task.pins) {
    std::vector<adhereTo<uint64_t>> glue;
    glue.reserve(task.pins);
    for (size_t c = first; c < std::min(first + task.pins, task.chunks.size()); ++c) {
      if (sweep == 0 && first == thread * task.pins && c == first + task.pins / 2) half_pinned.arrive_and_wait();
      glue.emplace_back(task.chunks[c]);
      uint64_t* words = glue.back();
      if (sweep > 0) Verify(words, task, c, sweep - 1);
      for (size_t k = 0; k < task.words_per_chunk; ++k) words[k] = Pattern(c, k, sweep);
    }
  }
}

void SweepAll(Task& task, unsigned long sweep) {
  std::vector<std::exception_ptr> errors(task.threads);
  std::vector<std::thread> team;
  std::barrier half_pinned(static_cast<std::ptrdiff_t>(task.threads));
  for (size_t t = 0; t < task.threads; ++t) {
    team.emplace_back([&, t] {
      try {
        Sweep(task, t, sweep, half_pinned);
      } catch (...) {
        errors[t] = std::current_exception();
      }
      half_pinned.arrive_and_drop();  // for those who wait, where this thread had nothing to do or failed
    });
  }
  for (std::thread& thread : team) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

std::string TestFile(const std::string& name) {
  const char* folder = std::getenv("RAMSPAN_TEST_READY");
  return folder == nullptr ? "" : std::string(folder) + "/" + name;
}

void SayReady() {
  const std::string path = TestFile("rank-" + std::to_string(rank_number));
  if (path.empty()) return;
  std::ofstream(path + ".new") << getpid() << '\n';  // whoever sees the file sees all of it
  std::rename((path + ".new").c_str(), path.c_str());
}

void Run(Task& task, size_t bytes) {
  for (size_t at = 0; at < bytes; at += task.words_per_chunk * 8) task.chunks.emplace_back(task.words_per_chunk);
  unsigned long sweep = 0;
  SweepAll(task, sweep);
  const auto stopped = [] { return access(TestFile("stop").c_str(), F_OK) == 0; };
  while (task.sweeps == 0 ? !stopped() : sweep < task.sweeps) {
    SweepAll(task, ++sweep);
    if (sweep == 1) SayReady();
  }
  for (size_t c = 0; c < task.chunks.size(); ++c) {
    ADHERETOLOCCONST(uint64_t, task.chunks[c], words);
    Verify(words, task, c, sweep);
  }
  std::printf("verified %zu bytes\n", task.chunks.size() * task.words_per_chunk * 8);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: sweep_program BYTES CHUNK_BYTES THREADS PINS SWEEPS\n");
    return 2;
  }
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (const char* rank = std::getenv("PMI_RANK")) rank_number = std::strtoull(rank, nullptr, 10);
  try {
    Task task{number(2) / 8, number(3), number(4), static_cast<unsigned long>(number(5)), {}};
    Run(task, number(1));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sweep_program: %s\n", error.what());
    return 1;
  }
  return 0;
}
