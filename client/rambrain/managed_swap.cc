// Rambrain's swaps over <ramspan/extend.h>.
#include "rambrain/managedSwap.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "client/rambrain/without_heap.h"
#include "common/log.h"
#include "common/program_code.h"
#include "common/raise.h"
#include "common/status.h"
#include "common/terminal.h"
#include "common/units.h"
#include "rambrain/managedDummySwap.h"
#include "rambrain/managedFileSwap.h"
#include "rambrain/managedMemory.h"
#include "ramspan/extend.h"
#include "ramspan/runtime.h"

namespace rambrain {

namespace rambrain_detail {
namespace {
// Made while there is heap, for where there is none: a copy allocates nothing. Never destroyed: static objects' destructors may pull.
struct Spares {
  const memoryException no_heap{ramspan::OutOfHeapText()};
  const incompleteSetupException setup{"a wrong setting, or a wrong order of calls; there is no memory to say which (std::bad_alloc)"};
};
const Spares& TheSpares() {
  static const auto* spares = new Spares;
  return *spares;
}
[[maybe_unused]] const Spares& made_early = TheSpares();
}  // namespace

void ThrowNoHeap() { Raise(memoryException(TheSpares().no_heap)); }

void RethrowAsRambrain() {
  try {
    throw;
  } catch (const rambrainException&) {
    throw;
  } catch (const ramspan::ConfigError& e) {
    try {
      Raise(incompleteSetupException(e.what()));
    } catch (const std::bad_alloc&) {
      Raise(incompleteSetupException(TheSpares().setup));
    }
  } catch (const ramspan::Error& e) {
    try {
      Raise(memoryException(e.what()));
    } catch (const std::bad_alloc&) {
      ThrowNoHeap();
    }
  }
}
}  // namespace rambrain_detail

namespace {
ramspan::SwapPolicy ToRamspan(swapPolicy policy) {
  return policy == swapPolicy::fixed            ? ramspan::SwapPolicy::kFail
         : policy == swapPolicy::autoextendable ? ramspan::SwapPolicy::kAutoextendable
                                                : ramspan::SwapPolicy::kInteractive;
}
}  // namespace

// A derived swap as Ramspan's store: the program's code is called one call at a time.
class managedSwap::Store final : public ramspan::SwapStore {
 public:
  explicit Store(managedSwap* swap) : swap_(swap) {}
  std::string Name() const override { return "program"; }
  uint64_t Capacity() const override { return swap_->closed_ ? 0 : swap_->swapSize.load(); }
  bool Extend(uint64_t bytes) override { return !swap_->closed_ && swap_->extendSwapByPolicy(bytes); }

  bool Write(uint64_t slot, const void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    managedMemoryChunk& chunk = chunks_[slot];
    chunk.id = slot;
    chunk.size = bytes;
    chunk.locPtr = const_cast<void*>(data);
    const bool ok = swap_->swapOut(&chunk) == bytes;
    chunk.locPtr = nullptr;
    return ok;
  }
  bool Read(uint64_t slot, void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    const auto it = chunks_.find(slot);
    if (it == chunks_.end()) return false;
    it->second.locPtr = data;
    const bool ok = swap_->swapIn(&it->second) == bytes;
    it->second.locPtr = nullptr;
    return ok;
  }
  void Erase(uint64_t slot, size_t) noexcept override {
    std::lock_guard lock(mutex_);
    const auto it = chunks_.find(slot);
    if (it == chunks_.end()) return;
    if (it->second.swapBuf != nullptr) swap_->swapDelete(&it->second);
    chunks_.erase(it);
  }

