// Control of a running Ramspan: the functions of <ramspan/runtime.h> that go straight to the engine or the files.
#include "client/engine/engine.h"
#include "client/front/throw_status.h"
#include "client/runtime/runtime.h"
#include "client/runtime/statistics.h"
#include "client/swap/file_swap.h"
#include "common/public_call.h"
#include "common/raise.h"
#include "common/units.h"
#include "ramspan/detail/block_cache.h"
#include "ramspan/errors.h"
#include "ramspan/runtime.h"

namespace ramspan {

uint64_t MemoryLimit() { return Runtime::Get().engine().budget()->limit(); }

void SetMemoryLimit(uint64_t bytes) {
  const PublicCall call;
  RefuseWithinProgramCode("SetMemoryLimit");
  AsPublicCall([&] {
    if (bytes < (1 << 20)) Raise(ConfigError("a memory limit of " + std::to_string(bytes) + " bytes is below 1 MiB"));
    Runtime& runtime = Runtime::Get();
    Engine& engine = runtime.engine();
    // Else a limit that holds because another thread has raised it meanwhile would count as set, and one that does not would take back that thread's.
    const TurnQueue::Turn turn(runtime.changes(), detail::t_pins);
    runtime.FreeEmptyBundles();
    if (bytes < engine.budget()->limit()) {  // what views hold and may spare is not in the way
      detail::BlockCache::SpareAll();
      detail::BlockCache::Call();
    }
    Status status = engine.LeavesRoomForData(bytes);
    if (status.ok()) status = engine.SetBudget(bytes);
    if (!status.ok()) ThrowStatus(status);
  });
}

bool Started() { return Runtime::IfStarted() != nullptr; }

namespace {
FileSwap& Files() {
  FileSwap* files = Runtime::Get().files();
  if (files == nullptr) Raise(ConfigError("no local swap files are used (swap = remote), so they have no limit to set"));
  return *files;
}
}  // namespace

uint64_t SwapLimit() {
  return AsPublicCall([] { return Files().limit(); });
}

void SetSwapLimit(uint64_t bytes) {
  const PublicCall call;
  AsPublicCall([&] {
    if (Status status = Files().SetLimit(bytes); !status.ok()) Raise(Error(status.message()));
  });
}

void SetSwapPolicy(SwapPolicy policy) {
  AsPublicCall([&] { Files().SetPolicy(policy); });
}

void SetPreemptive(bool loading, bool unloading) { Runtime::Get().engine().SetPreemptive(loading, unloading); }

void SetWaitForPins(bool wait) { Runtime::Get().engine().SetWaitForPins(wait); }

Statistics GetStatistics() {
  const PublicCall call;
  return AsPublicCall([] { return Runtime::Get().statistics().Snapshot(); });
}

std::string DescribePolicy() {
  return AsPublicCall([] { return Runtime::Get().engine().DescribePolicy(); });
}

bool CheckPolicy() { return Runtime::Get().engine().CheckPolicy(); }

std::string StatsJson() {
  const PublicCall call;
  return AsPublicCall([] { return Runtime::Get().statistics().Json(); });
}

}  // namespace ramspan
