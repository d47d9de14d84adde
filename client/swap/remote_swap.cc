#include "client/swap/remote_swap.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "common/checksum.h"
#include "common/log.h"
#include "common/thread_scratch.h"
#include "common/units.h"

namespace ramspan {
namespace {

using slot_bits::IsFar;
using slot_bits::WithoutFar;
using std::chrono::milliseconds;

constexpr size_t kInFlightMax = 64;
constexpr milliseconds kFullPauseMin{20}, kFullPauseMax{1000};
// What the end of the tier waits for answers that are still under way.
constexpr milliseconds kLastAnswers{100};

uint64_t RoundUpToLease(uint64_t bytes) { return (bytes + kLeaseGranule - 1) / kLeaseGranule * kLeaseGranule; }

}  // namespace

RemoteSwap::RemoteSwap(MpiWorld& world, const RemoteSwapOptions& options)
    : world_(world), options_(options), leases_(world), rma_(world, JobWatchdog(world)), servers_(world.servers().size()) {
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    (IsNear(i) ? has_near_ : has_far_) = true;
    servers_[i].free_bytes = world.servers()[i].pool_bytes;
  }
  for (Side& side : sides_) side.next_lease_bytes = RoundUpToLease(options.first_lease_bytes);
  if (has_far_) JobWatchdog(world).Start();
}

RemoteSwap::~RemoteSwap() {
  const Clock::time_point deadline = Clock::now() + kLastAnswers;
  for (bool waiting = true; waiting && Clock::now() < deadline;) {
    TakeAnswers();  // a grant that came too late is given back with the others
    MutexLock lock(mutex_);
    waiting = false;
    for (uint32_t i = 0; i < servers_.size(); ++i) waiting = waiting || (servers_[i].asked && !world_.IsDead(i));
    if (waiting) changed_.WaitFor(mutex_, milliseconds(1));
  }
  MutexLock lock(mutex_);
  RS_CHECK(in_flight_ == 0 && done_first_ == nullptr, "remote tier destroyed with %zu requests in flight", in_flight_);
  for (const Side& side : sides_) {
    for (const Region& region : side.regions) {
      if (region.bytes != 0 && !world_.IsDead(region.server)) leases_.Return(region.server, region.lease);
    }
  }
}

SwapTier::Capabilities RemoteSwap::CapabilitiesOfSide(bool near) const {
  return {.name = "remote", .synchronous = near, .checksums = near, .max_in_flight = kInFlightMax};
}

SwapTier::Capabilities RemoteSwap::capabilities() const { return CapabilitiesOfSide(!has_far_); }

SwapTier::Capabilities RemoteSwap::CapabilitiesOf(SlotRef slot) const { return CapabilitiesOfSide(!IsFar(slot)); }

// ---- Slots ----

Result<SlotRef> RemoteSwap::Reserve(size_t bytes) {
  const Clock::time_point begin = Clock::now();
  for (const bool near : {true, false}) {
    if (near ? !has_near_ : !has_far_) continue;
    for (;;) {
      if (const SlotRef slot = ReserveHeld(near, bytes)) return slot;
      if (!TakeAskingRole(begin)) break;
      // Somebody else may have grown the side while this thread waited for the role.
      const SlotRef slot = ReserveHeld(near, bytes);
      const bool grown = !slot && Grow(near, bytes, begin);
      LeaveAskingRole();
      if (slot) return slot;
      if (!grown) break;
    }
  }
  return FullStatus();
}

Result<SlotRef> RemoteSwap::TryReserve(size_t bytes) {
  for (const bool near : {true, false}) {
    if (near ? !has_near_ : !has_far_) continue;
    if (const SlotRef slot = ReserveHeld(near, bytes)) return slot;
    MutexLock lock(mutex_);
    if (!ServersToAsk(near, Clock::now()).empty()) return Aborted("a memory server has to be asked");
  }
  return FullStatus();
}

SlotRef RemoteSwap::ReserveHeld(bool near, size_t bytes) {
  MutexLock lock(mutex_);
  Side& side = sides_[near];
  if (side.space.free_bytes() < bytes) return {};
  ChoosePreferred(&side, bytes);
  SlotRef slot = side.space.Reserve(bytes, side.preferred);
  if (!slot) return {};
  RS_CHECK(!IsFar(slot), "SlotSpace uses the far bit of slot %llx", static_cast<unsigned long long>(slot.bits));
  if (!near) slot = slot_bits::WithFar(slot);
  return slot;
}

// The region that had room last, else the nearest server's; a scan, but only once a region is full.
void RemoteSwap::ChoosePreferred(Side* side, size_t bytes) const {
  const bool still_there = side->preferred < side->regions.size() && side->regions[side->preferred].bytes != 0;
  if (still_there && side->space.RegionFree(side->preferred) >= bytes) return;
  side->preferred = 0;
  int best = 3;
  for (uint32_t i = 0; i < side->regions.size(); ++i) {
    if (side->regions[i].bytes == 0 || side->space.RegionFree(i) < bytes) continue;
    const int distance = world_.servers()[side->regions[i].server].distance;
    if (distance >= best) continue;
    best = distance;
    side->preferred = i;
  }
}

void RemoteSwap::Free(SlotRef slot, size_t bytes) {
  std::vector<Extent>& extents = ThreadScratch<std::vector<Extent>, struct ExtentsTag>();
  extents.clear();
  MutexLock lock(mutex_);
  Side& side = sides_[!IsFar(slot)];
  side.space.Resolve(WithoutFar(slot), bytes, &extents);
  side.space.Free(WithoutFar(slot), bytes);
  for (const Extent& extent : extents) {
    if (side.space.RegionUsed(extent.region) == 0) side.regions[extent.region].empty_since = Clock::now();
  }
}

TierStats RemoteSwap::stats() const {
  MutexLock lock(mutex_);
  TierStats stats = stats_;
  for (const Side& side : sides_) {
    stats.slot_bytes_used += side.space.used_bytes();
    stats.slot_bytes_capacity += side.space.capacity_bytes();
    stats.metadata_bytes += side.space.metadata_bytes() + side.regions.capacity() * sizeof(Region);
  }
  stats.metadata_bytes += sizeof *this + servers_.capacity() * sizeof(ServerState);
  return stats;
}

// ---- Leases ----

// Since the last lease, not for all that a large chunk needs: servers that give one after the other do answer.
bool RemoteSwap::AnswersAreLate(Clock::time_point since) const {
  return Clock::now() >= std::max(since, last_grant_) + options_.answer_timeout;
}

bool RemoteSwap::TakeAskingRole(Clock::time_point since) {
  MutexLock lock(mutex_);
  while (asking_) {
    if (AnswersAreLate(since)) return false;
    changed_.WaitFor(mutex_, milliseconds(1));
  }
  asking_ = true;
  return true;
}

bool RemoteSwap::TryTakeAskingRole() {
  MutexLock lock(mutex_);
  return !std::exchange(asking_, true);
}

void RemoteSwap::LeaveAskingRole() {
  MutexLock lock(mutex_);
  asking_ = false;
  changed_.NotifyAll();
}

Status RemoteSwap::FullStatus() const {
  uint64_t largest = 0;
  bool any_alive = false;
  for (size_t i = 0; i < world_.servers().size(); ++i) {
    any_alive = any_alive || !world_.IsDead(i);
    largest = std::max(largest, world_.servers()[i].pool_bytes);
  }
  if (!any_alive) {
    return Unavailable("all memory servers of this job are dead: see their messages, and start the job again");
  }
  return ResourceExhausted("memory servers are full (" + FormatBytes(largest) +
                           " each): more servers (-s) or more memory of each (--server-memory)");
}

// By distance, then by free room; servers that tie are taken in an order that differs from client to client.
std::vector<uint32_t> RemoteSwap::ServersToAsk(bool near, Clock::time_point now) const {
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (IsNear(i) == near && !world_.IsDead(i) && now >= servers_[i].full_until) order.push_back(i);
  }
  const auto key = [&](uint32_t i) RS_NO_THREAD_SAFETY_ANALYSIS {
    return std::tuple(world_.servers()[i].distance, ~servers_[i].free_bytes,
                      (i + static_cast<uint32_t>(world_.rank())) % servers_.size());
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return order;
}

