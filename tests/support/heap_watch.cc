#include "tests/support/heap_watch.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace ramspan {
namespace {

thread_local bool t_counting = false;
thread_local int t_count = 0;
thread_local uint64_t* t_random = nullptr;  // null: nothing is refused
thread_local uint32_t t_one_in = 1;
thread_local int t_left = -1;  // allocations until the heap ends; -1: it does not
thread_local bool t_ended = false;
std::atomic<uint64_t> refused_ever{0};

// Of HeaplessThreads. Names that were refused something, for who waits for that: the library has few of them.
std::atomic<const char*> heapless{nullptr};
struct RefusedThread {
  std::atomic<bool> taken{false}, named{false};
  char name[16] = "";
  std::atomic<uint64_t> refused{0};
};
std::array<RefusedThread, 16> refused_threads;

bool IsHeapless() {
  const char* const begin = heapless.load(std::memory_order_acquire);
  char name[16] = "";
  if (begin == nullptr || pthread_getname_np(pthread_self(), name, sizeof name) != 0 || std::strncmp(name, begin, std::strlen(begin)) != 0) return false;
  for (RefusedThread& one : refused_threads) {
    if (!one.taken.exchange(true)) {
      std::memcpy(one.name, name, sizeof name);
      one.named = true;
    }
    while (!one.named) {
    }
    if (std::strcmp(one.name, name) != 0) continue;
    ++one.refused;
    return true;
  }
  return true;
}

bool Refuses() {
  if (IsHeapless()) return true;
  if (t_left == 0) return t_ended = true;
  if (t_left > 0) --t_left;
  if (t_random == nullptr) return false;
  uint64_t& x = *t_random;  // xorshift: a generator of the library's might allocate
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  if ((x >> 20) % t_one_in != 0) return false;
  ++refused_ever;
  return true;
}

void* Allocate(size_t bytes) {
  if (t_counting) ++t_count;
  void* at = Refuses() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

}  // namespace

CountedHeap::CountedHeap() {
  t_counting = true;
  t_count = 0;
}
CountedHeap::~CountedHeap() { t_counting = false; }
int CountedHeap::count() { return t_count; }

ScarceHeap::ScarceHeap(uint64_t* random, uint32_t one_in) {
  t_one_in = one_in;
  t_random = random;
}
ScarceHeap::~ScarceHeap() { t_random = nullptr; }
uint64_t ScarceHeap::refused() { return refused_ever; }
void ScarceHeap::MayThrow() {
  if (Refuses()) throw std::bad_alloc();
}

EndingHeap::EndingHeap(int given) {
  t_ended = false;
  t_left = given;
}
EndingHeap::~EndingHeap() { t_left = -1; }
bool EndingHeap::refused() { return t_ended; }

HeaplessThreads::HeaplessThreads(const char* name) { heapless.store(name, std::memory_order_release); }
HeaplessThreads::~HeaplessThreads() { heapless.store(nullptr); }
uint64_t HeaplessThreads::refused(const char* name) {
  for (const RefusedThread& one : refused_threads) {
    if (one.named && std::strcmp(one.name, name) == 0) return one.refused;
  }
  return 0;
}

UnwatchedHeap::UnwatchedHeap()
    : counting_(std::exchange(t_counting, false)), random_(std::exchange(t_random, nullptr)), left_(std::exchange(t_left, -1)) {}
UnwatchedHeap::~UnwatchedHeap() {
  t_counting = counting_;
  t_random = random_;
  t_left = left_;
}

}  // namespace ramspan

void* operator new(size_t bytes) { return ramspan::Allocate(bytes); }
void* operator new[](size_t bytes) { return ramspan::Allocate(bytes); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }
