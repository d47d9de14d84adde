// OfiRegistrations: local buffers that the network has to know before it moves bytes from or to them (FI_MR_LOCAL). A buffer is
// registered when it is used first, exactly as far as it is used, and stays registered: frames come again and again. Not whole
// slabs around it, because registering may pin memory: of the arena's addresses only frames have pages, and the limit counts
// those (docs/architecture.md).
//
// A network that pins memory goes on using the pages that a buffer had when it was registered. So a buffer whose pages go back to
// the kernel has to be forgotten first, or transfers would use pages that are nobody's (Forget).
//
// Registering and closing are system calls, of about 10 us each where memory is pinned; neither is done under the mutex. What is
// forgotten is only taken out of the table, and closed by the next Find that registers, or by CloseForgotten.
//
// Thread-safety: any thread. Ownership: a registration lives until it is forgotten and no transfer uses it any more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "common/fabric.h"
#include "common/mutex.h"

namespace ramspan {

class OfiRegistrations {
 public:
  // 16 384 registrations are 1 GiB in frames of 64 KiB; what they take here is counted in the limit (kMetadataBytes). A network's
  // adapter may have fewer: then registering fails, and those that are not in use make room.
  static constexpr size_t kCountMax = 16'384;
  // What a registration takes in this process: a node of the table, the region, and what the provider keeps of it, on the generous side.
  static constexpr uint64_t kMetadataBytes = 512;

  explicit OfiRegistrations(std::shared_ptr<FabricDomain> domain, size_t count_max = kCountMax)
      : domain_(std::move(domain)), count_max_(count_max) {}

  // Allocates only for a buffer that is new. kResourceExhausted: it cannot be registered, also when all that nobody uses is closed.
  Result<std::shared_ptr<const FabricRegion>> Find(std::span<std::byte> buffer);
  // Whether a transfer uses any, also one that has been forgotten: when it ends there may be room for others.
  bool HasInUse() const;
  // What overlaps the memory is not found any more. Makes no system call and allocates nothing.
  void Forget(std::span<std::byte> memory);
  // Closes what was forgotten and is not in use any more.
  void CloseForgotten();

  struct Statistics {
    uint64_t count = 0, bytes = 0, made = 0;
  };
  Statistics statistics() const;
  FabricDomain& domain() const { return *domain_; }

 private:
  struct Registered {
    uintptr_t end = 0;
    std::shared_ptr<const FabricRegion> region;
    bool used = false;  // found again since the hand came by
  };
  using ByBegin = std::map<uintptr_t, Registered>;

  void ForgetIdle(size_t count, uint64_t bytes);
  void ForgetIdleLocked(size_t count, uint64_t bytes) RS_REQUIRES(mutex_);
  void ForgetOverlapping(uintptr_t begin, uintptr_t end) RS_REQUIRES(mutex_);
  ByBegin::iterator ForgetOne(ByBegin::iterator one) RS_REQUIRES(mutex_);

  const std::shared_ptr<FabricDomain> domain_;
  const size_t count_max_;
  mutable Mutex mutex_{LockRank::kTransport};
  ByBegin by_begin_ RS_GUARDED_BY(mutex_);  // none overlaps another
  // Forgotten, not yet closed. Nodes of by_begin_: to move one here allocates nothing.
  std::multimap<uintptr_t, Registered> forgotten_ RS_GUARDED_BY(mutex_);
  uintptr_t hand_ RS_GUARDED_BY(mutex_) = 0;  // where the next look for idle ones begins
  Statistics statistics_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
