// OfiRegistrations: local buffers that the network has to know before it moves bytes from or to them (FI_MR_LOCAL). A buffer is
// registered when it is used first, exactly as far as it is used, and stays registered: frames come again and again. Not whole
// slabs around it, because registering may pin memory: of the arena's addresses only frames have pages, and the limit counts
// those (docs/architecture.md).
//
// A network that pins memory goes on using the pages that a buffer had when it was registered. So a buffer whose pages go back to
// the kernel has to be forgotten first, or transfers would use pages that are nobody's (Forget).
//
// Where the network takes no more registrations than transfers of other servers hold already, who asks is served in turn: without a line,
// a server that always has a transfer ready took each registration that its own ones gave back, and another one's transfers failed.
//
// Registering and closing are system calls, of about 10 us each where memory is pinned; neither is done under the mutex. What is
// forgotten is only taken out of the table, and closed by the next Find that registers, or by CloseForgotten.
//
// Thread-safety: any thread. Ownership: a registration lives until it is forgotten and no transfer uses it any more.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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

  using Region = Result<std::shared_ptr<const FabricRegion>>;
  // Allocates only for a buffer that is new. kResourceExhausted: it cannot be registered, also when all that nobody uses is closed.
  Region Find(std::span<std::byte> buffer);

  // One asks for one buffer at a time. Not to be destroyed before LeaveLine.
  struct Asker {
    bool holds = false;  // set by who asks: it has transfers under way, whose ends make room for it. It takes no place in the line: its server may have fallen silent
    Asker* next = nullptr;
    bool waits = false;
  };
  // Find in turn. kUnavailable: not now, since transfers hold registrations, or others wait that hold none; to be asked again soon, or LeaveLine. Other
  // errors: not at all, since nobody holds any. Never throws.
  Region FindInTurn(std::span<std::byte> buffer, Asker* asker);
  void LeaveLine(Asker* asker);
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

  // From when a region is begun to be made or closed, under the mutex, to its end.
  class UnderWay {
   public:
    explicit UnderWay(OfiRegistrations* all) RS_REQUIRES(all->mutex_) : all_(*all) { ++all_.under_way_, ++all_.begun_; }
    ~UnderWay() {
      MutexLock lock(all_.mutex_);
      --all_.under_way_;
    }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;

   private:
    OfiRegistrations& all_;
  };

  bool IsBusy() const RS_REQUIRES(mutex_);
  void LeaveLineLocked(Asker* asker) RS_REQUIRES(mutex_);
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
  // Regions that are made and in no table yet, or in none any more and being closed; and how many of either have begun.
  uint32_t under_way_ RS_GUARDED_BY(mutex_) = 0;
  uint64_t begun_ RS_GUARDED_BY(mutex_) = 0;
  Asker* first_ RS_GUARDED_BY(mutex_) = nullptr;  // of those that wait for registrations, in the order in which they came
  uintptr_t hand_ RS_GUARDED_BY(mutex_) = 0;  // where the next look for idle ones begins
  Statistics statistics_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
