// The functions of <ramspan/extend.h> in the same way as every_call.h, and what swaps on the way.
#pragma once

#include <ramspan/extend.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/guest/every_call.h"
#include "tests/support/map_store.h"

namespace guest {

// Names what was made first, and a neighbour of what is missed.
class OldestFirst : public ramspan::EvictionPolicy {
 public:
  void Created(const Objects&, uint32_t id) override { ids_.push_back(id); }
  void Freed(const Objects&, uint32_t id) override { ids_.erase(std::find(ids_.begin(), ids_.end(), id)); }
  void Missed(const Objects&, uint32_t id) override { missed_ = id; }
  size_t Victims(const Objects& objects, uint64_t bytes, Ids out) override {
    size_t n = 0;
    for (size_t i = 0; i < ids_.size() && n < out.size() && bytes > 0; ++i) {
      if (!objects.InMemory(ids_[i])) continue;
      out[n++] = ids_[i];
      bytes -= std::min(bytes, objects.Bytes(ids_[i]));
    }
    return n;
  }
  size_t ReadAhead(const Objects& objects, uint64_t bytes, Ids out) override {
    const auto next = std::find(ids_.begin(), ids_.end(), missed_ + 1);
    if (next == ids_.end() || out.size() == 0 || !objects.InSwap(*next) || objects.Bytes(*next) > bytes) return 0;
    out[0] = *next;
    return 1;
  }

 private:
  std::vector<uint32_t> ids_;
  uint32_t missed_ = 0;
};

template <class Check>
void CallsOnOtherSwaps(Check&& check) {
  std::vector<managedPtr<double>> data;
  for (int i = 0; i < 24; ++i) data.emplace_back(size_t{1} << 16, 1.0);
  const auto sweep = [&](const char* name) {
    for (auto& one : data) {
      check(name, [&] {
        adhereTo<double> glue(one);
        double* p = glue;
        p[0] += 1;
      });
    }
  };
  uint64_t sum = 0;
  MapStore store(64 << 20);
  ramspan::SwapId id{};
  check("AddSwap", [&] { id = ramspan::AddSwap(&store); });
  check("UseSwap", [&] { ramspan::UseSwap(id); });
  check("SwapInUse", [&] { sum += static_cast<uint64_t>(ramspan::SwapInUse()); });
  data.clear();  // what is there has its places in the swap before
  for (int i = 0; i < 24; ++i) data.emplace_back(size_t{1} << 16, 1.0);
  sweep("a sweep over a program's store");
  EXPECT_GT(store.slots(), 0u);
  check("GetSwapUse", [&] { sum += ramspan::GetSwapUse(id).used; });
  check("TransfersUnderWay", [&] { sum += ramspan::TransfersUnderWay(); });
  check("WaitForTransfers", [] { ramspan::WaitForTransfers(); });
  check("FreeCleanCopies", [] { ramspan::FreeCleanCopies(kLimit); });
  OldestFirst oldest_first;
  check("SetEvictionPolicy", [&] { ramspan::SetEvictionPolicy(&oldest_first); });
  sweep("a sweep with a program's policy");
  check("SetEvictionPolicy, the configured one", [] { ramspan::SetEvictionPolicy(nullptr); });
  check("RemoveSwap", [&] { ramspan::RemoveSwap(id); });
  check("AddSwap", [&] { id = ramspan::AddSwap(&store); });
  check("AbandonSwap", [&] { ramspan::AbandonSwap(id); });
  for (const bool direct : {true, false}) {
    ramspan::SwapFiles files;
    files.mask = testing::TempDir() + "ramspan-guest-%d-%d.swap";
    files.bytes = 64 << 20;
    files.direct = direct;
    check("AddSwapFiles", [&] { id = ramspan::AddSwapFiles(files); });
    check("UseSwap", [&] { ramspan::UseSwap(id); });
    sweep(direct ? "a sweep over files, O_DIRECT" : "a sweep over files, page cache");
    check("GetSwapFragmentation", [&] { sum += ramspan::GetSwapFragmentation(id).free; });
    check("SetSwapLimit of a swap", [&] { ramspan::SetSwapLimit(id, 65 << 20); });
    check("SetSwapPolicy of a swap", [&] { ramspan::SetSwapPolicy(id, ramspan::SwapPolicy::kFail); });
    check("RemoveSwap", [&] { ramspan::RemoveSwap(id); });
  }
  data.resize(4, managedPtr<double>(size_t{0}));
  check("CloseSwap", [] { ramspan::CloseSwap(); });
  check("UseSwap", [] { ramspan::UseSwap(ramspan::SwapId::kConfigured); });
  EXPECT_GT(sum, 0u);
}

}  // namespace guest