// Adds a lease of this side, or finds that there is none to have now.
bool RemoteSwap::Grow(bool near, uint64_t bytes, Clock::time_point since) {
  std::vector<uint32_t> order;
  uint64_t grants_before = 0;
  {
    MutexLock lock(mutex_);
    order = ServersToAsk(near, Clock::now());
    grants_before = grants_;
  }
  for (const uint32_t server : order) {
    Ask(server, bytes);
    for (int round = 0;; ++round) {
      TakeAnswers();
      MutexLock lock(mutex_);
      if (grants_ != grants_before) return true;
      if (!servers_[server].asked || world_.IsDead(server)) break;
      if (AnswersAreLate(since)) {
        NoteFull(server, options_.answer_timeout);
        break;
      }
      // An answer takes 10 us from a busy server and 1 ms from a sleeping one; the wait lets go of the mutex.
      if (round > 20) changed_.WaitFor(mutex_, std::chrono::microseconds(50));
    }
  }
  return false;
}

// `bytes` 0: ahead of need.
void RemoteSwap::Ask(uint32_t server, uint64_t bytes) {
  uint64_t want = 0;
  {
    MutexLock lock(mutex_);
    ServerState& state = servers_[server];
    if (state.asked) return;  // the answer to an earlier request is as good
    state.asked = true;
    state.asked_at = Clock::now();
    const uint64_t next = sides_[IsNear(server)].next_lease_bytes;
    // A thread waits for this one: no larger than it must be, because a server makes fresh memory resident first.
    const uint64_t now_needed = std::max<uint64_t>(bytes, options_.first_lease_bytes);
    want = RoundUpToLease(std::min(bytes == 0 ? next : now_needed, options_.lease_bytes_max));
  }
  leases_.Ask(server, want, kLeaseGranule);
}

void RemoteSwap::TakeAnswers() {
  while (const std::optional<LeaseClient::Answer> answer = leases_.Next()) {
    if (answer->message.type == WireType::kLeaseGrant) {
      Adopt(answer->server, answer->message);
      continue;
    }
    MutexLock lock(mutex_);
    ServerState& state = servers_[answer->server];
    state.free_bytes = answer->message.free_bytes;
    NoteFull(answer->server, std::clamp(state.full_pause * 2, kFullPauseMin, kFullPauseMax));
  }
}

void RemoteSwap::NoteFull(uint32_t server, milliseconds pause) {
  ServerState& state = servers_[server];
  state.asked = false;
  state.full_pause = std::min(pause, kFullPauseMax);
  state.full_until = Clock::now() + pause;
}

void RemoteSwap::Adopt(uint32_t server, const WireMessage& grant) {
  if (std::byte* shared = world_.servers()[server].shared; shared != nullptr) {
    // The server has made the pages; mapping them here all at once is cheaper than a fault for each.
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(shared + grant.offset) & ~(page - 1);
    const uintptr_t end = reinterpret_cast<uintptr_t>(shared + grant.offset + grant.bytes);
    if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) != 0) errno = 0;
  }
  MutexLock lock(mutex_);
  Side& side = sides_[IsNear(server)];
  const uint32_t index = side.space.AddRegion(grant.bytes);
  if (side.regions.size() <= index) side.regions.resize(index + 1);
  side.regions[index] = {server, grant.lease, grant.offset, grant.bytes, Clock::now()};
  ServerState& state = servers_[server];
  state.asked = false;
  state.full_pause = milliseconds(0);
  state.free_bytes = grant.free_bytes;
  side.next_lease_bytes = std::min(side.next_lease_bytes * 2, RoundUpToLease(options_.lease_bytes_max));
  ++grants_;
  last_grant_ = Clock::now();
}

void RemoteSwap::Upkeep() {
  if (!TryTakeAskingRole()) return;  // whoever has the role is doing what is to be done
  TakeAnswers();
  CloseDeadServers();
  const Clock::time_point now = Clock::now();
  for (const bool near : {true, false}) {
    ReturnIdleLeases(near, now);
    AskAhead(near, now);
  }
  LeaveAskingRole();
}

void RemoteSwap::CloseDeadServers() {
  for (uint32_t server = 0; server < world_.servers().size(); ++server) {
    if (!world_.IsDead(server)) continue;
    uint64_t lost = 0;
    {
      MutexLock lock(mutex_);
      if (servers_[server].closed) continue;
      servers_[server].closed = true;
      Side& side = sides_[IsNear(server)];
      for (uint32_t i = 0; i < side.regions.size(); ++i) {
        if (side.regions[i].bytes == 0 || side.regions[i].server != server) continue;
        lost += side.space.RegionUsed(i);
        side.space.CloseRegion(i);
      }
    }
    LogWarning("memory server rank %d died with %s of this rank's chunks; a chunk that is used and lives only there is "
               "lost. Remedy: see why the server died (its own message, memory limits of its host), start the job again",
               world_.servers()[server].world_rank, FormatBytes(lost).c_str());
  }
}

