// LossLog: which chunks were found to be lost, until the log has said so. The engine notes them under its mutex and tells without.
// Thread-safety: none of its own; guarded by the engine's mutex. News is a plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ramspan {

class LossLog {
 public:
  struct Loss {
    uint32_t chunk;
    uint64_t bytes;
    char tier[16];
    bool wrong;  // bytes; else there are none
  };
  static constexpr size_t kMost = 8;  // that are told at once; so many more are in the sum only
  struct News {
    std::array<Loss, kMost> losses;
    size_t n;
    uint64_t sum;  // of all so far
    // The first losses one by one, later ones each time their number has doubled. Blocks as a write to stderr does.
    void Tell() const;
  };

  void Note(uint32_t chunk, uint64_t bytes, const char* tier, bool wrong);
  bool HasNews() const { return untold_ > 0; }
  News TakeNews();
  uint64_t sum() const { return sum_; }

 private:
  std::array<Loss, kMost> losses_{};
  size_t untold_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace ramspan
