#include "tests/support/heap_watch.h"

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

namespace ramspan {
namespace {

thread_local bool t_counting = false;
thread_local int t_count = 0;
thread_local uint64_t* t_random = nullptr;  // null: nothing is refused
thread_local uint32_t t_one_in = 1;
std::atomic<uint64_t> refused_ever{0};

bool Refuses() {
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

UnwatchedHeap::UnwatchedHeap() : counting_(std::exchange(t_counting, false)), random_(std::exchange(t_random, nullptr)) {}
UnwatchedHeap::~UnwatchedHeap() {
  t_counting = counting_;
  t_random = random_;
}

}  // namespace ramspan

void* operator new(size_t bytes) { return ramspan::Allocate(bytes); }
void* operator new[](size_t bytes) { return ramspan::Allocate(bytes); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }
