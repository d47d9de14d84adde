// The program's own swaps and policy: the rest of the composition root.
#include <algorithm>
#include <string>

#include "client/policy/custom.h"
#include "client/policy/policy_factory.h"
#include "client/runtime.h"
#include "client/swap/file_map.h"
#include "client/swap/file_swap.h"
#include "client/swap/retirable_tier.h"
#include "client/swap/store_swap.h"
#include "common/check.h"
#include "common/log.h"
#include "ramspan/errors.h"
#include "ramspan/extend.h"

namespace ramspan {

Runtime::Added& Runtime::Find(SwapId id) {
  const auto i = static_cast<size_t>(static_cast<int>(id)) - 1;
  RS_CHECK(i < added_.size() && added_[i].tier != nullptr, "no swap has the number %d", static_cast<int>(id));
  return added_[i];
}

SwapId Runtime::AddSwap(std::unique_ptr<SwapTier> tier, FileSwap* files, StoreSwap* store) {
  std::lock_guard lock(extend_mutex_);
  auto place = std::find_if(added_.begin(), added_.end(), [](const Added& a) { return !a.tier && !a.abandoned; });
  const bool reuse = place != added_.end();
  auto wrapped = std::make_unique<RetirableTier>(std::move(tier), "was taken away by the program");
  RetirableTier* raw = wrapped.get();
  const size_t index = swap_->Add(std::move(wrapped), reuse ? place->index : TieredSwap::kTiersMax);
  if (index == TieredSwap::kTiersMax) throw ConfigError("too many swaps at a time: remove one before another is added");
  if (!reuse) place = added_.emplace(added_.end());
  *place = {.tier = raw, .files = files, .store = store, .index = index};
  return SwapId(static_cast<int>(place - added_.begin()) + 1);
}

SwapId Runtime::AddSwapFiles(const SwapFiles& files) {
  FileSwapOptions options;
  options.mask = files.mask;
  options.bytes_max = files.bytes;
  options.direct = files.direct;
  options.policy = files.policy;
  Result<std::unique_ptr<FileSwap>> made = FileSwap::Create(options);
  if (!made.ok()) throw ConfigError(made.status().message());
  FileSwap* raw = made.value().get();
  return AddSwap(std::move(made).value(), raw, nullptr);
}

void Runtime::SetSwapOrder(SwapId id) {
  if (id == SwapId::kConfigured) {
    swap_->SetOrder(configured_order_);
  } else {
    const Added& added = Find(id);
    std::vector<size_t> order;
    if (added.files != nullptr && remote_ != nullptr) order.push_back(0);  // remote memory is the first tier
    order.push_back(added.index);
    swap_->SetOrder(order);
  }
  swap_in_use_ = id;
}

void Runtime::UseSwap(SwapId id) {
  std::lock_guard lock(extend_mutex_);
  SetSwapOrder(id);
}

SwapId Runtime::SwapInUse() {
  std::lock_guard lock(extend_mutex_);
  return swap_in_use_;
}

void Runtime::RemoveSwap(SwapId id, bool bring_home) {
  std::lock_guard lock(extend_mutex_);
  Added& added = Find(id);
  added.tier->Close();
  if (swap_in_use_ == id) SetSwapOrder(SwapId::kConfigured);
  if (bring_home) {
    const Status status = engine_->Vacate([&](SlotRef slot) { return swap_->TierIndexOf(slot) == added.index; });
    if (!status.ok()) {
      added.tier->Reopen();
      ThrowStatus(status);
    }
  }
  engine_->Drain();
  added.tier->Retire();
  added.abandoned = !bring_home;
  added.tier = nullptr;
  added.files = nullptr;
  added.store = nullptr;
}

SlotRef Runtime::PlaceIn(const std::shared_ptr<const MappedFile>& file, uint64_t offset) {
  std::lock_guard lock(extend_mutex_);
  if (file_map_ == nullptr) {
    auto made = std::make_unique<FileMap>();
    FileMap* raw = made.get();
    file_map_index_ = swap_->Add(std::move(made));
    if (file_map_index_ == TieredSwap::kTiersMax) throw ConfigError("too many swaps at a time: no file can be mapped");
    file_map_ = raw;
  }
  return TieredSwap::SlotIn(file_map_index_, file_map_->Map(file, offset));
}

Result<Chunk*> Runtime::MapChunk(const std::shared_ptr<const MappedFile>& file, uint64_t offset, uint64_t bytes) {
  const SlotRef place = PlaceIn(file, offset);
  Result<Chunk*> chunk = engine_->Create(bytes, place);
  if (!chunk.ok()) swap_->Free(place, bytes);
  return chunk;
}

void Runtime::MapAgain(Chunk* chunk, const std::shared_ptr<const MappedFile>& file, uint64_t offset) {
  engine_->MapAgain(chunk, PlaceIn(file, offset));
}

void Runtime::CloseSwap() {
  std::lock_guard lock(extend_mutex_);
  const std::vector<size_t> order = swap_->order();
  swap_->SetOrder({});
  const Status status = engine_->Vacate([](SlotRef) { return true; });
  if (status.ok()) return;
  swap_->SetOrder(order);
  ThrowStatus(status);
}

SwapUse Runtime::GetSwapUse(SwapId id) {
  std::lock_guard lock(extend_mutex_);
  SwapUse use;
  const auto add = [&](const SwapTier& tier, const FileSwap* files) {
    const TierStats stats = tier.stats();
    use.used += stats.slot_bytes_used;
    use.capacity += files ? std::max(files->limit(), stats.slot_bytes_capacity) : stats.slot_bytes_capacity;
  };
  if (id == SwapId::kConfigured) {
    for (size_t i : configured_order_) add(swap_->tier(i), files_ && i + 1 == configured_order_.size() ? files_ : nullptr);
  } else {
    const Added& added = Find(id);
    add(*added.tier, added.files);
    if (added.store != nullptr) use.used = added.store->used_bytes();
  }
  return use;
}

FileSwap& Runtime::FilesOf(SwapId id) {
  std::lock_guard lock(extend_mutex_);
  FileSwap* files = id == SwapId::kConfigured ? files_ : Find(id).files;
  if (files == nullptr) throw ConfigError("this swap has no local files, so they have no limit, policy or room");
  return *files;
}

void Runtime::SetEvictionPolicy(EvictionPolicy* policy) {
  std::lock_guard lock(extend_mutex_);
  engine_->ReplacePolicy([this, policy](const ChunkTable* chunks) -> std::unique_ptr<CachePolicy> {
    if (policy == nullptr) return MakePolicy(config_.memory_manager, chunks).value();
    return std::make_unique<CustomPolicy>(chunks, policy);
  });
}

SwapId AddSwap(SwapStore* store) {
  auto tier = std::make_unique<StoreSwap>(store);
  StoreSwap* raw = tier.get();
  return Runtime::Get().AddSwap(std::move(tier), nullptr, raw);
}
SwapId AddSwapFiles(const SwapFiles& files) { return Runtime::Get().AddSwapFiles(files); }
void UseSwap(SwapId id) { Runtime::Get().UseSwap(id); }
SwapId SwapInUse() { return Runtime::Get().SwapInUse(); }
void RemoveSwap(SwapId id) { Runtime::Get().RemoveSwap(id, true); }
void AbandonSwap(SwapId id) noexcept { Runtime::Get().RemoveSwap(id, false); }
void CloseSwap() { Runtime::Get().CloseSwap(); }
SwapUse GetSwapUse(SwapId id) { return Runtime::Get().GetSwapUse(id); }

SwapFragmentation GetSwapFragmentation(SwapId id) {
  SwapFragmentation f;
  Runtime::Get().FilesOf(id).Fragmentation(&f.free, &f.whole, &f.scattered);
  return f;
}

void SetSwapLimit(SwapId id, uint64_t bytes) {
  if (Status status = Runtime::Get().FilesOf(id).SetLimit(bytes); !status.ok()) throw Error(status.message());
}

void SetSwapPolicy(SwapId id, SwapPolicy policy) { Runtime::Get().FilesOf(id).SetPolicy(policy); }

void SetEvictionPolicy(EvictionPolicy* policy) { Runtime::Get().SetEvictionPolicy(policy); }

}  // namespace ramspan