// One lease ahead of need: when less than a quarter of the next one is left, so that it is there before it is needed.
void RemoteSwap::AskAhead(bool near, Clock::time_point now) {
  uint32_t server = 0;
  {
    MutexLock lock(mutex_);
    const Side& side = sides_[near];
    if (side.space.used_bytes() == 0 || side.space.free_bytes() >= side.next_lease_bytes / 4) return;
    for (uint32_t i = 0; i < servers_.size(); ++i) {
      if (!servers_[i].asked || IsNear(i) != near) continue;
      if (now - servers_[i].asked_at > options_.answer_timeout) NoteFull(i, options_.answer_timeout);
      return;
    }
    const std::vector<uint32_t> order = ServersToAsk(near, now);
    if (order.empty()) return;
    server = order.front();
  }
  Ask(server, 0);
}

// Keeps half of the next lease's size free, twice of what AskAhead wants, so that a lease does not go back and forth.
void RemoteSwap::ReturnIdleLeases(bool near, Clock::time_point now) {
  std::vector<Region> idle;
  {
    MutexLock lock(mutex_);
    Side& side = sides_[near];
    const bool all_unused = side.space.used_bytes() == 0;
    for (uint32_t i = 0; i < side.regions.size(); ++i) {
      Region& region = side.regions[i];
      if (region.bytes == 0 || side.space.RegionUsed(i) != 0) continue;
      const bool dead = servers_[region.server].closed;
      const bool spare = all_unused || side.space.free_bytes() - region.bytes >= side.next_lease_bytes / 2;
      if (!dead && (!spare || now - region.empty_since < options_.idle_lease)) continue;
      side.space.RemoveRegion(i);
      if (!dead) idle.push_back(region);
      region = {};
      side.next_lease_bytes = std::max(side.next_lease_bytes / 2, RoundUpToLease(options_.first_lease_bytes));
    }
  }
  for (const Region& region : idle) leases_.Return(region.server, region.lease);
}

// ---- Transfers ----

void RemoteSwap::Submit(std::span<IoRequest* const> batch, bool is_write) {
  for (IoRequest* request : batch) {
    request->is_write = is_write;
    request->result = StatusCode::kOk;
    request->bytes_done = 0;
    request->next = nullptr;
    Start(request);
  }
}

void RemoteSwap::Start(IoRequest* request) {
  std::vector<Piece>& pieces = ThreadScratch<std::vector<Piece>, struct PiecesTag>();
  Locate(request->slot, request->bytes, &pieces);
  if (!IsFar(request->slot)) {
    CopyNear(request, pieces);
    MutexLock lock(mutex_);
    Finish(request, StatusCode::kOk);
    return;
  }
  bool full = true;
  while (full) {
    {
      MutexLock lock(mutex_);
      full = in_flight_ >= kInFlightMax;
      if (!full) ++in_flight_;
    }
    if (full && !CollectFar()) sched_yield();
  }
  StartFar(request, pieces);
}

void RemoteSwap::Locate(SlotRef slot, size_t bytes, std::vector<Piece>* pieces) const {
  std::vector<Extent>& extents = ThreadScratch<std::vector<Extent>, struct ExtentsTag>();
  extents.clear();
  pieces->clear();
  MutexLock lock(mutex_);
  const Side& side = sides_[!IsFar(slot)];
  side.space.Resolve(WithoutFar(slot), bytes, &extents);
  size_t left = bytes;
  for (const Extent& extent : extents) {
    const Region& region = side.regions[extent.region];
    const size_t n = std::min<size_t>(left, extent.bytes);
    RS_CHECK(extent.offset + n <= region.bytes, "slot %llx reaches beyond its lease",
             static_cast<unsigned long long>(slot.bits));
    pieces->push_back({region.server, region.offset + extent.offset, n});
    left -= n;
  }
  RS_CHECK(left == 0, "slot %llx is shorter than its chunk", static_cast<unsigned long long>(slot.bits));
}

// Near servers' memory outlives them: the mapping stays.
bool RemoteSwap::IsLost(SlotRef slot, size_t bytes) const {
  if (!IsFar(slot)) return false;
  std::vector<Piece>& pieces = ThreadScratch<std::vector<Piece>, struct LostPiecesTag>();
  Locate(slot, bytes, &pieces);
  return std::any_of(pieces.begin(), pieces.end(), [&](const Piece& piece) { return world_.IsDead(piece.server); });
}

