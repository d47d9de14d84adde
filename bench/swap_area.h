// A swap area of the kernel's for a time: on a file or on a zram device, switched on with the highest priority. Off and gone with its
// object. What a run that was killed has left (the area stays on, its folder or device stays) is found and removed by RemoveStale.
// Needs root. While one is on, other programs of the machine may be swapped to it, too; switching it off brings them back.
// Thread-safety: none; Watch may be called by another thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ramspan::bench {

class SwapArea {
 public:
  enum class Kind { kFile, kZram };

  // Nothing, and the reason with its remedy, where it cannot be. The file goes to `folder`.
  static std::optional<SwapArea> SwitchOn(Kind kind, uint64_t bytes, const std::string& folder, std::string* why_not);
  SwapArea(SwapArea&& other) noexcept;
  SwapArea& operator=(SwapArea&&) = delete;
  ~SwapArea();

  // What zram holds now: the pages that were given to it, what they take compressed, and the memory for that. Zeros for a file.
  struct Held {
    uint64_t original = 0, compressed = 0, memory = 0;
  };
  Held Now() const;
  const std::string& algorithm() const { return algorithm_; }  // zram's

  // Areas of processes of this program that are gone: switched off and removed. What it removed, a line each; what it could not, too.
  static std::string RemoveStale();

 private:
  SwapArea(std::string path, int zram) : path_(std::move(path)), zram_(zram) {}
  void Remove();

  std::string path_;  // empty: moved from
  int zram_;          // the device's number; -1: a file
  std::string algorithm_;
};

}  // namespace ramspan::bench
