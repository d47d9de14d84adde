#include "client/chunk/chunk.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ramspan {
namespace {
struct Row {
  Phase from;
  Event event;
  Phase to;
};
constexpr Row kTable[] = {
    {Phase::kFreed, Event::kCreate, Phase::kSwapped},       {Phase::kSwapped, Event::kMaterialize, Phase::kResident},
    {Phase::kSwapped, Event::kBeginLoad, Phase::kLoading},  {Phase::kLoading, Event::kFinishLoad, Phase::kResident},
    {Phase::kLoading, Event::kFailLoad, Phase::kSwapped},   {Phase::kLoading, Event::kLose, Phase::kLost},
    {Phase::kResident, Event::kDrop, Phase::kSwapped},      {Phase::kResident, Event::kBeginWrite, Phase::kWriting},
    {Phase::kWriting, Event::kFinishEvict, Phase::kSwapped}, {Phase::kWriting, Event::kFinishKeep, Phase::kResident},
    {Phase::kWriting, Event::kFailWrite, Phase::kResident}, {Phase::kResident, Event::kFree, Phase::kFreed},
    {Phase::kSwapped, Event::kFree, Phase::kFreed},         {Phase::kLost, Event::kFree, Phase::kFreed},
    {Phase::kSwapped, Event::kLose, Phase::kLost},
};
constexpr size_t kPhases = static_cast<size_t>(Phase::kLost) + 1, kEvents = static_cast<size_t>(Event::kFree) + 1;
constexpr uint8_t kNowhere = kPhases;
// The same by phase and event: each miss makes five transitions.
constexpr auto kNext = [] {
  std::array<std::array<uint8_t, kEvents>, kPhases> next{};
  for (auto& events : next) events.fill(kNowhere);
  for (const Row& row : kTable) next[static_cast<size_t>(row.from)][static_cast<size_t>(row.event)] = static_cast<uint8_t>(row.to);
  return next;
}();
}  // namespace

bool NextPhase(Phase from, Event event, Phase* to) {
  const uint8_t next = kNext[static_cast<size_t>(from)][static_cast<size_t>(event)];
  if (next == kNowhere) return false;
  *to = static_cast<Phase>(next);
  return true;
}

void Transition(Chunk* chunk, Event event, uint64_t set, uint64_t clear) {
  uint64_t word = chunk->state.load(std::memory_order_relaxed);
  const Phase from = PhaseOf(word);  // stable: only the holder of the engine's mutex changes it
  Phase to;
  RS_CHECK(NextPhase(from, event, &to), "chunk %u: event %d in phase %d", chunk->id, static_cast<int>(event),
           static_cast<int>(from));
  uint64_t next;
  do {
    next = (word & ~(kPhaseMask | clear)) | set | static_cast<uint64_t>(to) << kPhaseShift;
  } while (!chunk->state.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_relaxed));
}

}  // namespace ramspan
