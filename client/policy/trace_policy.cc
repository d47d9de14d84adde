#include "client/policy/trace_policy.h"

#include "common/status.h"

namespace ramspan {

bool TracePolicy::WantsEpoch() const {
  return inner_->WantsEpoch() || (touched_ && std::chrono::steady_clock::now() - epoch_began_ >= epoch_every_);
}

void TracePolicy::OnEpoch(uint32_t epoch) {
  touched_ = false;
  epoch_began_ = std::chrono::steady_clock::now();
  if (inner_wants_.touches) inner_->OnEpoch(epoch);
}

void TracePolicy::OnTouch(Chunk* chunk, const Touch& touch) {
  PutTouch(chunk, touch.thread, touch.write);
  if (inner_wants_.touches) inner_->OnTouch(chunk, touch);
}

void TracePolicy::OnCreate(Chunk* chunk) {
  file_->Put({TraceKind::kCreate, chunk->id, chunk->bytes});
  if (inner_wants_.references && chunk->id >= used_.size()) {  // without heap, the policy sees the bits of this one as they are
    WithinHeap([&] { return used_.resize(chunks_->ids()), true; }, false);
  }
  NoteUsed(chunk, Has(chunk, kReferenced));
  inner_->OnCreate(chunk);
}

void TracePolicy::OnFree(Chunk* chunk) {
  file_->Put({TraceKind::kFree, chunk->id});
  inner_->OnFree(chunk);
}

// Whether it comes to be written is not known yet: PickVictims says that it was.
void TracePolicy::OnMiss(Chunk* chunk, uint32_t thread) {
  PutTouch(chunk, thread, false);
  inner_->OnMiss(chunk, thread);
}

// Nor is the thread: mostly the one that touched something before.
void TracePolicy::OnPrefetchHit(Chunk* chunk) {
  PutTouch(chunk, kNoThread, false);
  inner_->OnPrefetchHit(chunk);
}

void TracePolicy::OnPrefetchIssued(Chunk* chunk) {
  NoteUsed(chunk, false);
  inner_->OnPrefetchIssued(chunk);
}

void TracePolicy::PutTouch(Chunk* chunk, uint32_t thread, bool write) {
  touched_ = true;
  NoteUsed(chunk, true);
  if (thread != thread_ && thread != kNoThread) {
    thread_ = thread;
    file_->Put({TraceKind::kThread, thread});
  }
  file_->Put({write ? TraceKind::kWrite : TraceKind::kRead, chunk->id});
}

void TracePolicy::NoteUsed(const Chunk* chunk, bool used) {
  if (chunk->id < used_.size()) used_[chunk->id] = used;
}

size_t TracePolicy::PickVictims(uint64_t bytes, std::span<Chunk*> out) {
  const size_t n = inner_wants_.references ? PickByReferences(bytes, out) : inner_->PickVictims(bytes, out);
  for (size_t i = 0; i < n; ++i) {
    if (Has(out[i], kDirty)) file_->Put({TraceKind::kDirty, out[i]->id});
  }
  return n;
}

// The bits are for a moment what they would be without the short epochs; what the policy clears stays cleared. A pin at that very moment is not
// heard. Takes a look at each chunk: as much as an epoch.
size_t TracePolicy::PickByReferences(uint64_t bytes, std::span<Chunk*> out) {
  for (uint32_t id = 0; id < used_.size(); ++id) {
    if (used_[id] && PhaseOf(chunks_->At(id)) == Phase::kResident) SetBits(chunks_->At(id), kReferenced);
  }
  const size_t n = inner_->PickVictims(bytes, out);
  for (uint32_t id = 0; id < used_.size(); ++id) {
    used_[id] = Has(chunks_->At(id), kReferenced);
    if (used_[id]) ClearBits(chunks_->At(id), kReferenced);
  }
  return n;
}

}  // namespace ramspan
