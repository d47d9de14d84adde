#include "bench/contention_locks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RSBENCH_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RSBENCH_SANITIZED 1
#endif
#endif

namespace ramspan::bench {
namespace {

constexpr size_t kThreadsMax = 256;  // those that come later are not counted
constexpr int kDepthMax = 8;         // mutexes that one thread holds; lock ranks allow fewer

struct Held {
  const void* mutex;
  uint64_t since;
};

// In ticks of the processor's clock. Each thread writes its own.
struct alignas(64) Mine {
  Held held[kDepthMax];
  int depth;
  const void* wanted;  // tried in vain
  uint64_t wanted_since;
  uint64_t any_times, any_ticks, watched_times, watched_ticks, preempted, preempted_ticks, waits, wait_ticks;
};

Mine g_threads[kThreadsMax];
std::atomic<size_t> g_used{0};
// 0: nobody counts. Each Start has another number, and a thread that was counted before it begins anew.
std::atomic<uint64_t> g_round{0};
uint64_t g_rounds = 0;
std::atomic<const void*> g_watched{nullptr};
uint64_t g_preempted_ticks = 0;
double g_ticks_per_ns = 1;

thread_local Mine* t_mine = nullptr;
thread_local uint64_t t_round = 0;
thread_local bool t_watch_next = false;

// Null: this thread is not counted.
Mine* Counted() {
  const uint64_t round = g_round.load(std::memory_order_relaxed);
  if (round == 0) return nullptr;
  if (t_round != round) {
    t_round = round;
    const size_t i = g_used.fetch_add(1, std::memory_order_relaxed);
    t_mine = i < kThreadsMax ? &g_threads[i] : nullptr;
  }
  return t_mine;
}

[[maybe_unused]] void NoteInVain(const void* mutex) {
  Mine* const mine = Counted();
  if (mine == nullptr || mine->wanted == mutex) return;
  mine->wanted = mutex;
  mine->wanted_since = __rdtsc();
}

[[maybe_unused]] void NoteLocked(const void* mutex) {
  if (t_watch_next) {
    t_watch_next = false;
    g_watched.store(mutex, std::memory_order_relaxed);
  }
  Mine* const mine = Counted();
  if (mine == nullptr || mine->depth == kDepthMax) return;
  const uint64_t now = __rdtsc();
  if (mine->wanted == mutex) {
    ++mine->waits;
    mine->wait_ticks += now - mine->wanted_since;
    mine->wanted = nullptr;
  }
  mine->held[mine->depth++] = {mutex, now};
}

[[maybe_unused]] void NoteUnlock(const void* mutex) {
  Mine* const mine = Counted();
  if (mine == nullptr) return;
  int i = mine->depth - 1;
  while (i >= 0 && mine->held[i].mutex != mutex) --i;
  if (i < 0) return;  // held since before it was counted
  const uint64_t now = __rdtsc();
  const uint64_t ticks = now - mine->held[i].since;
  if (mutex == g_watched.load(std::memory_order_relaxed)) {
    ++mine->watched_times;
    mine->watched_ticks += ticks;
  }
  // Of several, the one that was taken first is kept until the last one goes.
  const uint64_t first = mine->held[0].since;
  std::copy(mine->held + i + 1, mine->held + mine->depth, mine->held + i);
  if (--mine->depth > 0) {
    mine->held[0].since = first;
    return;
  }
  ++mine->any_times;
  mine->any_ticks += now - first;
  if (now - first > g_preempted_ticks) {
    ++mine->preempted;
    mine->preempted_ticks += now - first;
  }
}

double TicksPerNs() {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const uint64_t ticks = __rdtsc();
  while (Clock::now() - begin < std::chrono::milliseconds(10)) {
  }
  return static_cast<double>(__rdtsc() - ticks) / static_cast<double>(std::chrono::nanoseconds(Clock::now() - begin).count());
}

}  // namespace

bool LockMeter::Works() {
#ifdef RSBENCH_SANITIZED
  return false;
#else
  return true;
#endif
}

void LockMeter::WatchNext() { t_watch_next = true; }

void LockMeter::Start() {
  std::fill(std::begin(g_threads), std::end(g_threads), Mine{});
  g_used.store(0, std::memory_order_relaxed);
  g_ticks_per_ns = TicksPerNs();
  g_preempted_ticks = static_cast<uint64_t>(kPreemptedUs * 1000 * g_ticks_per_ns);
  g_round.store(++g_rounds, std::memory_order_relaxed);
}

LockMeter::Times LockMeter::Stop() {
  g_round.store(0, std::memory_order_relaxed);
  Times sum;
  for (size_t i = 0; i < std::min(g_used.load(std::memory_order_relaxed), kThreadsMax); ++i) {
    const Mine& mine = g_threads[i];
    const auto ns = [](uint64_t ticks) { return static_cast<double>(ticks) / g_ticks_per_ns; };
    sum.any.times += mine.any_times;
    sum.any.held_ns += ns(mine.any_ticks);
    sum.watched.times += mine.watched_times;
    sum.watched.held_ns += ns(mine.watched_ticks);
    sum.preempted += mine.preempted;
    sum.preempted_ns += ns(mine.preempted_ticks);
    sum.waits += mine.waits;
    sum.wait_ns += ns(mine.wait_ticks);
  }
  return sum;
}

}  // namespace ramspan::bench

