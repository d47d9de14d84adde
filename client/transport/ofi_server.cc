#include "client/transport/ofi_server.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/huge_page.h"
#include "common/log.h"

namespace ramspan {
namespace {

// A fifth of the time for which a server believes it (memserver/server.cc).
constexpr int64_t kAnnounceEveryMs = 5;
// Answers that nobody has taken: a server that sends more without being asked breaks the protocol.
constexpr size_t kInboxMax = 256;

int64_t NowMs() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now().time_since_epoch()).count();
}

// From the begin of a huge page on, or leases could not be mapped with any. Null: there are too few.
std::byte* TakeAddresses(uint64_t bytes) {
  if (bytes > UINT64_MAX - kHugePageBytes) return nullptr;  // a server may say anything
  void* const range = mmap(nullptr, bytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  const uint64_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(range) % kHugePageBytes) % kHugePageBytes;
  std::byte* const begin = static_cast<std::byte*>(range) + before;
  if (before > 0) munmap(range, before);
  munmap(begin + bytes, kHugePageBytes - before);
  return begin;
}

}  // namespace

Result<std::unique_ptr<OfiServer>> OfiServer::Make(uint32_t number, std::string label, std::unique_ptr<Link> link,
                                                   const Introduction& introduction, std::unique_ptr<OfiLane> lane) {
  if (introduction.capacity_bytes < kLeaseGranule) return InvalidArgument(label + " lends nothing");
  const bool near = lane == nullptr;
  auto server = std::unique_ptr<OfiServer>(new OfiServer(number, std::move(link), std::move(lane)));
  server->instance_ = introduction.instance;
  server->description_ = {.label = std::move(label), .distance = near ? 1 : 2, .capacity_bytes = introduction.capacity_bytes};
  if (!near) return server;
  std::byte* const range = TakeAddresses(introduction.capacity_bytes);
  if (range == nullptr) {
    return ResourceExhausted("no addresses for the " + std::to_string(introduction.capacity_bytes >> 20) + " MiB of " +
                             server->description_.label + ": " + std::strerror(errno) + "; raise `ulimit -v`, or let it lend less (--memory)");
  }
  server->description_.mapped = range;
  return server;
}

OfiServer::~OfiServer() {
  if (is_near()) munmap(description_.mapped, description_.capacity_bytes);
}

// ---- Transfers ----

void OfiServer::Start(const ServerTransport::Transfer& transfer) {
  LeaseAccess access;
  uint64_t begin = 0;
  bool leased = false;
  {
    MutexLock lock(mutex_);
    auto held = leases_.upper_bound(transfer.offset);
    if (held != leases_.begin()) {
      --held;
      begin = held->first;
      leased = !held->second.is_returned && transfer.offset - begin <= held->second.bytes && transfer.bytes <= held->second.bytes - (transfer.offset - begin);
      access = held->second.access;
    }
  }
  if (lane_ == nullptr || !leased) return CopyNear(transfer, leased);
  Announce();
  lane_->Start(transfer, access.key, access.address + (transfer.offset - begin));
}

// A near server's memory is there, with all that was written, also when the server has died.
void OfiServer::CopyNear(const ServerTransport::Transfer& transfer, bool leased) {
  const bool ok = leased && lane_ == nullptr && !is_dead();
  if (ok) {
    std::byte* there = description_.mapped + transfer.offset;
    transfer.is_write ? std::memcpy(there, transfer.buffer, transfer.bytes) : std::memcpy(transfer.buffer, there, transfer.bytes);
  }
  MutexLock lock(mutex_);
  done_.push_back({transfer.cookie, number_, ok ? StatusCode::kOk : StatusCode::kUnavailable});
}

bool OfiServer::Collect(std::vector<ServerTransport::Completion>* done) {
  const bool lane = lane_ && lane_->Collect(done);
  MutexLock lock(mutex_);
  const bool some = !done_.empty();
  done->insert(done->end(), done_.begin(), done_.end());
  done_.clear();
  return lane || some;
}

