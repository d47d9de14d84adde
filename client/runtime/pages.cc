// <ramspan/pages.h>, <ramspan/rs_malloc.h>, and the start of the page mode.
#include "ramspan/pages.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "client/front/pin_registry.h"
#include "client/front/session.h"
#include "client/front/throw_status.h"
#include "client/pages/fault_server.h"
#include "client/pages/fork_copy.h"
#include "client/pages/page_scanner.h"
#include "client/pages/page_space.h"
#include "client/runtime/forked_pages.h"
#include "client/runtime/options.h"
#include "client/runtime/page_call.h"
#include "client/runtime/pages_door.h"
#include "client/runtime/runtime.h"
#include "common/cancel_disabled.h"
#include "common/log.h"
#include "common/public_call.h"
#include "common/raise.h"
#include "ramspan/errors.h"
#include "ramspan/rs_malloc.h"

namespace ramspan {

PageSpace& Runtime::StartPages() {
  const CancelDisabled uncancelled;
  MutexLock lock(pages_mutex_);
  if (PageSpace* space = pages_.load(std::memory_order_acquire)) return *space;
  Result<std::unique_ptr<PageSpace>> made = PageSpace::Create(engine_.get(), {config_.page_block, config_.page_faults, config_.page_moves, detail::PagesAboveOfUnmodified() != 0});
  if (!made.ok()) Raise(ConfigError(made.status().message()));
  auto* const server = new FaultServer(made.value().get(), PinRegistry::Get().threads());
  if (Status status = server->Start(); !status.ok()) Raise(ConfigError(status.message()));
  PageSpace* const space = std::move(made).value().release();  // for ever: pages are used until the process ends
  forked_pages::Start(space);
  const std::string mask = SwapfileMask(config_);
  const size_t slash = mask.rfind('/');
  ForkCopy::Open(space, {.folder = slash == std::string::npos ? "." : mask.substr(0, slash + 1), .copies = config_.page_children});
  forked_pages::RegisterHandlers();
  PublicCall::BeginPages(space->homes().begin, space->homes().bytes);
  scanner_->SetSpace(space);
  pages_.store(space, std::memory_order_release);
  return *space;
}

namespace {

// As malloc says it, and the reason once.
template <typename F>
void* OrNull(const F& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) LogWarning("memory that is swapped by pages is not to be had: there are no addresses left for as many bytes; is a count a negative number?");
  } catch (const std::exception& e) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) LogWarning("memory that is swapped by pages is not to be had: %s", e.what());
  }
  errno = ENOMEM;
  return nullptr;
}

constexpr size_t kLeast = size_t{64} << 10;  // below it, malloc

}  // namespace

void* AllocatePages(size_t bytes, size_t alignment) {
  if (!std::has_single_bit(alignment)) ThrowStatus(InvalidArgument("AllocatePages: an alignment of " + std::to_string(alignment) + " bytes is no power of two"));
  if (Session::InForkedChild()) {  // which has no servers and no thread that moves data: malloc's
    if (bytes > SIZE_MAX - alignment) throw std::bad_alloc();
    void* const begin = aligned_alloc(std::max(alignment, alignof(std::max_align_t)), std::max<size_t>((bytes + alignment - 1) / alignment * alignment, 1));
    if (begin == nullptr) throw std::bad_alloc();
    return memset(begin, 0, bytes);
  }
  const size_t least = std::max<size_t>(bytes, 1);
  void* begin = nullptr;
  {
    const PageCall call;
    RefuseWithinProgramCode("AllocatePages");
    begin = AsPublicCall([&] {
      PageSpace& started = Runtime::Get().pages();
      return call.space() == nullptr ? started.Allocate(least, alignment) : call.Run([least, alignment](PageSpace& space) { return space.Allocate(least, alignment); });
    });
  }
  if (begin == nullptr) throw std::bad_alloc();  // not by AsPublicCall: it would be told of the heap
  return begin;
}

