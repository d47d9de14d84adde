// managedMemory::Strategy: a manager's virtual functions as a policy of Ramspan's.
//
// Thread-safety: as EvictionPolicy; Retire from any thread, also from within one of the manager's functions.
// Ownership: its manager's, until it is retired.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "rambrain/managedMemory.h"
#include "ramspan/extend.h"

namespace rambrain {

class managedMemory::Strategy final : public ramspan::EvictionPolicy {
 public:
  explicit Strategy(managedMemory* manager) : manager_(manager) {}

  void Created(const Objects& objects, uint32_t id) override;
  void Freed(const Objects& objects, uint32_t id) override;
  void Missed(const Objects& objects, uint32_t id) override;
  void AheadUsed(const Objects& objects, uint32_t id) override;
  size_t Victims(const Objects& objects, uint64_t bytes, Ids out) override;
  size_t ReadAhead(const Objects& objects, uint64_t bytes, Ids out) override;

  // The manager ends where Ramspan cannot be told, so it goes on to ask this strategy: which does not call the manager any more, and
  // names nobody. Waits for a call of the manager's that another thread is in.
  void Retire() noexcept;

  // What the manager names in its calls. False: enough.
  bool Name(uint32_t id);
  bool NameAhead(uint32_t id);
  bool IsResident(uint32_t id) const { return Knows(id) && objects_->InMemory(id); }

 private:
  bool Knows(uint32_t id) const { return id < chunks_.size() && chunks_[id]; }

  static constexpr size_t kAheadMax = 64;
  // Held while the manager is called. Recursive, because a manager may end within its own call.
  std::recursive_mutex mutex_;
  managedMemory* manager_;            // null: retired
  const Objects* objects_ = nullptr;  // of the call under way
  std::vector<std::unique_ptr<managedMemoryChunk>> chunks_;
  std::vector<uint32_t> ahead_;
  Ids out_;
  size_t named_ = 0;
};

}  // namespace rambrain
