// Programs that an error ends, for end_test.cc. usage: end_by_error LIFE, with a memory limit of 3 MiB
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ramspan/managed_array.h"
#include "ramspan/managed_ptr.h"

namespace {

using ramspan::managedPtr;

// The exception leaves the loop, as it must not.
int LeaveOpenMp() {
  ramspan::managedArray<double> a(size_t{1} << 20, 1.0);
  double sum = 0;
  std::atomic<int> have_one{0};
#pragma omp parallel for reduction(+ : sum) num_threads(2) schedule(static)
  for (size_t c = 0; c < a.chunk_count(); ++c) {
    auto b = a.block(c);
    for (++have_one; have_one < 2;) std::this_thread::yield();
    auto behind = a.block((c + 1) % a.chunk_count());
    for (const double x : b) sum += x;
    for (const double x : behind) sum -= x;
  }
  return static_cast<int>(sum);
}

void PinTooMuch() {
  managedPtr<char> large(size_t{64} << 20);
  ramspan::adhereTo<char> glue(large);
  static_cast<char*>(glue)[0] = 1;
}

// The exception meets a thread that nobody has joined, on its way to a handler.
int PassAThread() try {
  std::thread thread([] { sleep(60); });
  PinTooMuch();
  thread.join();
  return 0;
} catch (const std::exception&) {
  return 1;
}

// Exceptions leave functions that must not throw, in many threads at once.
int LeaveManyThreads() {
  std::vector<std::thread> team;
  std::atomic<int> ready{0};
  for (int t = 0; t < 16; ++t) {
    team.emplace_back([&] {
      ++ready;
      while (ready < 16) std::this_thread::yield();
      PinTooMuch();
    });
  }
  for (std::thread& one : team) one.join();
  return 0;
}

[[noreturn]] void First() { _exit(11); }
[[noreturn]] void Second() { _exit(12); }

// The handlers of the program's own, before, meanwhile and after.
int KeepHandlers() {
  std::set_terminate(First);
  try {
    PinTooMuch();
  } catch (const ramspan::OutOfMemory&) {
  }
  if (std::get_terminate() != First) return 1;
  std::exception_ptr kept;
  try {
    PinTooMuch();
  } catch (const ramspan::OutOfMemory&) {
    kept = std::current_exception();
    std::set_terminate(Second);
  }
  kept = nullptr;
  if (std::get_terminate() != Second) return 2;
  try {
    PinTooMuch();
  } catch (const ramspan::OutOfMemory&) {
    std::terminate();
  }
  return 3;
}

std::terminate_handler before_mine;
void CallBefore() { before_mine(); }

// The program's handler calls the one before it, which is the library's own, for it is set while an error is under way.
int CallTheHandlerBefore() {
  try {
    PinTooMuch();
  } catch (const ramspan::OutOfMemory&) {
    before_mine = std::set_terminate(CallBefore);
  }
  PinTooMuch();
  return 0;
}

}  // namespace

int main(int, char** argv) {
  const std::map<std::string, std::function<int()>> lives = {
      {"leave-openmp", LeaveOpenMp}, {"pass-a-thread", PassAThread}, {"leave-many-threads", LeaveManyThreads}, {"keep-handlers", KeepHandlers}, {"call-the-handler-before", CallTheHandlerBefore}};
  return lives.at(argv[1])();
}
