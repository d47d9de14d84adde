#include "client/transport/ofi_lane.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/log.h"

namespace ramspan {
namespace {

// Over TCP, and on the queue pairs of an adapter, a read's request leaves behind the bytes of all writes that were posted before it. Engines
// let go of many chunks at once: with 8 MiB of writes on their way, a read comes 7 ms late on a wire of 10 Gbit/s, and the way back is idle
// meanwhile. So reads are posted first, and no more of writes than keeps a wire busy until the next part follows: 1 MiB is what 100 Gbit/s
// move in 80 us. Sweeps over a wire of 5 Gbit/s went from 82 to 86 % of the raw network's rate (medians of three; docs/benchmarks.md). Parts of
// half of that, so that the next one is posted while the one before it travels; they also show that a slow wire moves something.
constexpr uint64_t kWritesMax = uint64_t{1} << 20;
constexpr size_t kPartBytesMax = size_t{512} << 10;
// A part is registered with its neighbours up to so many bytes, and holds that while it is in the network only: with a limit of locked memory
// what waits must not keep others from being posted.
constexpr size_t kRegisteredMax = size_t{64} << 20;
// While transfers to other servers hold all registrations that there can be. Far below the silence for which a server is given up.
constexpr auto kRegisterPatience = std::chrono::seconds(5);
constexpr auto kRegisterEvery = std::chrono::microseconds(500);

}  // namespace

OfiLane::OfiLane(std::unique_ptr<FabricEndpoint> endpoint, uint64_t peer, std::shared_ptr<OfiRegistrations> registrations, uint32_t server)
    : peer_(peer), registrations_(std::move(registrations)), server_(server),
      part_bytes_max_(std::min(kPartBytesMax, registrations_->domain().transfer_bytes_max())), endpoint_(std::move(endpoint)) {
  for (Part& part : parts_) part.next = std::exchange(free_parts_, &part);
}

OfiLane::~OfiLane() {
  registrations_->LeaveLine(&asker_);
  endpoint_.reset();
}

void OfiLane::Start(const ServerTransport::Transfer& transfer, uint64_t key, uint64_t address) {
  {
    MutexLock lock(mutex_);
    // First what may find no heap: a place in the list of those that have ended, and the transfer's descriptor.
    if (in_flight_ == done_.capacity()) done_.reserve(std::max(size_t{16}, 2 * in_flight_));
    if (buried_) {
      ++in_flight_;
      done_.push_back({transfer.cookie, server_, StatusCode::kUnavailable});
      return;
    }
    if (free_wholes_ == nullptr) free_wholes_ = &wholes_.emplace_back();
    Whole* const whole = std::exchange(free_wholes_, free_wholes_->next);
    ++in_flight_;
    *whole = {.cookie = transfer.cookie, .is_write = transfer.is_write, .local = {static_cast<std::byte*>(transfer.buffer), transfer.bytes}, .key = key, .address = address};
    Line& line = transfer.is_write ? waiting_writes_ : waiting_reads_;
    (line.last == nullptr ? line.first : line.last->next) = whole;
    line.last = whole;
  }
  PostWaiting();
}

// Null: nobody waits, or only writes that have to wait for those that are on their way. One write always has its turn: with more parts of
// reads than the network takes there would be none for it.
OfiLane::Line* OfiLane::NextLine() {
  const bool a_write_waits = waiting_writes_.first != nullptr;
  if (waiting_reads_.first != nullptr && !(a_write_waits && written_in_network_ == 0)) return &waiting_reads_;
  return a_write_waits && written_in_network_ + part_bytes_max_ <= std::max<uint64_t>(kWritesMax, part_bytes_max_) ? &waiting_writes_ : nullptr;
}

// The next one to be posted, as if it were in the network: it may end before the call that posts it does. Null: there is none, or all parts
// are in the network.
OfiLane::Part* OfiLane::TakePart() {
  Line* const line = NextLine();
  if (line == nullptr || free_parts_ == nullptr) return nullptr;
  Part* const part = std::exchange(free_parts_, free_parts_->next);
  Whole* const whole = line->first;
  part->whole = whole;
  part->at = whole->begun;
  part->bytes = std::min(part_bytes_max_, whole->local.size() - whole->begun);
  whole->begun += part->bytes;
  ++whole->parts_left;
  ++in_network_;
  if (whole->is_write) written_in_network_ += part->bytes;
  whole->waits = whole->begun < whole->local.size();
  if (whole->waits) return part;
  line->first = std::exchange(whole->next, nullptr);
  if (line->first == nullptr) line->last = nullptr;
  return part;
}

// It was not posted after all: its whole is the next in its line again.
void OfiLane::PutBack(Part* part) {
  Whole* const whole = std::exchange(part->whole, nullptr);
  part->region.reset();  // others may need the room
  whole->begun = part->at;
  --whole->parts_left;
  --in_network_;
  if (whole->is_write) written_in_network_ -= part->bytes;
  part->next = std::exchange(free_parts_, part);
  if (std::exchange(whole->waits, true)) return;
  Line& line = whole->is_write ? waiting_writes_ : waiting_reads_;
  whole->next = std::exchange(line.first, whole);
  if (line.last == nullptr) line.last = whole;
}

// Its own transfers end, or their server is given up. Others' may be to a server that has fallen silent; then all that waits here fails at once.
bool OfiLane::MayWaitForRegistrations(Clock::time_point now) {
  if (unregistered_since_ == Clock::time_point()) unregistered_since_ = now;
  if (in_network_ == 1 && now - unregistered_since_ >= kRegisterPatience) return false;
  register_again_ = now + kRegisterEvery;
  return true;
}

void OfiLane::PostWaiting() {
  bool none_waits = false;
  for (;;) {
    Part* part = nullptr;
    {
      MutexLock lock(mutex_);
      if (posting_ || failed_ || (unregistered_since_ != Clock::time_point() && Clock::now() < register_again_)) break;
      part = TakePart();
      if (part == nullptr) {
        none_waits = unregistered_since_ != Clock::time_point() && waiting_reads_.first == nullptr && waiting_writes_.first == nullptr;
        if (none_waits) unregistered_since_ = {};
        break;
      }
      posting_ = true;
      ++users_;
      asker_.holds = in_network_ > 1;  // beside this part
    }
    const Tried tried = Post(part);
    MutexLock lock(mutex_);
    posting_ = false;
    --users_;
    if (tried != Tried::kNoBufferYet) unregistered_since_ = {};
    if (tried == Tried::kPosted) continue;
    if (tried == Tried::kNoBuffer || (tried == Tried::kNoBufferYet && !MayWaitForRegistrations(Clock::now()))) {
      Whole* const whole = part->whole;
      PutBack(part);
      Line& line = whole->is_write ? waiting_writes_ : waiting_reads_;
      line.first = whole->next;
      if (line.first == nullptr) line.last = nullptr;
      whole->failed = true;
      ++ended_;
      End(whole);
      continue;
    }
    PutBack(part);
    if (tried == Tried::kFailed) failed_ = true;
    break;
  }
  // Who asks meanwhile, in another thread, comes into line again.
  if (none_waits) registrations_->LeaveLine(&asker_);
  Bury();
}

OfiLane::Tried OfiLane::Post(Part* part) noexcept {
  Whole* const whole = part->whole;
  if (registrations_->domain().needs_local_registration()) {
    const size_t stretch = kRegisteredMax / part_bytes_max_ * part_bytes_max_, begin = part->at / stretch * stretch;
    OfiRegistrations::Region region = registrations_->FindInTurn(whole->local.subspan(begin, std::min(stretch, whole->local.size() - begin)), &asker_);
    if (region.status().code() == StatusCode::kUnavailable) return Tried::kNoBufferYet;
    if (!region.ok()) {
      // Each transfer may fail so until somebody raises the limit.
      const uint64_t failures = unregistered_.fetch_add(1, std::memory_order_relaxed) + 1;
      if (std::has_single_bit(failures)) LogWarning("%s", region.status().c_str());
      return Tried::kNoBuffer;
    }
    part->region = std::move(region).value();
  }
  void* const descriptor = part->region == nullptr ? nullptr : part->region->descriptor();
  const FabricEndpoint::Posted posted = endpoint_->Post({.is_write = whole->is_write,
                                                         .local = whole->local.subspan(part->at, part->bytes),
                                                         .descriptor = descriptor,
                                                         .peer = peer_,
                                                         .address = whole->address + part->at,
                                                         .key = whole->key,
                                                         .context = part});
  return posted == FabricEndpoint::Posted::kYes ? Tried::kPosted : posted == FabricEndpoint::Posted::kAgain ? Tried::kAgain : Tried::kFailed;
}

// A part has left the network.
void OfiLane::Finish(Part* part, bool ok) {
  Whole* const whole = std::exchange(part->whole, nullptr);
  part->region.reset();
  part->next = std::exchange(free_parts_, part);
  --in_network_;
  register_again_ = {};
  if (whole->is_write) written_in_network_ -= part->bytes;
  ++ended_;
  whole->failed = whole->failed || !ok;
  if (--whole->parts_left == 0 && !whole->waits) End(whole);
}

void OfiLane::End(Whole* whole) {
  done_.push_back({whole->cookie, server_, whole->failed ? StatusCode::kUnavailable : StatusCode::kOk});
  whole->next = std::exchange(free_wholes_, whole);
}

bool OfiLane::Collect(std::vector<ServerTransport::Completion>* done) {
  const bool polled = Poll(Poller::kCollector);
  PostWaiting();
  MutexLock lock(mutex_);
  const bool some = !done_.empty();
  done->insert(done->end(), done_.begin(), done_.end());
  in_flight_ -= done_.size();
  done_.clear();
  return polled || some;
}

void OfiLane::Watch() {
  Poll(Poller::kWatch);
  PostWaiting();
}

bool OfiLane::Poll(Poller poller) {
  {
    MutexLock lock(mutex_);
    if (in_flight_ == 0 || poller_ == Poller::kCollector) return false;
    if (failed_ || poller_ == Poller::kWatch) return true;
    poller_ = poller;
    ++users_;
    if (poller == Poller::kCollector) ++collected_;
  }
  std::array<FabricCompletion, 16> ended;
  bool broken = false;
  const size_t n = endpoint_->Poll(ended, &broken);
  MutexLock lock(mutex_);
  for (size_t i = 0; i < n; ++i) {
    Finish(static_cast<Part*>(ended[i].context), ended[i].ok);
    broken = broken || !ended[i].ok;
  }
  if (broken) {
    failed_ = true;
    failed_flag_.store(true, std::memory_order_relaxed);
  }
  poller_ = Poller::kNone;
  --users_;
  return true;
}

int OfiLane::BeginSleep() {
  {
    MutexLock lock(mutex_);
    if (in_flight_ == 0 || poller_ == Poller::kCollector) return kNothingHere;
    if (failed_ || !done_.empty() || poller_ == Poller::kWatch) return kAwake;
    poller_ = Poller::kCollector;
    ++users_;
  }
  const int descriptor = endpoint_->wait_descriptor();
  if (descriptor >= 0 && endpoint_->MayWait()) return descriptor;
  EndSleep();
  return descriptor >= 0 ? kAwake : kBlind;
}

void OfiLane::EndSleep() {
  MutexLock lock(mutex_);
  poller_ = Poller::kNone;
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
  registrations_->LeaveLine(&asker_);
  MutexLock lock(mutex_);
  for (Part& part : parts_) {
    if (part.whole != nullptr) Finish(&part, false);
  }
  for (Line* const line : {&waiting_reads_, &waiting_writes_}) {
    while (Whole* const whole = line->first) {
      line->first = whole->next;
      whole->failed = true;
      ++ended_;
      End(whole);
    }
    line->last = nullptr;
  }
  buried_ = true;
}

OfiLane::Look OfiLane::look() const {
  MutexLock lock(mutex_);
  return {in_flight_ - done_.size(), ended_, collected_, poller_ == Poller::kCollector};
}

}  // namespace ramspan