// Needs no living server: the mapping stays, with all that was written, when a near server dies.
void RemoteSwap::CopyNear(IoRequest* request, const std::vector<Piece>& pieces) {
  auto* buffer = static_cast<std::byte*>(request->buffer);
  const bool one = pieces.size() == 1;
  for (const Piece& piece : pieces) {
    std::byte* there = world_.servers()[piece.server].shared + piece.offset;
    std::byte* to = request->is_write ? there : buffer;
    const std::byte* from = request->is_write ? buffer : there;
    if (one) {
      const HashedSide frame = request->is_write ? HashedSide::kSource : HashedSide::kDestination;
      request->checksum = CopyWithChecksum(to, from, piece.bytes, frame);
    } else {
      std::memcpy(to, from, piece.bytes);
    }
    buffer += piece.bytes;
  }
  if (!one) request->checksum = Checksum(request->buffer, request->bytes);
}

// Groups the pieces by server, because a flush is a server's.
void RemoteSwap::StartFar(IoRequest* request, const std::vector<Piece>& pieces) {
  auto& transfers = ThreadScratch<std::vector<std::vector<MpiRma::Transfer>>, struct TransfersTag>();
  transfers.resize(world_.servers().size());
  for (auto& list : transfers) list.clear();
  auto* buffer = static_cast<std::byte*>(request->buffer);
  uint32_t servers = 0;
  for (const Piece& piece : pieces) {
    std::vector<MpiRma::Transfer>& list = transfers[piece.server];
    if (list.empty()) ++servers;
    list.push_back({request, request->is_write, buffer, piece.offset, piece.bytes});
    buffer += piece.bytes;
  }
  // Before the first Start: from then on another thread may complete the request.
  request->parts_left = servers;
  for (uint32_t server = 0; server < transfers.size(); ++server) {
    if (!transfers[server].empty()) rma_.Start(server, transfers[server]);
  }
}

bool RemoteSwap::CollectFar() {
  auto& completions = ThreadScratch<std::vector<MpiRma::Completion>, struct CompletionsTag>();
  completions.clear();
  if (!rma_.Collect(&completions)) return false;
  bool failed = false;
  {
    MutexLock lock(mutex_);
    for (const MpiRma::Completion& completion : completions) {
      IoRequest* request = completion.request;
      if (!completion.ok) {
        request->result = request->is_write ? StatusCode::kUnavailable : StatusCode::kDataLoss;
        failed = true;
      }
      if (--request->parts_left != 0) continue;
      --in_flight_;
      Finish(request, request->result);
    }
  }
  // So that the user reads of the server before the program reads of the chunk.
  if (failed) CloseDeadServers();
  return true;
}

void RemoteSwap::Finish(IoRequest* request, StatusCode result) {
  request->result = result;
  request->bytes_done = result == StatusCode::kOk ? request->bytes : 0;
  request->next = nullptr;
  (done_last_ == nullptr ? done_first_ : done_last_->next) = request;
  done_last_ = request;
  changed_.NotifyAll();
  ++(request->is_write ? stats_.writes : stats_.reads);
  (request->is_write ? stats_.bytes_written : stats_.bytes_read) += request->bytes_done;
  if (result != StatusCode::kOk) ++stats_.errors;
}

size_t RemoteSwap::Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) {
  // Spinning first: a blocked wake-up costs 70 to 280 us, about what a transfer takes.
  constexpr std::chrono::microseconds kSpin{100}, kNap{200};
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    {
      MutexLock lock(mutex_);
      size_t n = 0;
      for (; n < done.size() && done_first_ != nullptr; ++n) {
        done[n] = done_first_;
        done_first_ = done_first_->next;
      }
      if (done_first_ == nullptr) done_last_ = nullptr;
      if (n > 0 || in_flight_ == 0) return n;
    }
    if (CollectFar()) continue;
    // Another thread flushes what is in flight.
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited >= wait) return 0;
    if (waited < kSpin) {
      sched_yield();
      continue;
    }
    MutexLock lock(mutex_);
    if (done_first_ == nullptr && in_flight_ != 0) changed_.WaitFor(mutex_, kNap);
  }
}

}  // namespace ramspan