void FreePages(void* begin) noexcept {
  if (begin == nullptr) return;
  if (Session::InForkedChild()) return IsPaged(begin) ? forked_pages::Free(begin) : free(begin);
  const PageCall call;
  if (call.space() == nullptr || !call.space()->Owns(begin)) {
    LogWarning("the process ends: the program calls FreePages(%p), which is not memory of AllocatePages", begin);
    std::abort();
  }
  call.Run([begin](PageSpace& space) { space.Free(begin); });
}

bool IsPaged(const void* address) noexcept { return forked_pages::IsHome(address); }

size_t PagedBytes(const void* begin) noexcept {
  PageSpace* const space = Session::InForkedChild() ? forked_pages::Space() : PagesIfStarted();
  return space != nullptr && IsPaged(begin) ? space->BytesOf(begin) : 0;
}

void advise(const void* begin, size_t bytes, advice what) noexcept {
  if (!IsPaged(begin) || Session::InForkedChild()) return;
  const PageCall call;
  call.Run([begin, bytes, what, runtime = Runtime::IfStarted()](PageSpace& space) {
    if (what == advice::sequential || what == advice::random) space.ExpectUse(begin, bytes, what == advice::random);
    space.ForEachChunk(begin, bytes, [&](Chunk* chunk, const std::atomic<Chunk*>* place) { runtime->engine().Advise(chunk, what, place); });
  });
}

void discard(void* begin, size_t bytes) noexcept {
  if (!IsPaged(begin) || bytes == 0) return;
  if (Session::InForkedChild()) return forked_pages::Discard(static_cast<char*>(begin), bytes);
  const PageCall call;
  call.Run([begin, bytes](PageSpace& space) { space.Discard(begin, bytes); });
}

PageStatistics GetPageStatistics() noexcept {
  PageSpace* const space = PagesIfStarted();
  if (space == nullptr) return {};
  const PageSpace::Counters counters = space->counters();
  return {.block_bytes = space->unit_bytes(),
          .faults = counters.faults,
          .blocks_in = counters.moves_home,
          .blocks_out = counters.moves_away,
          .zero_blocks = counters.zero_blocks,
          .stuck = counters.stuck,
          .adapts = space->adapts(),
          .merges = counters.merges,
          .splits = counters.splits,
          .serves_system_calls = space->userfault().serves_system_calls(),
          .copies = !space->userfault().moves()};
}

}  // namespace ramspan

using ramspan::AllocatePages;
using ramspan::IsPaged;
using ramspan::OrNull;
using ramspan::PagedBytes;

extern "C" {

RAMSPAN_API void* rs_aligned_alloc(size_t alignment, size_t bytes) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  if (bytes < ramspan::kLeast) return aligned_alloc(std::max(alignment, alignof(std::max_align_t)), (bytes + alignment - 1) & ~(alignment - 1));
  return OrNull([&] { return AllocatePages(bytes, alignment); });
}

RAMSPAN_API void* rs_malloc(size_t bytes) {
  return bytes < ramspan::kLeast ? malloc(bytes) : OrNull([&] { return AllocatePages(bytes); });
}

RAMSPAN_API void* rs_calloc(size_t count, size_t bytes) {
  size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) {
    errno = ENOMEM;
    return nullptr;
  }
  return all < ramspan::kLeast ? calloc(count, bytes) : rs_malloc(all);
}

RAMSPAN_API void rs_free(void* begin) { IsPaged(begin) ? ramspan::FreePages(begin) : free(begin); }

RAMSPAN_API void* rs_realloc(void* begin, size_t bytes) {
  if (begin == nullptr) return rs_malloc(bytes);
  if (!IsPaged(begin) && bytes < ramspan::kLeast) return realloc(begin, bytes);
  if (IsPaged(begin) && bytes >= ramspan::kLeast && !ramspan::Session::InForkedChild()) {
    void* const moved = ramspan::detail::ReallocatePages(begin, bytes);
    if (moved == nullptr) errno = ENOMEM;
    return moved;
  }
  void* const larger = rs_malloc(bytes);
  if (larger == nullptr) return nullptr;
  memcpy(larger, begin, std::min(bytes, IsPaged(begin) ? PagedBytes(begin) : malloc_usable_size(begin)));
  rs_free(begin);
  return larger;
}

}  // extern "C"
