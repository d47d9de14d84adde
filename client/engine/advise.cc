// The program's advice: bits in the chunk's word that last, and what is to be done now.
#include <utility>

#include "client/engine/engine.h"

namespace ramspan {

void Engine::Advise(Chunk* chunk, advice what, const std::atomic<Chunk*>* place) {
  MutexLock lock(mutex_);
  if (place != nullptr && place->load(std::memory_order_acquire) != chunk) return;
  ++counters_.advised[static_cast<size_t>(what)];
  switch (what) {
    case advice::normal: return ClearBits(chunk, kAdvisedKeep | kAdvisedOnce | kAdvisedSequential | kAdvisedRandom | kAdvisedWillNeed);
    case advice::keep: return ReplaceBits(chunk, kAdvisedOnce, kAdvisedKeep);
    case advice::once: return ReplaceBits(chunk, kAdvisedKeep, kAdvisedOnce);
    case advice::sequential: return ReplaceBits(chunk, kAdvisedRandom, kAdvisedSequential);
    case advice::random: return ReplaceBits(chunk, kAdvisedSequential, kAdvisedRandom);
    case advice::will_need:
      if (PhaseOf(chunk) == Phase::kResident) return NoteWillNeed(chunk);
      if (PhaseOf(chunk) != Phase::kSwapped || !chunk->slot) return;
      advised_.Want(chunk->id, pins_->ThisThread());
      return mover_bell_.Ring();
    case advice::done:
      ClearBits(chunk, kAdvisedKeep | kAdvisedWillNeed);
      feed_.Drain();
      return Done(chunk);
  }
}

void Engine::Done(Chunk* chunk) {
  if (PhaseOf(chunk) == Phase::kResident && !Has(chunk, kDoomed)) policy_->OnDone(chunk);
}

// A policy would let it go first where the program's loops use it late. Its first use is to be seen, which ends that.
void Engine::NoteWillNeed(Chunk* chunk) { ReplaceBits(chunk, kReferenced, kAdvisedWillNeed); }

// After the policy has heard of the use.
void Engine::NoteUse(Chunk* chunk) {
  if (Has(chunk, kAdvisedWillNeed)) ClearBits(chunk, kAdvisedWillNeed);
  if (!Has(chunk, kAdvisedOnce)) return;
  const uint32_t done = advised_.UseOnce(chunk->id);
  // It may have been freed, and its descriptor be another chunk's.
  if (done < chunks_.ids() && Has(chunks_.At(done), kAdvisedOnce)) Done(chunks_.At(done));
}

// Victims that are to be kept go back to the policy, as if they were pinned. Returns how many are left.
size_t Engine::PassKept(std::span<Chunk*> victims, uint64_t* kept) {
  size_t left = 0;  // std::stable_partition would allocate, and who looks for memory may have none (design, I5)
  for (Chunk* const victim : victims) {
    if (Has(victim, kAdvisedKeep | kAdvisedWillNeed)) {
      policy_->OnPinned(victim);
    } else {
      victims[left++] = victim;
    }
  }
  *kept += victims.size() - left;
  counters_.kept += victims.size() - left;
  return left;
}

// The mover's: what the program has said that it will need, as room is made.
bool Engine::FetchWanted() {
  bool fetched = false;
  for (size_t tries = advised_.wanted(); tries > 0; --tries) {
    // Reads release the mutex, but nobody else takes anything out.
    while (advised_.first().count > 0 && FetchFirstOf(advised_.first(), &fetched)) {
      ++advised_.first().chunk;
      --advised_.first().count;
    }
    advised_.first().count > 0 ? advised_.PutFirstLast() : advised_.DropFirst();
  }
  return fetched;
}

// False: there is no room for it now.
bool Engine::FetchFirstOf(const Advised::Wanted& wanted, bool* fetched) {
  Chunk* const chunk = wanted.chunk < chunks_.ids() ? chunks_.At(wanted.chunk) : nullptr;
  if (chunk == nullptr || PhaseOf(chunk) != Phase::kSwapped || !chunk->slot || Has(chunk, kDoomed)) return true;
  if (RoundUpToGranule(chunk->bytes) > budget_.frames_limit() || tier_->StandsStill(chunk->slot, chunk->bytes)) return true;
  NoteWillNeed(chunk);
  if (!BeginHinted(chunk, wanted.thread)) return false;
  return *fetched = true;
}

// Starts a read that the program asked for. False: there is no frame at hand, or no operation.
bool Engine::BeginHinted(Chunk* chunk, uint32_t thread) {
  Frame frame = TryTakeFrame(chunk->bytes);
  IoOp* op = frame ? ops_.TryTake() : nullptr;
  if (op == nullptr) return false;
  // The program asked for this very chunk: a miss, not a guess of the policy's, whose hits it must not count as.
  feed_.Drain();
  policy_->OnMiss(chunk, thread);
  // The miss is the touch, here too, but where the use itself is to be seen.
  if (!Has(chunk, kAdvisedOnce | kAdvisedWillNeed)) SetBits(chunk, kReferenced);
  CountMiss(chunk, thread);
  BeginLoad(op, chunk, std::move(frame), false);
  queue_.WakeFor(chunk);  // this thread does not wait for it
  Submit(std::span(&op, 1), false);
  return true;
}

}  // namespace ramspan
