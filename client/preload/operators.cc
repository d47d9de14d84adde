// libramspan-pages, part of what `ramspan run --pages` preloads: C++'s operators new and delete, by the malloc and free here. A program's own allocator
// (jemalloc, mimalloc, tcmalloc) brings its own ones, which would take memory of that allocator and give it to the free here.
//
// As the standard says: new calls the program's new_handler until that gives up, delete of null does nothing. Thread-safety: malloc's.
#include <malloc.h>

#include <cstddef>
#include <cstdlib>
#include <new>

#include "ramspan/detail/resident.h"

namespace {

void* New(size_t bytes, size_t alignment) {
  if (bytes == 0) bytes = 1;  // distinct objects
  for (;;) {
    void* const begin = alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__ ? malloc(bytes) : memalign(alignment, bytes);
    if (begin != nullptr) return begin;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void* NewOrNull(size_t bytes, size_t alignment) noexcept {
  try {
    return New(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

size_t Bytes(std::align_val_t alignment) { return static_cast<size_t>(alignment); }

}  // namespace

RAMSPAN_API void* operator new(size_t bytes) { return New(bytes, 0); }
RAMSPAN_API void* operator new[](size_t bytes) { return New(bytes, 0); }
RAMSPAN_API void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return NewOrNull(bytes, 0); }
RAMSPAN_API void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return NewOrNull(bytes, 0); }
RAMSPAN_API void* operator new(size_t bytes, std::align_val_t alignment) { return New(bytes, Bytes(alignment)); }
RAMSPAN_API void* operator new[](size_t bytes, std::align_val_t alignment) { return New(bytes, Bytes(alignment)); }
RAMSPAN_API void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept { return NewOrNull(bytes, Bytes(alignment)); }
RAMSPAN_API void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept { return NewOrNull(bytes, Bytes(alignment)); }

RAMSPAN_API void operator delete(void* begin) noexcept { free(begin); }
RAMSPAN_API void operator delete[](void* begin) noexcept { free(begin); }
RAMSPAN_API void operator delete(void* begin, size_t) noexcept { free(begin); }
RAMSPAN_API void operator delete[](void* begin, size_t) noexcept { free(begin); }
RAMSPAN_API void operator delete(void* begin, const std::nothrow_t&) noexcept { free(begin); }
RAMSPAN_API void operator delete[](void* begin, const std::nothrow_t&) noexcept { free(begin); }
RAMSPAN_API void operator delete(void* begin, std::align_val_t) noexcept { free(begin); }
RAMSPAN_API void operator delete[](void* begin, std::align_val_t) noexcept { free(begin); }
RAMSPAN_API void operator delete(void* begin, size_t, std::align_val_t) noexcept { free(begin); }
RAMSPAN_API void operator delete[](void* begin, size_t, std::align_val_t) noexcept { free(begin); }
RAMSPAN_API void operator delete(void* begin, std::align_val_t, const std::nothrow_t&) noexcept { free(begin); }
RAMSPAN_API void operator delete[](void* begin, std::align_val_t, const std::nothrow_t&) noexcept { free(begin); }
