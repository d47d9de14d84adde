#include "client/rambrain/strategy.h"

#include <utility>

#include "common/program_code.h"

namespace rambrain {
namespace {

ramspan::EvictionPolicy* in_force = nullptr;  // the program's strategy that Ramspan calls now, if any
bool is_retired = false;                      // it is, so it belongs to nobody else

}  // namespace

// Where there is no heap for it, here or in the program's strategy, that one never hears of the object.
void managedMemory::Strategy::Created(const Objects& objects, uint32_t id) {
  const std::lock_guard lock(mutex_);
  if (manager_ == nullptr) return;
  objects_ = &objects;
  if (id >= chunks_.size()) chunks_.resize(id + 1);
  chunks_[id] = std::make_unique<managedMemoryChunk>();
  chunks_[id]->id = id;
  chunks_[id]->size = objects.Bytes(id);
  try {
    manager_->schedulerRegister(*chunks_[id]);
  } catch (...) {
    chunks_[id].reset();
    throw;
  }
}

void managedMemory::Strategy::Freed(const Objects& objects, uint32_t id) {
  const std::lock_guard lock(mutex_);
  objects_ = &objects;
  if (!Knows(id)) return;
  if (manager_ != nullptr) manager_->schedulerDelete(*chunks_[id]);
  chunks_[id].reset();
}

void managedMemory::Strategy::Missed(const Objects& objects, uint32_t id) {
  const std::lock_guard lock(mutex_);
  objects_ = &objects;
  if (manager_ != nullptr && Knows(id)) manager_->swapIn(*chunks_[id]);
}

void managedMemory::Strategy::AheadUsed(const Objects& objects, uint32_t id) {
  const std::lock_guard lock(mutex_);
  objects_ = &objects;
  if (manager_ != nullptr && Knows(id)) manager_->touch(*chunks_[id]);
}

size_t managedMemory::Strategy::Victims(const Objects& objects, uint64_t bytes, Ids out) {
  const std::lock_guard lock(mutex_);
  if (manager_ == nullptr) return 0;
  objects_ = &objects;
  out_ = out;
  named_ = 0;
  manager_->swapOut(bytes);
  out_ = {};
  return named_;
}

size_t managedMemory::Strategy::ReadAhead(const Objects& objects, uint64_t bytes, Ids out) {
  const std::lock_guard lock(mutex_);
  size_t n = 0;
  size_t seen = 0;
  for (; seen < ahead_.size() && n < out.size(); ++seen) {
    const uint32_t id = ahead_[seen];
    if (!Knows(id) || !objects.InSwap(id)) continue;
    if (objects.Bytes(id) > bytes) break;
    bytes -= objects.Bytes(id);
    out[n++] = id;
  }
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<ptrdiff_t>(seen));
  return n;
}

// The manager is told that all objects go, as when Ramspan turns to another strategy. The chunks stay: a call of the manager's that
// this one is within has one of them.
void managedMemory::Strategy::Retire() noexcept {
  const std::lock_guard lock(mutex_);
  managedMemory* const manager = std::exchange(manager_, nullptr);
  ahead_.clear();
  for (const auto& chunk : chunks_) {
    if (chunk) manager->schedulerDelete(*chunk);
  }
}

bool managedMemory::Strategy::Name(uint32_t id) {
  if (named_ == out_.size()) return false;
  out_[named_++] = id;
  return named_ < out_.size();
}

bool managedMemory::Strategy::NameAhead(uint32_t id) {
  if (ahead_.size() >= kAheadMax) ahead_.erase(ahead_.begin());  // the oldest wish has waited in vain
  ahead_.push_back(id);
  return ahead_.size() < kAheadMax;
}

managedMemory::swapErrorCode managedMemory::swapOut(global_bytesize) { return ERR_NOTENOUGHCANDIDATES; }
bool managedMemory::swapIn(managedMemoryChunk&) { return true; }
bool managedMemory::touch(managedMemoryChunk&) { return true; }
void managedMemory::schedulerRegister(managedMemoryChunk&) {}
void managedMemory::schedulerDelete(managedMemoryChunk&) {}

bool managedMemory::letGo(managedMemoryChunk& chunk) { return strategy_->Name(static_cast<uint32_t>(chunk.id)); }
bool managedMemory::fetchAhead(managedMemoryChunk& chunk) { return strategy_->NameAhead(static_cast<uint32_t>(chunk.id)); }
bool managedMemory::isResident(const managedMemoryChunk& chunk) const {
  return strategy_->IsResident(static_cast<uint32_t>(chunk.id));
}

managedMemory::inCharge::inCharge(managedMemory& manager) : manager_(manager) {
  rambrain_detail::TranslatedAll([&] {
    manager_.strategy_ = std::make_unique<Strategy>(&manager_);
    try {
      if (manager_.IsDefault()) manager_.SwitchStrategy();
    } catch (...) {
      manager_.strategy_.reset();
      throw;
    }
  });
}

managedMemory::inCharge::~inCharge() {
  if (in_force == manager_.strategy_.get()) {
    if (ramspan::ProgramCode::running() != ramspan::ProgramCode::Of::kNobody) {  // Ramspan cannot turn to another strategy before that call has returned
      manager_.strategy_->Retire();
      static_cast<void>(manager_.strategy_.release());
      is_retired = true;
      return;
    }
    in_force = nullptr;
    ramspan::SetEvictionPolicy(nullptr);
  }
  manager_.strategy_.reset();
}

void managedMemory::SwitchStrategy() {
  if (strategy_ == nullptr && in_force == nullptr) return;  // from Ramspan's to Ramspan's: it would forget its order
  ramspan::SetEvictionPolicy(strategy_.get());  // needs no heap for none: destructors come here
  ramspan::EvictionPolicy* const before = std::exchange(in_force, strategy_.get());
  if (std::exchange(is_retired, false)) delete before;
}

}  // namespace rambrain
