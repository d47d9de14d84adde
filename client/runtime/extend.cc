// The functions of <ramspan/extend.h>.
#include <memory>

#include "client/engine/engine.h"
#include "client/policy/custom.h"
#include "client/runtime/runtime.h"
#include "client/runtime/swaps.h"
#include "client/swap/file_swap.h"
#include "common/errno_guard.h"
#include "common/log.h"
#include "ramspan/errors.h"
#include "ramspan/extend.h"

namespace ramspan {

SwapId AddSwap(SwapStore* store) {
  const ErrnoGuard guard;
  return Runtime::Get().swaps().Add(store);
}
SwapId AddSwapFiles(const SwapFiles& files) {
  const ErrnoGuard guard;
  return Runtime::Get().swaps().Add(files);
}
void UseSwap(SwapId id) {
  const ErrnoGuard guard;
  Runtime::Get().swaps().Use(id);
}
SwapId SwapInUse() { return Runtime::Get().swaps().in_use(); }
void RemoveSwap(SwapId id) {
  const ErrnoGuard guard;
  Runtime::Get().swaps().Remove(id, true);
}
void AbandonSwap(SwapId id) noexcept {
  const ErrnoGuard guard;
  try {
    Runtime::Get().swaps().Remove(id, false);
  } catch (const std::exception& e) {
    LogWarning("a swap was not abandoned: %s", e.what());
  }
}
void CloseSwap() {
  const ErrnoGuard guard;
  Runtime::Get().swaps().Close();
}
void WaitForTransfers() {
  const ErrnoGuard guard;
  Runtime::Get().engine().Drain();
}
bool TransfersUnderWay() {
  const ErrnoGuard guard;
  return Runtime::Get().engine().HasTransfers();
}
void FreeCleanCopies(uint64_t bytes) {
  const ErrnoGuard guard;
  Runtime::Get().engine().FreeResidentSlots(bytes);
}
SwapUse GetSwapUse(SwapId id) {
  const ErrnoGuard guard;
  return Runtime::Get().swaps().UseOf(id);
}

SwapFragmentation GetSwapFragmentation(SwapId id) {
  const ErrnoGuard guard;
  SwapFragmentation f;
  Runtime::Get().swaps().WithFiles(id, [&](FileSwap& files) { files.Fragmentation(&f.free, &f.whole, &f.scattered); });
  return f;
}

void SetSwapLimit(SwapId id, uint64_t bytes) {
  const ErrnoGuard guard;
  Status status;
  Runtime::Get().swaps().WithFiles(id, [&](FileSwap& files) { status = files.SetLimit(bytes); });
  if (!status.ok()) throw Error(status.message());
}

void SetSwapPolicy(SwapId id, SwapPolicy policy) {
  const ErrnoGuard guard;
  Runtime::Get().swaps().WithFiles(id, [&](FileSwap& files) { files.SetPolicy(policy); });
}

void SetEvictionPolicy(EvictionPolicy* policy) {
  const ErrnoGuard guard;
  Runtime& runtime = Runtime::Get();
  runtime.engine().ReplacePolicy([&runtime, policy](const ChunkTable* chunks) -> std::unique_ptr<CachePolicy> {
    if (policy == nullptr) return runtime.MakeConfiguredPolicy(chunks);
    return std::make_unique<CustomPolicy>(chunks, policy);
  });
}

}  // namespace ramspan
