// OfiServer: one memory server as a client sees it: the link to it, the leases that it has granted, and the way to their bytes.
// Near servers (on this host) hand each lease over as a sealed memory file, which is mapped where `mapped` + offset says, in a range
// of addresses that is kept for it; far ones are reached through a lane.
//
// Nothing that the server says is believed further than it can be checked: a grant has to fit into the capacity and between the
// other leases, a memory file has to have its length for good. What does not is refused as if the server had been full.
//
// Thread-safety: any thread, any call; Progress by the transport's thread alone. The mutex is held for bookkeeping, sealing a record and
// handing it to a socket that does not block. Ownership: of link, mappings and lane.
#pragma once

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/transport/ofi_lane.h"
#include "client/transport/transport.h"
#include "common/link.h"
#include "common/mutex.h"

namespace ramspan {

class OfiServer {
 public:
  // A server that has introduced itself over a link that is trusted; `lane`: null for a near one.
  static Result<std::unique_ptr<OfiServer>> Make(uint32_t number, std::string label, std::unique_ptr<Link> link,
                                                 const Introduction& introduction, std::unique_ptr<OfiLane> lane);
  ~OfiServer();
  OfiServer(const OfiServer&) = delete;
  OfiServer& operator=(const OfiServer&) = delete;

  const ServerTransport::Server& description() const { return description_; }
  uint64_t instance() const { return instance_; }
  bool is_dead() const { return dead_.load(std::memory_order_acquire) || (lane_ && lane_->has_failed()); }

  bool is_draining() const { return draining_.load(std::memory_order_relaxed) || left_.load(std::memory_order_relaxed); }
  // This client does not want it any more, or does again.
  void SetLeft(bool left) { left_.store(left, std::memory_order_relaxed); }
  bool is_left() const { return left_.load(std::memory_order_relaxed); }
  // As ServerTransport's.
  uint64_t AskedBack() const {
    const uint64_t wanted = to_be_returned_.load(std::memory_order_relaxed), returned = returned_.load(std::memory_order_relaxed);
    return wanted - std::min(wanted, returned);
  }
  void TellUsage(uint64_t written_bytes, uint64_t read_bytes);
  // No lease of its is held here.
  bool HoldsNothing();

  // As ServerTransport's.
  void Start(const ServerTransport::Transfer& transfer);
  bool Collect(std::vector<ServerTransport::Completion>* done);
  // std::bad_alloc: nothing was sent. A lease is returned all the same: then the server is told later.
  void Send(const WireMessage& message);
  std::optional<WireRecord> Receive();
  void Prepare(uint64_t offset, uint64_t bytes);

  // Tells a far server that transfers are under way, so that it polls for them: again and again, but not too often.
  void Announce();

  // As OfiLane's. Near servers move all at once: nobody sleeps.
  int BeginSleep() { return lane_ ? lane_->BeginSleep() : OfiLane::kNothingHere; }
  void EndSleep() { lane_->EndSleep(); }

  // Takes what has come. `descriptor`: to be polled, for writing too if *wants_to_write; -1 when the server is dead.
  void Progress();
  int descriptor(bool* wants_to_write);
  // Asks whether it is there. What has come from it so far, and what its lane has done, which is seen while somebody collects or watches.
  void Ping();
  uint64_t arrivals();
  void WatchTransfers();
  OfiLane::Look lane_look() const { return lane_ ? lane_->look() : OfiLane::Look{}; }
  // For ever: its transfers fail, its link is closed, what it has mapped here stays. Says why, once.
  void Bury(const std::string& why);
  // In a forked child: so that the parent's end is seen by the server.
  void CloseInForkedChild() RS_NO_THREAD_SAFETY_ANALYSIS;

 private:
  struct Held {
    uint64_t bytes = 0, id = 0;
    LeaseAccess access;
    bool is_returned = false;  // and the server has not been told, for want of room or heap: nobody uses it any more
  };

  OfiServer(uint32_t number, std::unique_ptr<Link> link, std::unique_ptr<OfiLane> lane)
      : number_(number), lane_(std::move(lane)), link_(std::move(link)) {}
  bool is_near() const { return description_.mapped != nullptr; }
  void PrepareToTake() RS_REQUIRES(mutex_);
  bool Return(uint64_t lease) RS_REQUIRES(mutex_);
  void TellReturned() RS_REQUIRES(mutex_);
  void PutIntoInbox(const WireRecord& record) RS_REQUIRES(mutex_);
  void Take(const LinkFrame& frame, const Descriptor& descriptor) RS_REQUIRES(mutex_);
  const char* TakeGrant(const WireMessage& grant, const LeaseAccess& access, const Descriptor& descriptor) RS_REQUIRES(mutex_);
  bool Overlaps(uint64_t offset, uint64_t bytes) const RS_REQUIRES(mutex_);
  const char* Map(const WireMessage& grant, const Descriptor& file);
  void Unmap(uint64_t offset, uint64_t bytes);
  void CopyNear(const ServerTransport::Transfer& transfer, bool leased);

  // Constant after Make.
  const uint32_t number_;
  const std::unique_ptr<OfiLane> lane_;
  ServerTransport::Server description_;
  uint64_t instance_ = 0;

  std::atomic<bool> dead_{false};  // set after all that a death means here is done: the lane has failed
  std::atomic<bool> is_mourned_{false};  // why it is gone has been said; publishes nothing
  std::atomic<bool> draining_{false};  // the server has said so; publishes nothing but itself
  std::atomic<bool> left_{false};      // this client has decided so; likewise
  // Bytes of leases since the link was made, as the server wants it and as it is. Sums, so that what is under way counts once; they
  // publish nothing but themselves.
  std::atomic<uint64_t> to_be_returned_{0}, returned_{0};
  std::atomic<int64_t> announced_ms_{0};  // of the steady clock; any order will do
  Mutex mutex_{LockRank::kTransport};
  const std::unique_ptr<Link> link_ RS_PT_GUARDED_BY(mutex_);
  using Leases = std::map<uint64_t, Held>;
  Leases leases_ RS_GUARDED_BY(mutex_);  // by offset; none overlaps another
  bool has_untold_ RS_GUARDED_BY(mutex_) = false;  // some of them are returned, so that Progress need not look at each
  std::list<WireRecord> inbox_ RS_GUARDED_BY(mutex_);
  // What one more frame needs, allocated before the frame is taken: later it would be lost.
  Leases::node_type spare_lease_ RS_GUARDED_BY(mutex_);
  std::list<WireRecord> spare_record_ RS_GUARDED_BY(mutex_);
  const char* unusable_ RS_GUARDED_BY(mutex_) = nullptr;  // what is wrong with a grant that was refused, until it has been said
  std::vector<ServerTransport::Completion> done_ RS_GUARDED_BY(mutex_);  // of copies, and of what cannot be
};

}  // namespace ramspan
