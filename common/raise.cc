#include "common/raise.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

namespace ramspan {
namespace {

constexpr int kNowhere = -1;
constexpr unsigned kPatienceMs = 10'000;  // for another thread's last words

// The words of an error that is under way. Claimed by the thread that throws it, given back by the one that ends it.
struct Place {
  std::atomic<uint64_t> owner{0};   // 0: free. Publishes nothing: the words are read by the thread that wrote them
  std::atomic<uint64_t> number{0};  // counts what was raised, so that the latest is known
  char words[1016] = {};
};
std::array<Place, 16> places;
std::atomic<uint64_t> raised{0}, threads{0};

uint64_t ThisThread() {  // not pthread_self(), which a later thread may have, too
  static thread_local uint64_t number = 0;
  if (number == 0) number = ++threads;
  return number;
}

// As a mutex's lock, but a forked child may find it free: it stands around a few instructions that a fork may come between.
class Spin {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) usleep(50);  // a thread of higher priority that yields would keep the core
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
    if (place.owner == ThisThread() && (latest == nullptr || place.number > latest->number)) latest = &place;
  }
  return latest;
}

[[noreturn]] void Terminate() {
  static std::atomic<bool> ending{false};
  // The program's handler was set while this one was in place, and calls it.
  static thread_local bool here = false;
  if (std::exchange(here, true)) __gnu_cxx::__verbose_terminate_handler();
  // The other thread is at its last words; what would be printed here would be cut off, and cut off what that thread prints.
  if (ending.exchange(true)) {
    for (unsigned waited = 0; waited < kPatienceMs; ++waited) usleep(1000);
  }
  if (std::current_exception() == nullptr) {
    if (const Place* const place = LatestOfThisThread()) {
      std::fprintf(stderr, "ramspan: std::terminate was called. The latest error of this thread that has not been caught and gone: %s\n", place->words);
      std::fflush(stderr);
    }
  }
  if (const std::terminate_handler before = program_s) before();
  std::abort();
}

int Claim(const char* words) {
  for (int i = 0; i < static_cast<int>(places.size()); ++i) {
    Place& place = places[i];
    uint64_t nobody = 0;
    if (!place.owner.compare_exchange_strong(nobody, ThisThread())) continue;
    std::strncpy(place.words, words, sizeof place.words - 1);
    place.number = ++raised;
    return i;
  }
  return kNowhere;
}

// A child has none of the errors of its parent's other threads. They stay in under_way: the handler is in place for ever there, and does no harm.
[[maybe_unused]] const int child_begins_free = pthread_atfork(nullptr, nullptr, [] {
  changes.unlock();
  for (Place& place : places) {
    if (place.owner != ThisThread()) place.owner = 0;
  }
});

}  // namespace

ErrorUnderWay::ErrorUnderWay(const char* words) noexcept : place_(Claim(words)) {
  const std::lock_guard lock(changes);
  if (under_way++ > 0) return;
  if (const std::terminate_handler before = std::set_terminate(Terminate); before != Terminate) program_s = before;
}

ErrorUnderWay::~ErrorUnderWay() {
  if (place_ != kNowhere) places[place_].owner = 0;
  const std::lock_guard lock(changes);
  if (--under_way > 0) return;
  // What the program has set since stays.
  if (const std::terminate_handler now = std::set_terminate(program_s); now != Terminate) std::set_terminate(now);
}

}  // namespace ramspan
