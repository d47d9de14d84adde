// adhereAll: several pins, all or none.
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "client/front/pin_registry.h"
#include "client/runtime.h"
#include "common/units.h"
#include "ramspan/adhere_all.h"

namespace ramspan::detail {
namespace {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(1);  // with others of which none is known to go on
constexpr auto kPatienceMax = std::chrono::seconds(60);

// Pins one without waiting for other threads' pins: kAborted where Pin would.
Status TryPin(PinRequest* request, PinTable* table) {
  auto* chunk = static_cast<Chunk*>(request->chunk);
  unsigned slot = 0;
  while (slot < PinTable::kSlots && table->slots[slot].load(std::memory_order_acquire) != nullptr) ++slot;
  Status status;
  if (slot == PinTable::kSlots) {
    status = Runtime::Get().engine().AcquireCounted(chunk, request->write, Engine::WhenPinned::kReturn);
    if (status.ok()) request->slot = kCountedPin;
    return status;
  }
  table->slots[slot].store(chunk, std::memory_order_release);
  // As in PinInSlot, with the fence: Acquire looks at the chunk under the engine's mutex, where evictors close it.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint64_t need = kReadable | kReferenced | (request->write ? kWritable | kDirty : 0);
  if ((chunk->state.load(std::memory_order_acquire) & need) != need) {
    status = Runtime::Get().engine().Acquire(chunk, request->write, Engine::WhenPinned::kReturn);
  }
  if (status.ok()) {
    request->slot = slot;
  } else {
    table->slots[slot].store(nullptr, std::memory_order_release);
  }
  return status;
}

Status TryPinAll(std::span<PinRequest> requests, PinTable* table) {
  Status status;
  size_t n = 0;
  for (; n < requests.size() && status.ok(); ++n) {
    if (requests[n].chunk != nullptr) status = TryPin(&requests[n], table);
  }
  if (status.ok()) return status;
  for (PinRequest& one : requests.first(n)) {
    if (one.slot != kNoPin) Unpin(one.chunk, table, one.slot);
    one.slot = kNoPin;
  }
  return status;
}

uint64_t FrameBytes(std::span<const PinRequest> requests) {
  std::vector<const ChunkHead*> chunks;
  for (const PinRequest& one : requests) {
    if (one.chunk != nullptr) chunks.push_back(one.chunk);
  }
  std::sort(chunks.begin(), chunks.end());
  chunks.erase(std::unique(chunks.begin(), chunks.end()), chunks.end());
  uint64_t bytes = 0;
  for (const ChunkHead* chunk : chunks) bytes += RoundUpToGranule(chunk->bytes);
  return bytes;
}

}  // namespace

// Two threads that meet half-way both give up what they have; who comes back first is left to chance.
void PinAll(std::span<PinRequest> requests, PinTable* table) {
  Status status = TryPinAll(requests, table);
  if (status.ok()) return;
  Engine& engine = Runtime::Get().engine();
  const uint64_t bytes = FrameBytes(requests);
  const auto begin = Clock::now();
  auto hopeful = begin;  // when another thread was last seen that might unpin
  std::minstd_rand random(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(table) >> 10));
  for (microseconds pause{50}; status.code() == StatusCode::kAborted; pause = std::min(2 * pause, microseconds(2000))) {
    const auto now = Clock::now();
    if (PinRegistry::Get().JudgeWaiters() == PinScanner::Verdict::kSomebodyMayUnpin) hopeful = now;
    if (bytes > engine.budget()->frames_limit() || now - hopeful > kPatience || now - begin > kPatienceMax) {
      status = engine.FullOfPins(bytes);
      break;
    }
    std::this_thread::sleep_for(pause / 2 + pause * (random() % 256) / 512);
    status = TryPinAll(requests, table);
  }
  if (!status.ok()) ThrowStatus(status);
}

}  // namespace ramspan::detail