void OfiServer::Announce() {
  if (lane_ == nullptr) return;
  const int64_t now = NowMs();
  int64_t last = announced_ms_.load(std::memory_order_relaxed);
  if (now - last < kAnnounceEveryMs || !announced_ms_.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
  MutexLock lock(mutex_);
  // A network that is cut for some seconds would fill the queue with them, which ends the link.
  if (link_->wants_to_write()) return;
  link_->Send({.kind = LinkFrame::Kind::kRecord, .record = Encode({.type = WireType::kActivity})});
}

void OfiServer::WatchTransfers() {
  if (lane_ == nullptr) return;
  lane_->Watch();
  Announce();
}

// ---- Records ----

void OfiServer::Send(const WireMessage& message) {
  MutexLock lock(mutex_);
  if (message.type == WireType::kLeaseReturn && Return(message.lease)) return;
  link_->Send({.kind = LinkFrame::Kind::kRecord, .record = Encode(message)});
}

// False: it is not held here.
bool OfiServer::Return(uint64_t lease) {
  const auto held = std::find_if(leases_.begin(), leases_.end(), [&](const auto& one) { return one.second.id == lease; });
  if (held == leases_.end()) return false;
  if (!std::exchange(held->second.is_returned, true)) {
    if (is_near()) Unmap(held->first, held->second.bytes);
    returned_.fetch_add(held->second.bytes, std::memory_order_relaxed);
    has_untold_ = true;
  }
  WithinHeap([this]() RS_NO_THREAD_SAFETY_ANALYSIS { return TellReturned(), true; }, false);
  return true;
}

// Where the link has no room, the next Progress goes on: many may be returned at once, and the server frees memory for each. So does it where the heap
// has no more for a frame that waits: what waits now has left some time after that.
void OfiServer::TellReturned() {
  auto held = leases_.begin();
  while (held != leases_.end() && link_->has_room()) {
    if (!held->second.is_returned) {
      ++held;
      continue;
    }
    link_->PrepareToSend();
    link_->Send({.kind = LinkFrame::Kind::kRecord, .record = Encode({.type = WireType::kLeaseReturn, .lease = held->second.id})});
    held = leases_.erase(held);
  }
  has_untold_ = held != leases_.end();
}

std::optional<WireRecord> OfiServer::Receive() {
  MutexLock lock(mutex_);
  if (inbox_.empty()) return std::nullopt;
  const WireRecord record = inbox_.front();
  inbox_.pop_front();
  return record;
}

void OfiServer::Prepare(uint64_t offset, uint64_t bytes) {
  if (!is_near()) return;
  // Kernels before 5.14 do not know it; then each page is mapped by its first use.
  if (madvise(description_.mapped + offset, bytes, MADV_POPULATE_WRITE) != 0) errno = 0;
}

void OfiServer::Progress() {
  std::string why;
  const char* unusable = nullptr;
  {
    MutexLock lock(mutex_);
    link_->Progress();
    LinkFrame frame;
    Descriptor descriptor;
    for (PrepareToTake(); link_->Next(&frame, &descriptor); PrepareToTake()) Take(frame, descriptor);
    if (has_untold_) TellReturned();
    if (link_->is_closed()) why = link_->why_closed().message();
    unusable = std::exchange(unusable_, nullptr);
  }
  if (unusable != nullptr) {
    LogWarning("memory server %s granted what cannot be used (%s); it counts as full for now", description_.label.c_str(), unusable);
  }
  if (!why.empty()) Bury(why);
}

void OfiServer::PrepareToTake() {
  link_->PrepareToSend();
  if (spare_record_.empty()) spare_record_.emplace_back();
  if (!spare_lease_.empty()) return;
  Leases one;
  one.try_emplace(0);
  spare_lease_ = one.extract(one.begin());
}

void OfiServer::PutIntoInbox(const WireRecord& record) {
  inbox_.splice(inbox_.end(), spare_record_, spare_record_.begin());
  inbox_.back() = record;
}

void OfiServer::Take(const LinkFrame& frame, const Descriptor& descriptor) {
  if (frame.kind == LinkFrame::Kind::kPong) return;
  if (frame.kind == LinkFrame::Kind::kDraining) return draining_.store(frame.draining, std::memory_order_relaxed);
  if (frame.kind == LinkFrame::Kind::kGiveBack) return to_be_returned_.store(frame.bytes, std::memory_order_relaxed);
  // The frame is gone from the link by now, so these errors must not need heap.
  const auto breaks_protocol = [](StaticText how) { return Status(StatusCode::kFailedPrecondition, how); };
  if (frame.kind != LinkFrame::Kind::kRecord && frame.kind != LinkFrame::Kind::kGrant) return link_->Close(breaks_protocol(StaticText("a frame that only clients send")));
  const Result<WireMessage> message = Decode(frame.record);
  if (!message.ok()) {
    return link_->Close(WithWords(StatusCode::kFailedPrecondition, [&] { return message.status().message(); }, StaticText("a control message that cannot be")));
  }
  const bool is_grant = message.value().type == WireType::kLeaseGrant;
  // Nobody has asked for it, and one tells as much as several.
  if (message.value().type == WireType::kSpare && std::find(inbox_.begin(), inbox_.end(), frame.record) != inbox_.end()) return;
  if (inbox_.size() >= kInboxMax) return link_->Close(breaks_protocol(StaticText("it answers what nobody has asked")));
  if (is_grant != (frame.kind == LinkFrame::Kind::kGrant)) return link_->Close(breaks_protocol(StaticText("a grant in the wrong frame")));
  const char* wrong = is_grant ? TakeGrant(message.value(), frame.access, descriptor) : nullptr;
  if (wrong == nullptr) return PutIntoInbox(frame.record);
  unusable_ = wrong;
  returned_.fetch_add(message.value().bytes, std::memory_order_relaxed);
  link_->Send({.kind = LinkFrame::Kind::kRecord, .record = Encode({.type = WireType::kLeaseReturn, .lease = message.value().lease})});
  PutIntoInbox(Encode({.type = WireType::kFull, .sequence = message.value().sequence, .flags = static_cast<uint32_t>(FullReason::kNoMemory)}));
}

// What is wrong with it, or null: it can be used. A grant that is held already was sent again.
const char* OfiServer::TakeGrant(const WireMessage& grant, const LeaseAccess& access, const Descriptor& descriptor) {
  const auto same = leases_.find(grant.offset);
  if (same != leases_.end() && same->second.id == grant.lease && same->second.bytes == grant.bytes) return nullptr;
  const uint64_t capacity = description_.capacity_bytes;
  if (grant.bytes > capacity || grant.offset > capacity - grant.bytes) return "it lies beyond the pool";
  if (Overlaps(grant.offset, grant.bytes)) return "it overlaps another lease";
  if (access.has_descriptor != is_near()) return "it cannot be reached";
  if (is_near()) {
    if (const char* wrong = Map(grant, descriptor)) return wrong;
  }
  spare_lease_.key() = grant.offset;
  spare_lease_.mapped() = {.bytes = grant.bytes, .id = grant.lease, .access = access};
  leases_.insert(std::move(spare_lease_));
  return nullptr;
}

bool OfiServer::Overlaps(uint64_t offset, uint64_t bytes) const {
  const auto next = leases_.lower_bound(offset);
  // Differences, not sums: nothing here can wrap.
  if (next != leases_.end() && next->first - offset < bytes) return true;
  if (next == leases_.begin()) return false;
  const auto before = std::prev(next);
  return offset - before->first < before->second.bytes;
}

// A file that could shrink would make each access a SIGBUS, whenever the server likes.
const char* OfiServer::Map(const WireMessage& grant, const Descriptor& file) {
  if (!file) return "this program has too many open files for it: raise its limit (ulimit -n)";
  struct stat status {};
  const int seals = fcntl(file.number(), F_GET_SEALS);
  if (fstat(file.number(), &status) != 0 || static_cast<uint64_t>(status.st_size) != grant.bytes) return "its memory has another size";
  if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) return "its memory could shrink";
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)) != F_SEAL_SEAL) return "its memory may not be written, or may become so";
  // To map into its place takes away first what is there. Where this fails then, for want of huge pages or because of a seal against writing, a
  // hole would be left into which the program's own memory may come: under the next grant.
  struct statfs kind {};
  if (fstatfs(file.number(), &kind) != 0 || kind.f_type != TMPFS_MAGIC) return "its memory is no memfd of ordinary pages";
  void* place = description_.mapped + grant.offset;
  if (mmap(place, grant.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.number(), 0) == MAP_FAILED) return "it cannot be mapped";
  if (madvise(place, grant.bytes, MADV_HUGEPAGE) != 0) errno = 0;  // a wish, for shmem_enabled = advise
  if (madvise(place, grant.bytes, MADV_DONTFORK) != 0) errno = 0;  // a child that outlives this process would keep pages that the server lends again
  return nullptr;
}

