#include "client/transport/ofi_lane.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/log.h"

namespace ramspan {
namespace {

// No reason to cut where the network takes more; keeps a part's progress visible to who looks for a lane that stands still.
constexpr size_t kPartBytesMax = size_t{64} << 20;

}  // namespace

OfiLane::OfiLane(std::unique_ptr<FabricEndpoint> endpoint, uint64_t peer, std::shared_ptr<OfiRegistrations> registrations, uint32_t server)
    : peer_(peer), registrations_(std::move(registrations)), server_(server),
      part_bytes_max_(std::min(kPartBytesMax, registrations_->domain().transfer_bytes_max())), endpoint_(std::move(endpoint)) {}

OfiLane::~OfiLane() { endpoint_.reset(); }

template <class T>
T* OfiLane::Take(T** free, std::deque<T>* all) {
  if (*free == nullptr) return &all->emplace_back();
  T* taken = *free;
  *free = taken->next;
  return taken;
}

// Sees to it that so many parts are free.
void OfiLane::TakeParts(size_t count) {
  size_t free = 0;
  for (const Part* part = free_parts_; part != nullptr && free < count; part = part->next) ++free;
  for (; free < count; ++free) {
    Part& part = parts_.emplace_back();
    part.next = free_parts_;
    free_parts_ = &part;
  }
}

void OfiLane::Queue(Whole* whole, const Part& like) {
  Part* part = Take(&free_parts_, &parts_);
  part->whole = whole;
  part->next = nullptr;
  part->is_write = like.is_write;
  part->local = like.local;
  part->key = like.key;
  part->address = like.address;
  (waiting_last_ == nullptr ? waiting_first_ : waiting_last_->next) = part;
  waiting_last_ = part;
}

void OfiLane::Start(const ServerTransport::Transfer& transfer, uint64_t key, uint64_t address) {
  {
    MutexLock lock(mutex_);
    // First what may find no heap: a place in the list of those that have ended, the transfer's descriptor, and those of its parts.
    if (in_flight_ == done_.capacity()) done_.reserve(std::max(size_t{16}, 2 * in_flight_));
    Whole* const whole = buried_ ? nullptr : Take(&free_wholes_, &wholes_);
    if (whole != nullptr && !WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return TakeParts(std::max<size_t>(1, (transfer.bytes + part_bytes_max_ - 1) / part_bytes_max_)), true; }, false)) {
      whole->next = free_wholes_;
      free_wholes_ = whole;
      throw std::bad_alloc();
    }
    ++in_flight_;
    if (buried_) {
      done_.push_back({transfer.cookie, server_, StatusCode::kUnavailable});
      return;
    }
    *whole = {.cookie = transfer.cookie};
    auto* buffer = static_cast<std::byte*>(transfer.buffer);
    size_t at = 0;
    do {
      const size_t bytes = std::min(part_bytes_max_, transfer.bytes - at);
      ++whole->parts_left;
      Part like;
      like.is_write = transfer.is_write;
      like.local = {buffer + at, bytes};
      like.key = key;
      like.address = address + at;
      Queue(whole, like);
      at += bytes;
    } while (at < transfer.bytes);
  }
  PostWaiting();
}

void OfiLane::PostWaiting() {
  for (;;) {
    Part* part = nullptr;
    {
      MutexLock lock(mutex_);
      if (posting_ || failed_ || waiting_first_ == nullptr) break;
      // Out of the queue before it is posted: from then on another thread may find that it has ended.
      part = std::exchange(waiting_first_, waiting_first_->next);
      if (waiting_first_ == nullptr) waiting_last_ = nullptr;
      posting_ = true;
      ++users_;
      ++in_network_;  // it may end before Post returns
    }
    const Tried tried = Post(part);
    MutexLock lock(mutex_);
    posting_ = false;
    --users_;
    if (tried == Tried::kPosted) continue;
    --in_network_;
    // Transfers that are under way hold registrations: one of them ends, and it is tried again.
    if (tried == Tried::kNoBuffer && in_network_ == 0) {
      Finish(part, false);
      continue;
    }
    part->next = waiting_first_;
    waiting_first_ = part;
    if (waiting_last_ == nullptr) waiting_last_ = part;
    if (tried == Tried::kFailed) failed_ = true;
    break;
  }
  Bury();
}