 private:
  managedSwap* const swap_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, managedMemoryChunk> chunks_;
};

managedSwap::managedSwap(global_bytesize size) : swapSize(size) {}

managedSwap::~managedSwap() {
  if (id_ < 0) return;
  if (store_ && ramspan::ProgramCode::running() != ramspan::ProgramCode::Of::kNobody) {  // Ramspan would go on to call it
    ramspan::LogWarning("a swap was destroyed within a call of its own or of a strategy's, so the program cannot go on. Destroy it when the call "
                        "has returned");
    std::abort();
  }
  if (users_ == 0 && !store_) {
    LeaveRamspan();
    return;
  }
  ramspan::LogWarning("a swap was destroyed before its manager; objects that were only in it are lost. Declare the swap "
                      "before the manager");
  managedMemory::SwapGone(this);
  ramspan::AbandonSwap(static_cast<ramspan::SwapId>(id_));
}

void managedSwap::Attach() {
  if (id_ < 0) {
    rambrain_detail::Translated([&] {
      if (!mask_.empty()) {
        id_ = static_cast<int>(ramspan::AddSwapFiles(
            {.mask = mask_, .bytes = swapSize, .direct = dma_, .policy = ToRamspan(policy)}));
      } else {
        store_ = std::make_unique<Store>(this);
        id_ = static_cast<int>(ramspan::AddSwap(store_.get()));
      }
    });
  }
  ++users_;
}

void managedSwap::Detach() noexcept {
  if (users_ == 0 || --users_ > 0) return;
  if (ramspan::ProgramCode::running() == ramspan::ProgramCode::Of::kNobody) return LeaveRamspan();
  ramspan::LogWarning("a manager was destroyed within a call of a swap's or a strategy's; its swap keeps its objects until another manager with it "
                      "is destroyed");
}

void managedSwap::LeaveRamspan() noexcept {
  const auto id = static_cast<ramspan::SwapId>(id_);
  const bool kept = rambrain_detail::TryForAWhile("a swap's manager is gone and the objects in the swap do not fit elsewhere; they are lost",
                                                  [id] { ramspan::RemoveSwap(id, true); });  // waits for pins, too
  if (!kept) ramspan::AbandonSwap(id);
  id_ = -1;
  store_.reset();
}

global_bytesize managedSwap::getSwapSize() const {
  return id_ >= 0 ? ramspan::GetSwapUse(static_cast<ramspan::SwapId>(id_)).capacity : swapSize.load();
}
global_bytesize managedSwap::getUsedSwap() const {
  return id_ >= 0 ? ramspan::GetSwapUse(static_cast<ramspan::SwapId>(id_)).used : 0;
}
global_bytesize managedSwap::getFreeSwap() const {
  if (id_ < 0) return swapSize;
  const ramspan::SwapUse use = ramspan::GetSwapUse(static_cast<ramspan::SwapId>(id_));
  return use.capacity > use.used ? use.capacity - use.used : 0;
}

void managedSwap::waitForCleanExit() const {
  if (ramspan::Started()) ramspan::WaitForTransfers();
}

bool managedSwap::checkForAIO() { return ramspan::Started() && ramspan::TransfersUnderWay(); }

bool managedSwap::cleanupCachedElements(global_bytesize minimum_size) {
  if (users_ == 0) return false;
  const global_bytesize before = getUsedSwap();
  ramspan::FreeCleanCopies(minimum_size == 0 ? before : minimum_size);
  const global_bytesize after = getUsedSwap();
  return before > after && before - after > minimum_size;
}

size_t managedSwap::getMemoryAlignment() const { return dma_ ? static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 1; }

swapPolicy managedSwap::setSwapPolicy(swapPolicy new_policy) {
  if (users_ > 0 && !mask_.empty()) ramspan::SetSwapPolicy(static_cast<ramspan::SwapId>(id_), ToRamspan(new_policy));
  return policy.exchange(new_policy);
}

bool managedSwap::extendSwap(global_bytesize bytes) {
  if (bytes > std::numeric_limits<global_bytesize>::max() - swapSize) return false;
  if (users_ > 0 && !mask_.empty()) {
    try {
      ramspan::SetSwapLimit(static_cast<ramspan::SwapId>(id_), swapSize + bytes);
    } catch (const ramspan::Error&) {
      return false;
    }
  }
  swapSize += bytes;
  return true;
}

bool managedSwap::extendSwapByPolicy(global_bytesize min_size) {
  if (policy == swapPolicy::fixed) return false;
  const global_bytesize wanted = std::max<global_bytesize>(min_size, swapSize / 4);  // not for every object anew
  if (policy == swapPolicy::interactive) {
    const std::string question = "the swap of " + ramspan::FormatBytes(swapSize) + " is full. Extend it by " +
                                 ramspan::FormatBytes(wanted) + "?";
    if (!ramspan::AskOnTerminal(question)) return false;
  }
  return extendSwap(wanted);
}

void managedSwap::close() {
  closed_ = true;
  if (users_ == 0) return;
  const auto id = static_cast<ramspan::SwapId>(id_);
  const uint64_t used = ramspan::GetSwapUse(id).used;  // a derived swap is asked for its capacity, which is none from now on
  if (mask_.empty()) return;
  ramspan::SetSwapPolicy(id, ramspan::SwapPolicy::kFail);
  try {
    ramspan::SetSwapLimit(id, used);
  } catch (const ramspan::Error&) {  // an object came in between: it has its place, the next one has none
  }
}

global_bytesize managedSwap::swapOut(managedMemoryChunk*) { return 0; }
global_bytesize managedSwap::swapIn(managedMemoryChunk*) { return 0; }
void managedSwap::swapDelete(managedMemoryChunk*) {}

namespace {
// Rambrain's swap is a whole number of files of `one_file` bytes; where the program leaves that open (0), of a 16th of the
// size, 1 MiB to 4 GiB. Programs print and test the sum, and rely on there being at least one file.
global_bytesize SizeInFiles(global_bytesize size, global_bytesize one_file) {
  constexpr global_bytesize kGranule = 4096;  // what a slot in a file is a multiple of
  if (one_file == 0) one_file = std::clamp(size / 16, mib, 4 * gig);
  one_file = (one_file + kGranule - 1) / kGranule * kGranule;
  return std::max<global_bytesize>(1, size / one_file + (size % one_file != 0)) * one_file;
}
}  // namespace

managedFileSwap::managedFileSwap(global_bytesize size, const char* filemask, global_bytesize one_file, bool enable_dma)
    : managedSwap(SizeInFiles(size, one_file)), pageSize(static_cast<unsigned int>(sysconf(_SC_PAGESIZE))) {
  if (filemask == nullptr || *filemask == '\0') Raise(incompleteSetupException("a managedFileSwap needs a file mask"));
  mask_ = filemask;
  dma_ = enable_dma;
}

void managedFileSwap::setDMA(bool enable) {
  if (users_ > 0 && enable != dma_) {
    Raise(incompleteSetupException("setDMA after a manager was constructed with the swap; call it before"));
  }
  dma_ = enable;
}

global_bytesize managedDummySwap::swapOut(managedMemoryChunk* chunk) {
  if (chunk->swapBuf == nullptr) chunk->swapBuf = std::malloc(chunk->size);
  if (chunk->swapBuf == nullptr) return 0;
  std::memcpy(chunk->swapBuf, chunk->locPtr, chunk->size);
  return chunk->size;
}

global_bytesize managedDummySwap::swapIn(managedMemoryChunk* chunk) {
  std::memcpy(chunk->locPtr, chunk->swapBuf, chunk->size);
  return chunk->size;
}

void managedDummySwap::swapDelete(managedMemoryChunk* chunk) { std::free(chunk->swapBuf); }

}  // namespace rambrain
