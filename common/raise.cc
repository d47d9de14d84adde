#include "common/raise.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>

namespace ramspan {
namespace {

constexpr int kNowhere = -1;
constexpr unsigned kPatienceMs = 10'000;  // for another thread's last words

// The words of an error that is under way. Claimed by the thread that throws it, given back by the one that ends it.
struct Place {
  std::atomic<pthread_t> owner{};   // 0: free. Publishes nothing: the words are read by the thread that wrote them
  std::atomic<uint64_t> number{0};  // counts what was raised, so that the latest is known
  char words[1016] = {};
};
std::array<Place, 16> places;
std::atomic<uint64_t> raised{0};

// As a mutex's lock, but a forked child may find it free: it stands around a few instructions that a fork may come between.
class Spin {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};
Spin changes;
int under_way = 0;                                     // guarded by changes
std::atomic<std::terminate_handler> program_s{nullptr};  // written under changes, read at the process's end

const Place* LatestOfThisThread() {
  const Place* latest = nullptr;
  for (const Place& place : places) {
    if (place.owner == pthread_self() && (latest == nullptr || place.number > latest->number)) latest = &place;
  }
  return latest;
}

[[noreturn]] void Terminate() {
  static std::atomic<bool> ending{false};
  // The other thread is at its last words; what would be printed here would be cut off, and cut off what that thread prints.
  if (ending.exchange(true)) {
    for (unsigned waited = 0; waited < kPatienceMs; ++waited) usleep(1000);
  }
  if (std::current_exception() == nullptr) {
    if (const Place* const place = LatestOfThisThread()) {
      std::fprintf(stderr, "ramspan: std::terminate was called while this error was on its way: %s\n", place->words);
      std::fflush(stderr);
    }
  }
  if (const std::terminate_handler before = program_s) before();
  std::abort();
}

int Claim(const char* words) {
  for (int i = 0; i < static_cast<int>(places.size()); ++i) {
    Place& place = places[i];
    pthread_t nobody{};
    if (!place.owner.compare_exchange_strong(nobody, pthread_self())) continue;
    std::strncpy(place.words, words, sizeof place.words - 1);
    place.number = ++raised;
    return i;
  }
  return kNowhere;
}

[[maybe_unused]] const int child_begins_free = pthread_atfork(nullptr, nullptr, [] { changes.unlock(); });

}  // namespace

ErrorUnderWay::ErrorUnderWay(const char* words) noexcept : place_(Claim(words)) {
  const std::lock_guard lock(changes);
  if (under_way++ > 0) return;
  if (const std::terminate_handler before = std::set_terminate(Terminate); before != Terminate) program_s = before;
}

ErrorUnderWay::~ErrorUnderWay() {
  if (place_ != kNowhere) places[place_].owner = pthread_t{};
  const std::lock_guard lock(changes);
  if (--under_way > 0) return;
  // What the program has set since stays.
  if (const std::terminate_handler now = std::set_terminate(program_s); now != Terminate) std::set_terminate(now);
}

}  // namespace ramspan
