// The functions of <ramspan/extend.h>.
#include <memory>

#include "client/engine/engine.h"
#include "client/front/throw_status.h"
#include "client/policy/custom.h"
#include "client/runtime/runtime.h"
#include "client/runtime/swaps.h"
#include "client/swap/file_swap.h"
#include "common/log.h"
#include "common/public_call.h"
#include "common/raise.h"
#include "ramspan/errors.h"
#include "ramspan/extend.h"

namespace ramspan {

namespace {
// For functions that a SwapStore may call. Their lock is taken before the one that stands around a call of an EvictionPolicy.
Swaps& SwapsOutsideOfPolicy(const char* call) {
  RefuseWithinPolicy(call);
  return Runtime::Get().swaps();
}
// For functions that take one away.
Swaps& SwapsToLeave() {
  Runtime& runtime = Runtime::Get();
  runtime.FreeEmptyBundles();
  return runtime.swaps();
}
}  // namespace

SwapId AddSwap(SwapStore* store) {
  const PublicCall call;
  return AsPublicCall([&] { return SwapsOutsideOfPolicy("AddSwap").Add(store); });
}
SwapId AddSwapFiles(const SwapFiles& files) {
  const PublicCall call;
  return AsPublicCall([&] { return SwapsOutsideOfPolicy("AddSwapFiles").Add(files); });
}
void UseSwap(SwapId id) {
  const PublicCall call;
  AsPublicCall([&] { SwapsOutsideOfPolicy("UseSwap").Use(id); });
}
SwapId SwapInUse() { return SwapsOutsideOfPolicy("SwapInUse").in_use(); }
void RemoveSwap(SwapId id, bool patiently) {
  const PublicCall call;
  RefuseWithinProgramCode("RemoveSwap");
  AsPublicCall([&] { SwapsToLeave().Remove(id, patiently ? Swaps::Removal::kPatient : Swaps::Removal::kBringHome); });
}
void AbandonSwap(SwapId id) noexcept {
  const PublicCall call;
  try {
    RefuseWithinProgramCode("AbandonSwap");
    SwapsToLeave().Remove(id, Swaps::Removal::kAbandon);
  } catch (const std::exception& e) {
    LogWarning("a swap was not abandoned: %s", e.what());
  }
}
void CloseSwap() {
  const PublicCall call;
  RefuseWithinProgramCode("CloseSwap");
  AsPublicCall([] { SwapsToLeave().Close(); });
}
void WaitForTransfers() {
  const PublicCall call;
  RefuseWithinProgramCode("WaitForTransfers");
  Runtime::Get().engine().Drain();
}
bool TransfersUnderWay() {
  const PublicCall call;
  return Runtime::Get().engine().HasTransfers();
}
void FreeCleanCopies(uint64_t bytes) {
  const PublicCall call;
  Runtime::Get().engine().FreeResidentSlots(bytes);
}
SwapUse GetSwapUse(SwapId id) {
  const PublicCall call;
  return AsPublicCall([&] { return SwapsOutsideOfPolicy("GetSwapUse").UseOf(id); });
}

SwapFragmentation GetSwapFragmentation(SwapId id) {
  const PublicCall call;
  SwapFragmentation f;
  AsPublicCall([&] {
    SwapsOutsideOfPolicy("GetSwapFragmentation").WithFiles(id, [&](FileSwap& files) { files.Fragmentation(&f.free, &f.whole, &f.scattered); });
  });
  return f;
}

void SetSwapLimit(SwapId id, uint64_t bytes) {
  const PublicCall call;
  AsPublicCall([&] {
    Status status;
    SwapsOutsideOfPolicy("SetSwapLimit").WithFiles(id, [&](FileSwap& files) { status = files.SetLimit(bytes); });
    if (!status.ok()) Raise(Error(status.message()));
  });
}

void SetSwapPolicy(SwapId id, SwapPolicy policy) {
  const PublicCall call;
  AsPublicCall([&] { SwapsOutsideOfPolicy("SetSwapPolicy").WithFiles(id, [&](FileSwap& files) { files.SetPolicy(policy); }); });
}

void SetEvictionPolicy(EvictionPolicy* policy) {
  const PublicCall call;
  RefuseWithinProgramCode("SetEvictionPolicy");
  AsPublicCall([&] {
    Runtime& runtime = Runtime::Get();
    // A policy is asked by one thread at a time, through one CustomPolicy: not through the one that goes and the one that comes.
    const TurnQueue::Turn turn(runtime.changes(), detail::t_pins);
    if (policy != nullptr && policy == runtime.program_policy) return;
    runtime.engine().ReplacePolicy([&runtime, policy](const ChunkTable* chunks) -> std::unique_ptr<CachePolicy> {
      if (policy == nullptr) return runtime.TakeConfiguredPolicy(chunks);
      auto custom = std::make_unique<CustomPolicy>(chunks, policy);
      runtime.KeepConfiguredPolicy(chunks);
      return custom;
    });
    runtime.program_policy = policy;
  });
}

}  // namespace ramspan
