#include "client/runtime/swaps.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "client/engine/engine.h"
#include "client/front/throw_status.h"
#include "client/front/turn_queue.h"
#include "client/swap/file_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/swap/store_swap.h"
#include "common/log.h"
#include "common/raise.h"
#include "common/units.h"
#include "ramspan/errors.h"

namespace ramspan {
namespace {
using Clock = std::chrono::steady_clock;

// The mover brings home what leaves, and does nothing else meanwhile: not for longer than this.
constexpr std::chrono::milliseconds kLeaveAtOnce{500};

ConfigError NoSuchSwap(SwapId id) {
  return ConfigError("there is no swap " + std::to_string(static_cast<int>(id)) + " (any more): it was never added, or has "
                     "been removed or abandoned. Call UseSwap for another one before a swap that is in use is destroyed");
}
}  // namespace

Swaps::Swaps(Engine* engine, const Configured& configured)
    : engine_(engine), configured_(configured), configured_order_(configured.swap->order()) {}

Swaps::Added& Swaps::Find(SwapId id) {
  if (id == SwapId::kConfigured) Raise(ConfigError("the configured swap was named where one that the program added is meant"));
  const auto place = std::find_if(added_.begin(), added_.end(), [id](const Added& a) { return a.tier && a.id == id; });
  if (place == added_.end()) Raise(NoSuchSwap(id));
  return *place;
}

SwapId Swaps::Add(std::unique_ptr<SwapTier> tier, FileSwap* files, StoreSwap* store) {
  MutexLock lock(mutex_);
  auto place = std::find_if(added_.begin(), added_.end(), [](const Added& a) { return !a.tier; });
  const bool reuse = place != added_.end();
  if (!reuse) added_.reserve(added_.size() + 1);  // `place` is not needed; from the tier's Add on nothing may throw
  auto wrapped = std::make_unique<RetirableTier>(std::move(tier), "was taken away by the program");
  RetirableTier* raw = wrapped.get();
  const size_t index = configured_.swap->Add(std::move(wrapped), reuse ? place->index : TieredSwap::kTiersMax);
  if (index == TieredSwap::kTiersMax) Raise(ConfigError("too many swaps at a time: remove one before another is added"));
  if (!reuse) place = added_.emplace(added_.end());
  *place = {.id = SwapId(++last_id_), .tier = raw, .files = files, .store = store, .index = index};
  return place->id;
}

SwapId Swaps::Add(SwapStore* store) {
  auto tier = std::make_unique<StoreSwap>(store);
  StoreSwap* raw = tier.get();
  return Add(std::move(tier), nullptr, raw);
}

SwapId Swaps::Add(const SwapFiles& files) {
  FileSwapOptions options;
  options.mask = files.mask;
  options.bytes_max = files.bytes;
  options.direct = files.direct;
  options.policy = files.policy;
  Result<std::unique_ptr<FileSwap>> made = FileSwap::Create(options);
  if (!made.ok()) Raise(ConfigError(made.status().message()));
  FileSwap* raw = made.value().get();
  return Add(std::move(made).value(), raw, nullptr);
}

void Swaps::SetOrder(SwapId id) {
  if (id == SwapId::kConfigured) {
    configured_.swap->SetOrder(configured_order_);
  } else {
    const Added& added = Find(id);
    if (added.is_leaving) Raise(ConfigError("swap " + std::to_string(static_cast<int>(id)) + " is being removed by another thread, so it cannot be put to use"));
    std::vector<size_t> order;
    if (added.files != nullptr && configured_.remote != nullptr) order.push_back(0);  // remote memory is the first tier
    order.push_back(added.index);
    configured_.swap->SetOrder(order);
  }
  in_use_ = id;
}

// Does not wait for another thread's Remove or Close, which may be waiting for pins of this one.
void Swaps::Use(SwapId id) {
  MutexLock lock(mutex_);
  if (is_closing_) Raise(Error("swap is being closed by another thread (CloseSwap), so none can be put to use"));
  SetOrder(id);
}

SwapId Swaps::in_use() {
  MutexLock lock(mutex_);
  return in_use_;
}

// The tier is closed for new slots first, so that what leaves while its own come home goes elsewhere.
void Swaps::Remove(SwapId id, Removal how) {
  const TurnQueue::Turn turn(&turns_, detail::t_pins);
  Added leaving;
  // Needs no heap from here to the end, but to bring home: who abandons a swap destroys its store next.
  const Vacating::Leaving is_there = [&](SlotRef slot, size_t) { return configured_.swap->TierIndexOf(slot) == leaving.index; };
  const std::function<void()> reopen = [&] { leaving.tier->Reopen(); };
  {
    MutexLock lock(mutex_);
    leaving = Find(id);
    leaving.tier->Close();
    if (in_use_ == id) {
      // Swap that was closed (CloseSwap) stays so until UseSwap.
      if (configured_.swap->is_closed()) {
        in_use_ = SwapId::kConfigured;
      } else {
        SetOrder(SwapId::kConfigured);
      }
    }
    Find(id).is_leaving = true;
  }
  if (how != Removal::kAbandon) {
    const Status status = engine_->Vacate(is_there, {.patiently = how == Removal::kPatient}, reopen);
    if (!status.ok()) {
      MutexLock lock(mutex_);
      Find(id).is_leaving = false;
      ThrowStatus(status);
    }
  }
  leaving.tier->Retire();
  if (how == Removal::kAbandon) engine_->GiveUp(is_there);  // its place is for another one
  MutexLock lock(mutex_);
  Added& gone = Find(id);
  gone.tier = nullptr;
  gone.files = nullptr;
  gone.store = nullptr;
}

void Swaps::Close() {
  const TurnQueue::Turn turn(&turns_, detail::t_pins);
  const Vacating::Leaving all = [](SlotRef, size_t) { return true; };
  // Before swap is closed: other threads need not hear of what cannot be.
  if (const Status status = engine_->FitsAtHome(all); !status.ok()) ThrowStatus(status);
  std::vector<size_t> order;
  const std::function<void()> use_again = [&] { configured_.swap->SetOrder(order); };
  {
    MutexLock lock(mutex_);
    order = configured_.swap->order();
    configured_.swap->SetOrder({});
    is_closing_ = true;
  }
  const Status status = engine_->Vacate(all, {}, use_again);
  MutexLock lock(mutex_);
  is_closing_ = false;
  if (!status.ok()) ThrowStatus(status);
}

// The store is asked without the mutex; it stays for as long as that takes.
SwapUse Swaps::UseOf(SwapId id) {
  SwapUse use;
  const auto add = [&](const SwapTier& tier, const FileSwap* files) {
    const TierStats stats = tier.stats();
    use.used += stats.slot_bytes_used;
    use.capacity = TierStats::SumOfCapacities(use.capacity, files ? std::max(files->limit(), stats.slot_bytes_capacity) : stats.slot_bytes_capacity);
  };
  if (id == SwapId::kConfigured) {
    for (size_t i : configured_order_) add(configured_.swap->tier(i), configured_.files && i + 1 == configured_order_.size() ? configured_.files : nullptr);
    return use;
  }
  Added added;
  {
    MutexLock lock(mutex_);
    added = Find(id);
  }
  const bool there = added.tier->WhileThere([&] {
    if (added.store != nullptr) added.store->AskCapacity();
    add(*added.tier, added.files);
    if (added.store != nullptr) use.used = added.store->used_bytes();
  });
  if (!there) add(*added.tier, nullptr);  // it has just been removed
  return use;
}

// RemoveSwap, in another thread, destroys them when `call` has returned.
void Swaps::WithFiles(SwapId id, const std::function<void(FileSwap&)>& call) {
  Added added{.files = configured_.files};
  if (id != SwapId::kConfigured) {
    MutexLock lock(mutex_);
    added = Find(id);
  }
  if (added.files == nullptr) Raise(ConfigError("this swap has no local files, so they have no limit, policy or room"));
  if (added.tier == nullptr) return call(*added.files);
  if (!added.tier->WhileThere([&] { call(*added.files); })) Raise(NoSuchSwap(id));  // it has just been removed
}

size_t Swaps::AddReadOnly(std::unique_ptr<SwapTier> tier) {
  MutexLock lock(mutex_);
  return configured_.swap->Add(std::move(tier));
}

size_t Swaps::FarServers() const {
  if (configured_.remote == nullptr) return 0;
  const std::vector<ServerStats> servers = configured_.remote->servers();
  return static_cast<size_t>(std::count_if(servers.begin(), servers.end(), [](const ServerStats& one) { return !one.near && std::string_view(one.state) != "dead"; }));
}

void Swaps::TellLosses() {
  if (configured_.remote == nullptr) return;
  const std::vector<ServerStats> servers = configured_.remote->servers();
  told_losses_.resize(std::max(told_losses_.size(), servers.size()));
  for (uint32_t i = 0; i < servers.size(); ++i) {
    if (told_losses_[i] || servers[i].near || std::string_view(servers[i].state) != "dead") continue;
    const Engine::Losses lost = engine_->LostWith(i);  // remote memory is the first tier, so its servers are the first
    if (lost.chunks > 0) {
      LogWarning("memory server %s: %llu chunks (%s) of this program were nowhere else, and are lost: using one throws DataLost", servers[i].name.c_str(),
                 static_cast<unsigned long long>(lost.chunks), FormatBytes(lost.bytes).c_str());
    }
    told_losses_[i] = true;
  }
}

void Swaps::LeaveDraining(const std::atomic<bool>& stop) {
  if (configured_.remote == nullptr) return;
  if (!configured_.remote->HasLeaving()) {
    leave_next_ = 0;
    return leave_pace_.NoteNothingLeaves();
  }
  const Clock::time_point begin = Clock::now();
  if (!leave_pace_.MayTry(begin)) return;
  const TurnQueue::Turn turn(&turns_, TurnQueue::kOnlyIfFree);  // the mover has other work than to wait for a program's RemoveSwap
  if (!turn) return;
  Vacating::Part part{.enough = [&] { return stop.load(std::memory_order_relaxed) || Clock::now() > begin + kLeaveAtOnce; }, .next = leave_next_};
  // Where memory has no room for all of it, what is brought home for nothing would take memory from what is used.
  const bool fits = engine_->HasRoomAtHome(configured_.remote->stats().slot_bytes_leaving);
  const Status status = engine_->Vacate([this](SlotRef slot, size_t bytes) { return configured_.swap->IsLeaving(slot, bytes); },
                                        {.only_elsewhere = !fits, .part = &part});
  leave_next_ = part.next;
  if (leave_pace_.NotePart(!status.ok(), leave_next_ == 0, Clock::now())) {
    LogWarning("a memory server drains, or wants some of its memory back, and some chunks have no other place yet: %s", status.c_str());
  }
}

void Swaps::LeaveRemote(bool bring_home) {
  if (configured_.remote == nullptr) return;
  const TurnQueue::Turn turn(&turns_, detail::t_pins);  // no other swap is brought home meanwhile
  configured_.remote->Close();
  if (bring_home) {
    // Remote memory is the first tier wherever there is one.
    const auto come_home = [this] {
      return engine_->Vacate([this](SlotRef slot, size_t) { return configured_.swap->TierIndexOf(slot) == 0; }, {.even_if_full = true, .patiently = true});
    };
    const Status status = WithinHeap(come_home, OutOfHeap());  // MPI's caller is C code, which nothing may be thrown through
    if (!status.ok()) LogWarning("data on memory servers is lost with MPI_Finalize (objects that end before it, in a scope of their own, need no other place): %s", status.c_str());
  }
  configured_.remote->Retire();
}

}  // namespace ramspan