#ifndef RSBENCH_SANITIZED
namespace {

// The C library's function of this name, behind this program's.
template <typename F>
F* Real(std::atomic<F*>* known, const char* name) {
  F* real = known->load(std::memory_order_relaxed);
  if (real == nullptr) {
    real = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
    known->store(real, std::memory_order_relaxed);
  }
  return real;
}

constinit std::atomic<int (*)(pthread_mutex_t*)> g_lock{nullptr}, g_trylock{nullptr}, g_unlock{nullptr};

}  // namespace

extern "C" {

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  const int error = Real<int(pthread_mutex_t*)>(&g_trylock, "pthread_mutex_trylock")(mutex);
  error == 0 ? ramspan::bench::NoteLocked(mutex) : ramspan::bench::NoteInVain(mutex);
  return error;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  auto* const trylock = Real<int(pthread_mutex_t*)>(&g_trylock, "pthread_mutex_trylock");
  int error = trylock(mutex);
  if (error != 0) {
    ramspan::bench::NoteInVain(mutex);
    error = Real<int(pthread_mutex_t*)>(&g_lock, "pthread_mutex_lock")(mutex);
  }
  if (error == 0) ramspan::bench::NoteLocked(mutex);
  return error;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  ramspan::bench::NoteUnlock(mutex);
  return Real<int(pthread_mutex_t*)>(&g_unlock, "pthread_mutex_unlock")(mutex);
}

// A wait lets go of the mutex. To get it back is counted as no wait: most of that was for the condition.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  static constinit std::atomic<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)> known{nullptr};
  ramspan::bench::NoteUnlock(mutex);
  const int error = Real<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(&known, "pthread_cond_clockwait")(condition, mutex, clock, until);
  ramspan::bench::NoteLocked(mutex);
  return error;
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until) {
  static constinit std::atomic<int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*)> known{nullptr};
  ramspan::bench::NoteUnlock(mutex);
  const int error = Real<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>(&known, "pthread_cond_timedwait")(condition, mutex, until);
  ramspan::bench::NoteLocked(mutex);
  return error;
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static constinit std::atomic<int (*)(pthread_cond_t*, pthread_mutex_t*)> known{nullptr};
  ramspan::bench::NoteUnlock(mutex);
  const int error = Real<int(pthread_cond_t*, pthread_mutex_t*)>(&known, "pthread_cond_wait")(condition, mutex);
  ramspan::bench::NoteLocked(mutex);
  return error;
}

}  // extern "C"
#endif
