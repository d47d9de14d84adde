// OfiLane: transfers between this process and one far server, over an endpoint of their own. They are cut into parts. What the network
// cannot take at once waits in two queues here and is posted as others end: reads first, and few writes at a time (ofi_lane.cc says why). The first transfer that fails in the network fails the lane: the server is not there any
// more, or does not know this client. A buffer that cannot be registered fails its own transfer alone. Then the endpoint is closed, which is the only way to be sure that the network lets go of
// the buffers, and every transfer ends with an error.
//
// Thread-safety: any thread, any call. The mutex is held for bookkeeping only. One thread at a time posts and one polls; each
// is counted in users_, and the endpoint is closed when nobody is inside it.
// Ownership: of the endpoint; borrows buffers until their transfers have ended.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "client/transport/ofi_registrations.h"
#include "client/transport/transport.h"
#include "common/fabric.h"
#include "common/mutex.h"

namespace ramspan {

class OfiLane {
 public:
  OfiLane(std::unique_ptr<FabricEndpoint> endpoint, uint64_t peer, std::shared_ptr<OfiRegistrations> registrations, uint32_t server);
  ~OfiLane();  // closes the endpoint; what was in flight is not reported any more
  OfiLane(const OfiLane&) = delete;
  OfiLane& operator=(const OfiLane&) = delete;

  // `key`, `address`: of the transfer's first byte in the server's memory. Does not wait; allocates nothing once warm.
  void Start(const ServerTransport::Transfer& transfer, uint64_t key, uint64_t address);
  // Appends what has ended, without waiting. False: nothing was in flight, or another thread is polling.
  bool Collect(std::vector<ServerTransport::Completion>* done);

  // Instead of spinning with Collect: the descriptor to sleep on until something comes for the transfers in flight. Nobody else polls then until
  // EndSleep. kNothingHere: none is in flight, or another thread is at it. kAwake: there is something to Collect. kBlind: the network has no such descriptor.
  static constexpr int kNothingHere = -1, kAwake = -2, kBlind = -3;
  int BeginSleep();
  void EndSleep();

  // For ever. What is in flight ends with an error in the next Collect.
  void Fail();
  bool has_failed() const { return failed_flag_.load(std::memory_order_relaxed); }

  // Takes what has ended, for the next Collect, and posts what waits: for who keeps watch over transfers while nobody may be collecting.
  void Watch();
  // Who sees `in_flight` above zero and `ended` unchanged for long enough, and watched meanwhile, knows that nothing moves. `ended` counts what the
  // network is given at a time, not transfers, so a slow wire moves something.
  struct Look {
    size_t in_flight = 0;
    uint64_t ended = 0;
    uint64_t collected = 0;  // how often somebody has asked for what has ended
    bool is_collected = false;  // somebody sleeps until something has
  };
  Look look() const;

 private:
  // A transfer of the caller's.
  struct Whole {
    void* cookie = nullptr;
    bool is_write = false;
    std::span<std::byte> local;
    uint64_t key = 0, address = 0;
    size_t begun = 0;        // bytes of it that were posted, or are being posted; below all of them it waits in its line
    uint32_t parts_left = 0;  // in the network
    bool waits = true, failed = false;
    Whole* next = nullptr;  // in a line, or among the free ones
  };
  using Clock = std::chrono::steady_clock;
  // One of the network's.
  struct Part {
    std::array<std::byte, kFabricContextBytes> context;  // first: the network gives its address back
    Whole* whole = nullptr;  // null: this part is free
    Part* next = nullptr;    // among the free ones
    size_t at = 0, bytes = 0;  // in the whole
    std::shared_ptr<const FabricRegion> region;
  };
  // Those that wait to be posted.
  struct Line {
    Whole *first = nullptr, *last = nullptr;
  };
  static constexpr size_t kPartsMax = 256;  // as many as an endpoint takes (common/fabric.cc)

  Line* NextLine() RS_REQUIRES(mutex_);
  Part* TakePart() RS_REQUIRES(mutex_);
  void PutBack(Part* part) RS_REQUIRES(mutex_);
  void PostWaiting();
  // kNoBuffer: this process cannot register the part's buffer; the server has no part in that. kNoBufferYet: the same, while transfers, of whatever server,
  // hold registrations: one of them ends, and it is tried again.
  enum class Tried { kPosted, kAgain, kNoBuffer, kNoBufferYet, kFailed };
  Tried Post(Part* part) noexcept;  // an exception would leave the part lost and the lane as if somebody posted
  bool MayWaitForRegistrations(Clock::time_point now) RS_REQUIRES(mutex_);
  void Finish(Part* part, bool ok) RS_REQUIRES(mutex_);
  void End(Whole* whole) RS_REQUIRES(mutex_);
  // Who watches collects nothing, so nobody may leave the waiting to it.
  enum class Poller { kNone, kCollector, kWatch };
  bool Poll(Poller poller);
  void Bury();

  // Constant after construction.
  const uint64_t peer_;
  const std::shared_ptr<OfiRegistrations> registrations_;
  const uint32_t server_;
  const size_t part_bytes_max_;

  std::atomic<uint64_t> unregistered_{0};  // how often a buffer could not be registered; publishes nothing
  std::atomic<bool> failed_flag_{false};  // repeats failed_ for looks without the mutex; publishes nothing
  mutable Mutex mutex_{LockRank::kTransport};
  std::unique_ptr<FabricEndpoint> endpoint_;  // used by counted users without the mutex; null once buried
  int users_ RS_GUARDED_BY(mutex_) = 0;
  bool failed_ RS_GUARDED_BY(mutex_) = false, buried_ RS_GUARDED_BY(mutex_) = false;
  bool posting_ RS_GUARDED_BY(mutex_) = false;
  OfiRegistrations::Asker asker_;  // used by who posts, and at the end
  // Since when a buffer waits for registrations (0: none does), and when to try again: each try closes what nobody uses.
  Clock::time_point unregistered_since_ RS_GUARDED_BY(mutex_){}, register_again_ RS_GUARDED_BY(mutex_){};
  Poller poller_ RS_GUARDED_BY(mutex_) = Poller::kNone;
  std::array<Part, kPartsMax> parts_ RS_GUARDED_BY(mutex_);
  std::deque<Whole> wholes_ RS_GUARDED_BY(mutex_);  // a deque: they do not move
  Part* free_parts_ RS_GUARDED_BY(mutex_) = nullptr;
  Whole* free_wholes_ RS_GUARDED_BY(mutex_) = nullptr;
  Line waiting_reads_ RS_GUARDED_BY(mutex_), waiting_writes_ RS_GUARDED_BY(mutex_);
  std::vector<ServerTransport::Completion> done_ RS_GUARDED_BY(mutex_);
  size_t in_flight_ RS_GUARDED_BY(mutex_) = 0;  // wholes, and those in done_
  size_t in_network_ RS_GUARDED_BY(mutex_) = 0;  // parts that were posted, or are being posted
  uint64_t written_in_network_ RS_GUARDED_BY(mutex_) = 0;  // bytes of parts of writes
  uint64_t ended_ RS_GUARDED_BY(mutex_) = 0;    // parts
  uint64_t collected_ RS_GUARDED_BY(mutex_) = 0;
};

}  // namespace ramspan
