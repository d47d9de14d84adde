#include "client/preload/own_heap.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>

namespace ramspan::preload {
namespace {

constexpr size_t kPageBytes = 4096, kLeastAlignment = 16, kMostBytes = size_t{1} << 36;

// Before what is given out.
struct Header {
  uint64_t bytes : 36, room : 10, alignment_bits : 4, generation : 14;  // room: in front of it in the pool's block, in 16 bytes
  uint64_t mark;
};
static_assert(sizeof(Header) == kLeastAlignment);
Header* HeaderOf(const void* begin) { return static_cast<Header*>(const_cast<void*>(begin)) - 1; }
// Pools whose blocks are multiples of 16 align them so, whatever they are asked for.
size_t InPool(size_t bytes, size_t most_room) { return (bytes + most_room + kLeastAlignment - 1) & -kLeastAlignment; }
size_t MostRoom(size_t alignment) { return sizeof(Header) + alignment - kLeastAlignment; }
constexpr uint16_t kGenerations = 1 << 14;  // children of children

class Pages final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t) override {  // alignments above a page's are libc's
    const long got = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == -1) throw std::bad_alloc();
    return reinterpret_cast<void*>(got);
  }
  void do_deallocate(void* begin, size_t bytes, size_t) override { syscall(SYS_munmap, begin, bytes); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

// In a page of which each child of this process gets zeros (MADV_WIPEONFORK): a heap that nobody has locked, and that has not begun.
struct Heap {
  std::mutex lock;
  bool has_begun;
  uint16_t generation;
  Pages pages;
  std::pmr::unsynchronized_pool_resource pools;
  std::atomic<Header*> aside;  // given back where nothing may be locked; the next one's address in place of the mark
};
static_assert(sizeof(Heap) <= kPageBytes);

std::atomic<Heap*> the_heap{nullptr};
uint16_t last_generation = 0;  // a child has its parent's
__thread bool t_is_here __attribute__((tls_model("initial-exec"))) = false;

Heap* TheHeap() {
  Heap* heap = the_heap.load(std::memory_order_acquire);
  if (heap != nullptr) return heap;
  const long got = syscall(SYS_mmap, nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == -1) return nullptr;
  auto* const made = reinterpret_cast<Heap*>(got);
  if (syscall(SYS_madvise, got, kPageBytes, MADV_WIPEONFORK) == 0 && the_heap.compare_exchange_strong(heap, made, std::memory_order_acq_rel)) return made;
  syscall(SYS_munmap, got, kPageBytes);
  return heap;
}

// Which Owns no longer knows: it may be read until it is used again.
void GiveBack(Heap* heap, Header* header) {
  heap->pools.deallocate(reinterpret_cast<char*>(header + 1) - header->room * kLeastAlignment, InPool(header->bytes, MostRoom(size_t{1} << header->alignment_bits)), kLeastAlignment);
}

// While a thread is here its calls of malloc are libc's.
class Here {
 public:
  explicit Here(Heap* heap) : lock_(heap->lock) {
    t_is_here = true;
    if (!std::exchange(heap->has_begun, true)) {
      new (&heap->pages) Pages;
      new (&heap->pools) std::pmr::unsynchronized_pool_resource({0, size_t{64} << 10}, &heap->pages);
      heap->generation = last_generation = (last_generation + 1) % kGenerations;
    }
    for (Header* one = heap->aside.exchange(nullptr, std::memory_order_acquire); one != nullptr;) {
      auto* const next = reinterpret_cast<Header*>(one->mark);
      GiveBack(heap, one);
      one = next;
    }
  }
  ~Here() { t_is_here = false; }

 private:
  std::lock_guard<std::mutex> lock_;
};

}  // namespace

void* OwnHeap::AllocateWithin(size_t bytes, size_t alignment) {
  alignment = std::max(alignment, kLeastAlignment);
  Heap* const heap = t_is_here || alignment > kPageBytes || bytes >= kMostBytes ? nullptr : TheHeap();
  if (heap == nullptr) return nullptr;
  try {
    const Here here(heap);
    char* const block = static_cast<char*>(heap->pools.allocate(InPool(bytes, MostRoom(alignment)), kLeastAlignment));
    const uintptr_t begin = (reinterpret_cast<uintptr_t>(block) + sizeof(Header) + alignment - 1) & -alignment;
    auto* const given = reinterpret_cast<void*>(begin);
    *HeaderOf(given) = {.bytes = bytes, .room = (begin - reinterpret_cast<uintptr_t>(block)) / kLeastAlignment, .alignment_bits = static_cast<uint64_t>(std::countr_zero(alignment)),
                        .generation = heap->generation, .mark = kMark ^ begin};
    return given;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void OwnHeap::Free(void* begin) {
  Header* const header = HeaderOf(begin);
  Heap* const heap = the_heap.load(std::memory_order_acquire);
  header->mark = 0;
  if (detail::t_inside_ramspan != 0 && !t_is_here) {
    const Here here(heap);
    if (header->generation == heap->generation) GiveBack(heap, header);
    return;
  }
  if (!heap->has_begun || header->generation != heap->generation) return;  // a parent's. In a child that has not begun nothing of the heap is its own
  Header* next = heap->aside.load(std::memory_order_relaxed);
  do header->mark = reinterpret_cast<uintptr_t>(next);
  while (!heap->aside.compare_exchange_weak(next, header, std::memory_order_release, std::memory_order_relaxed));
}

size_t OwnHeap::Bytes(const void* begin) { return HeaderOf(begin)->bytes; }

}  // namespace ramspan::preload