void OfiServer::Unmap(uint64_t offset, uint64_t bytes) {
  mmap(description_.mapped + offset, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// ---- Life ----

int OfiServer::descriptor(bool* wants_to_write) {
  MutexLock lock(mutex_);
  *wants_to_write = link_->wants_to_write();
  return link_->descriptor();
}

void OfiServer::TellUsage(uint64_t written_bytes, uint64_t read_bytes) {
  LinkFrame frame{.kind = LinkFrame::Kind::kUsage};
  frame.usage = {.written_bytes = written_bytes, .read_bytes = read_bytes};
  MutexLock lock(mutex_);
  link_->Send(frame);
}

bool OfiServer::HoldsNothing() {
  MutexLock lock(mutex_);
  return leases_.empty() && inbox_.empty();
}

void OfiServer::Ping() {
  MutexLock lock(mutex_);
  if (link_->wants_to_write()) return;  // there are some on their way
  link_->Send({.kind = LinkFrame::Kind::kPing});
}

uint64_t OfiServer::arrivals() {
  MutexLock lock(mutex_);
  return link_->arrivals();
}

void OfiServer::Bury(const std::string& why) {
  // First, so that it stands before what follows from it: the errors of those whose transfers fail.
  if (!is_mourned_.exchange(true, std::memory_order_relaxed)) {
    const char* const label = description_.label.c_str();
    is_draining() ? LogInfo("memory server %s was left: %s", label, why.c_str()) : LogWarning("memory server %s is gone: %s", label, why.c_str());
  }
  {
    MutexLock lock(mutex_);
    link_->Close(Unavailable(why));
  }
  if (lane_) lane_->Fail();
  // From here on transfers that fail mean that what was there is lost.
  dead_.store(true, std::memory_order_release);
}

void OfiServer::CloseInForkedChild() {
  link_->CloseInForkedChild();
}

}  // namespace ramspan