OfiLane::Tried OfiLane::Post(Part* part) noexcept {
  void* descriptor = nullptr;
  if (registrations_->domain().needs_local_registration() && part->region == nullptr) {
    using Found = Result<std::shared_ptr<const FabricRegion>>;
    Found region = WithinHeap([&] { return registrations_->Find(part->local); }, Found(OutOfHeap()));
    if (!region.ok()) {
      // Each transfer may fail so until somebody raises the limit.
      const uint64_t failures = unregistered_.fetch_add(1, std::memory_order_relaxed) + 1;
      if (std::has_single_bit(failures)) LogWarning("%s", region.status().c_str());
      return Tried::kNoBuffer;
    }
    part->region = std::move(region).value();
  }
  if (part->region != nullptr) descriptor = part->region->descriptor();
  const FabricEndpoint::Posted posted = endpoint_->Post({.is_write = part->is_write,
                                                         .local = {&part->local, 1},
                                                         .descriptors = {&descriptor, 1},
                                                         .peer = peer_,
                                                         .address = part->address,
                                                         .key = part->key,
                                                         .context = part});
  return posted == FabricEndpoint::Posted::kYes ? Tried::kPosted : posted == FabricEndpoint::Posted::kAgain ? Tried::kAgain : Tried::kFailed;
}

void OfiLane::Finish(Part* part, bool ok) {
  Whole* whole = part->whole;
  part->region.reset();
  part->whole = nullptr;
  part->next = free_parts_;
  free_parts_ = part;
  ++ended_;
  whole->failed = whole->failed || !ok;
  if (--whole->parts_left > 0) return;
  done_.push_back({whole->cookie, server_, whole->failed ? StatusCode::kUnavailable : StatusCode::kOk});
  whole->next = free_wholes_;
  free_wholes_ = whole;
}

bool OfiLane::Collect(std::vector<ServerTransport::Completion>* done) {
  const bool polled = Poll();
  PostWaiting();
  MutexLock lock(mutex_);
  const bool some = !done_.empty();
  done->insert(done->end(), done_.begin(), done_.end());
  in_flight_ -= done_.size();
  done_.clear();
  return polled || some;
}

bool OfiLane::Poll() {
  {
    MutexLock lock(mutex_);
    if (in_flight_ == 0 || polling_) return false;
    if (failed_) return true;
    polling_ = true;
    ++users_;
  }
  std::array<FabricCompletion, 16> ended;
  bool broken = false;
  const size_t n = endpoint_->Poll(ended, &broken);
  MutexLock lock(mutex_);
  in_network_ -= n;
  for (size_t i = 0; i < n; ++i) {
    Finish(static_cast<Part*>(ended[i].context), ended[i].ok);
    broken = broken || !ended[i].ok;
  }
  if (broken) {
    failed_ = true;
    failed_flag_.store(true, std::memory_order_relaxed);
  }
  polling_ = false;
  --users_;
  return true;
}

int OfiLane::BeginSleep() {
  {
    MutexLock lock(mutex_);
    if (in_flight_ == 0 || polling_) return kNothingHere;
    if (failed_ || !done_.empty()) return kAwake;
    polling_ = true;
    ++users_;
  }
  const int descriptor = endpoint_->wait_descriptor();
  if (descriptor >= 0 && endpoint_->MayWait()) return descriptor;
  EndSleep();
  return descriptor >= 0 ? kAwake : kBlind;
}

void OfiLane::EndSleep() {
  MutexLock lock(mutex_);
  polling_ = false;
  --users_;
}

void OfiLane::Fail() {
  {
    MutexLock lock(mutex_);
    failed_ = true;
  }
  Bury();
}

// Of a lane that has failed, as soon as nobody is inside the endpoint: closes it and ends what is left.
void OfiLane::Bury() {
  std::unique_ptr<FabricEndpoint> endpoint;
  {
    MutexLock lock(mutex_);
    if (!failed_) return;
    failed_flag_.store(true, std::memory_order_relaxed);
    if (users_ > 0 || endpoint_ == nullptr) return;
    endpoint = std::move(endpoint_);
  }
  endpoint.reset();  // no buffer is touched any more
  MutexLock lock(mutex_);
  for (Part& part : parts_) {
    if (part.whole != nullptr) Finish(&part, false);
  }
  waiting_first_ = waiting_last_ = nullptr;
  buried_ = true;
}

OfiLane::Look OfiLane::look() const {
  MutexLock lock(mutex_);
  return {in_flight_ - done_.size(), ended_};
}

}  // namespace ramspan
