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

template <typename Call>
void* NullIfNone(const Call& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

// These four alone know malloc. A program may replace no more than the first and the third, so all others call them by name, as libstdc++'s do.
RAMSPAN_API void* operator new(size_t bytes) { return New(bytes, 0); }
RAMSPAN_API void* operator new(size_t bytes, std::align_val_t alignment) { return New(bytes, static_cast<size_t>(alignment)); }
RAMSPAN_API void operator delete(void* begin) noexcept { free(begin); }
RAMSPAN_API void operator delete(void* begin, std::align_val_t) noexcept { free(begin); }

RAMSPAN_API void* operator new[](size_t bytes) { return ::operator new(bytes); }
RAMSPAN_API void* operator new[](size_t bytes, std::align_val_t alignment) { return ::operator new(bytes, alignment); }
RAMSPAN_API void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return NullIfNone([&] { return ::operator new(bytes); });
}
RAMSPAN_API void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return NullIfNone([&] { return ::operator new[](bytes); });
}
RAMSPAN_API void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return NullIfNone([&] { return ::operator new(bytes, alignment); });
}
RAMSPAN_API void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return NullIfNone([&] { return ::operator new[](bytes, alignment); });
}

RAMSPAN_API void operator delete[](void* begin) noexcept { ::operator delete(begin); }
RAMSPAN_API void operator delete(void* begin, size_t) noexcept { ::operator delete(begin); }
RAMSPAN_API void operator delete[](void* begin, size_t) noexcept { ::operator delete[](begin); }
RAMSPAN_API void operator delete(void* begin, const std::nothrow_t&) noexcept { ::operator delete(begin); }
RAMSPAN_API void operator delete[](void* begin, const std::nothrow_t&) noexcept { ::operator delete[](begin); }
RAMSPAN_API void operator delete[](void* begin, std::align_val_t alignment) noexcept { ::operator delete(begin, alignment); }
RAMSPAN_API void operator delete(void* begin, size_t, std::align_val_t alignment) noexcept { ::operator delete(begin, alignment); }
RAMSPAN_API void operator delete[](void* begin, size_t, std::align_val_t alignment) noexcept { ::operator delete[](begin, alignment); }
RAMSPAN_API void operator delete(void* begin, std::align_val_t alignment, const std::nothrow_t&) noexcept { ::operator delete(begin, alignment); }
RAMSPAN_API void operator delete[](void* begin, std::align_val_t alignment, const std::nothrow_t&) noexcept { ::operator delete[](begin, alignment); }
