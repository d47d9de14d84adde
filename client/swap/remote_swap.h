// RemoteSwap: the SwapTier whose slots are in the memory of servers. A server grants leases (MiBs); SlotSpace cuts them
// into slots here, so no message is on the path of an eviction while a lease has room, and Upkeep asks for the next one
// ahead of need and gives back what stays empty.
//
// Servers are near or far. Near: their pools are mapped here, and Submit copies with the checksum fused (synchronous).
// Far: MPI_Put/Get and a flush in Poll (mpi_rma.h). A slot is wholly near or wholly far; near ones are taken first.
//
// Thread-safety: as SwapTier says. One thread at a time talks to the servers (the asking role); the mutex is held for
// bookkeeping only, never while bytes move or MPI is called. Ownership: borrows the MpiWorld, which must outlive it and
// must not be left before it is gone.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/swap/lease_client.h"
#include "client/swap/slot_space.h"
#include "client/swap/swap_tier.h"
#include "client/transport/mpi_rma.h"
#include "common/mpi_world.h"
#include "common/mutex.h"
#include "common/running_clock.h"

namespace ramspan {

struct RemoteSwapOptions {
  // Doubles from lease to lease; the server has the last word. The largest is what a server makes resident in about
  // 50 ms, the longest that a Reserve waits where memory is used up faster than Upkeep can ask ahead.
  uint64_t first_lease_bytes = uint64_t{8} << 20;
  uint64_t lease_bytes_max = uint64_t{32} << 20;
  std::chrono::milliseconds answer_timeout{5000};  // then the server counts as full for as long
  std::chrono::milliseconds idle_lease{2000};      // an empty lease goes back after this time
};

class RemoteSwap final : public SwapTier {
 public:
  explicit RemoteSwap(MpiWorld& world, const RemoteSwapOptions& options = {});
  // REQUIRES: nothing in flight, MPI not finalised. Gives all leases back; slots that were not freed are gone with them.
  ~RemoteSwap() override;

  // Of the tier: synchronous only when every server is near; CapabilitiesOf tells it slot by slot.
  Capabilities capabilities() const override;
  Capabilities CapabilitiesOf(SlotRef slot) const override;
  bool IsLost(SlotRef slot, size_t bytes) const override;

  // Waits at most answer_timeout for a server's answer. kResourceExhausted: all are full (asked again after 20 ms to 1 s).
  // kUnavailable: all are dead.
  Result<SlotRef> Reserve(size_t bytes) override;
  Result<SlotRef> TryReserve(size_t bytes) override;
  void Free(SlotRef slot, size_t bytes) override;

  // Where the server is dead, writes end with kUnavailable and reads with kDataLoss; the log names server and remedy.
  void SubmitWrite(std::span<IoRequest* const> batch) override { Submit(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) override { Submit(batch, false); }
  // With far requests in flight it blocks for their flush, whatever `wait` says.
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  void Upkeep() override;
  TierStats stats() const override;

 private:
  // Of deadlines and pauses alike: a server that was suspended together with this process is not late.
  struct Clock : RunningClock {
    static time_point now() { return ProcessNow(); }
  };

  // A lease, seen from here; `bytes` is 0 while the index is unused.
  struct Region {
    uint32_t server = 0;
    uint64_t lease = 0;
    uint64_t offset = 0;  // in the server's pool
    uint64_t bytes = 0;
    Clock::time_point empty_since{};
  };
  // All near servers, or all far ones.
  struct Side {
    SlotSpace space;
    std::vector<Region> regions;   // by SlotSpace's index
    uint32_t preferred = 0;        // the region that had room last
    uint64_t next_lease_bytes = 0;
  };
  // Full until `full_until`; the pause doubles while the server keeps saying so.
  struct ServerState {
    bool closed = false;  // found dead, its regions closed
    bool asked = false;
    Clock::time_point asked_at{};
    Clock::time_point full_until{};
    std::chrono::milliseconds full_pause{0};
    uint64_t free_bytes = 0;  // as last told
  };
  // A run of a request's bytes in one server's pool.
  struct Piece {
    uint32_t server = 0;
    uint64_t offset = 0;
    size_t bytes = 0;
  };

  bool IsNear(uint32_t server) const { return world_.servers()[server].shared != nullptr; }
  Capabilities CapabilitiesOfSide(bool near) const;

  // Leases. The first group runs in the asking role, without the mutex.
  bool Grow(bool near, uint64_t bytes, Clock::time_point since);
  void Ask(uint32_t server, uint64_t bytes);
  void TakeAnswers();
  void Adopt(uint32_t server, const WireMessage& grant);
  void CloseDeadServers();
  void AskAhead(bool near, Clock::time_point now);
  void ReturnIdleLeases(bool near, Clock::time_point now);
  std::vector<uint32_t> ServersToAsk(bool near, Clock::time_point now) const RS_REQUIRES(mutex_);
  void NoteFull(uint32_t server, std::chrono::milliseconds pause) RS_REQUIRES(mutex_);
  bool AnswersAreLate(Clock::time_point since) const RS_REQUIRES(mutex_);
  bool TakeAskingRole(Clock::time_point since);
  bool TryTakeAskingRole();
  void LeaveAskingRole();
  Status FullStatus() const;

  SlotRef ReserveHeld(bool near, size_t bytes);
  void ChoosePreferred(Side* side, size_t bytes) const RS_REQUIRES(mutex_);

  // Transfers.
  void Submit(std::span<IoRequest* const> batch, bool is_write);
  void Start(IoRequest* request);
  void Locate(SlotRef slot, size_t bytes, std::vector<Piece>* pieces) const;
  void CopyNear(IoRequest* request, const std::vector<Piece>& pieces);
  void StartFar(IoRequest* request, const std::vector<Piece>& pieces);
  bool CollectFar();
  void Finish(IoRequest* request, StatusCode result) RS_REQUIRES(mutex_);

  // Constant after construction.
  MpiWorld& world_;
  const RemoteSwapOptions options_;
  bool has_near_ = false, has_far_ = false;

  // Used in the asking role only.
  LeaseClient leases_;

  // Synchronises itself.
  MpiRma rma_;

  mutable Mutex mutex_{LockRank::kTier};
  CondVar changed_;  // a request finished; the asking role is free
  bool asking_ RS_GUARDED_BY(mutex_) = false;
  std::array<Side, 2> sides_ RS_GUARDED_BY(mutex_);  // far, near
  std::vector<ServerState> servers_ RS_GUARDED_BY(mutex_);
  uint64_t grants_ RS_GUARDED_BY(mutex_) = 0;
  Clock::time_point last_grant_ RS_GUARDED_BY(mutex_){};
  IoRequest* done_first_ RS_GUARDED_BY(mutex_) = nullptr;
  IoRequest* done_last_ RS_GUARDED_BY(mutex_) = nullptr;
  size_t in_flight_ RS_GUARDED_BY(mutex_) = 0;  // far requests started, not finished
  TierStats stats_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
