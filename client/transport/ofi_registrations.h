// OfiRegistrations: local buffers that the network has to know before it moves bytes from or to them (FI_MR_LOCAL). A buffer is
// registered when it is used first, exactly as far as it is used, and stays registered: frames come again and again. Not whole
// slabs around it, because registering may pin memory: of the arena's addresses only frames have pages, and the limit counts
// those (docs/architecture.md).
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
  explicit OfiRegistrations(std::shared_ptr<FabricDomain> domain) : domain_(std::move(domain)) {}

  // Allocates only for a buffer that is new. kResourceExhausted: it cannot be registered, also when all that nobody uses is forgotten.
  Result<std::shared_ptr<const FabricRegion>> Find(std::span<std::byte> buffer);
  // What overlaps the memory.
  void Forget(std::span<std::byte> memory);

  struct Statistics {
    uint64_t count = 0, bytes = 0, made = 0;
  };
  Statistics statistics() const;
  FabricDomain& domain() const { return *domain_; }

 private:
  // A network may have few; then all that are not in use make room.
  static constexpr size_t kCountMax = 16'384;
  struct Registered {
    uintptr_t end = 0;
    std::shared_ptr<const FabricRegion> region;
  };

  bool ForgetIdle();
  bool ForgetIdleLocked() RS_REQUIRES(mutex_);
  void ForgetOverlapping(uintptr_t begin, uintptr_t end) RS_REQUIRES(mutex_);

  const std::shared_ptr<FabricDomain> domain_;
  mutable Mutex mutex_{LockRank::kTransport};
  std::map<uintptr_t, Registered> by_begin_ RS_GUARDED_BY(mutex_);  // none overlaps another
  Statistics statistics_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
