// A PinScanner for engines without threads: all chunks are pinned, or none.
#pragma once

#include <functional>

#include "client/engine/engine.h"

namespace ramspan {

class NoPins final : public PinScanner {
 public:
  bool all_pinned = false;
  Chunk* waiting = nullptr;
  std::function<void(std::span<Chunk* const>)> looks = [](std::span<Chunk* const>) {};  // at the pins of these, before it says what it has found
  std::function<Verdict()> judge = [] { return Verdict::kDeadlock; };

  void Barrier() override {}
  void FindPinned(std::span<Chunk* const> chunks, std::span<bool> pinned) override {
    looks(chunks);
    for (bool& one : pinned) one = one || all_pinned;
  }
  void SetWaiting(Chunk* chunk) override { waiting = chunk; }
  Verdict JudgeWaiters() override { return judge(); }
};

}  // namespace ramspan
