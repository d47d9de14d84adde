// PolicyTrace: what a program did with its chunks, in order: what a policy could know, and all that it needs to be replayed.
// Thread-safety: a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ramspan::bench {

struct PolicyTrace {
  enum class Kind : uint8_t { kCreate, kFree, kTouch };
  struct Event {
    Kind kind;
    bool write;       // of a touch
    uint16_t thread;  // of a touch; below `threads`
    uint32_t object;  // an index of `bytes`; never used again after its end
  };

  std::string name;
  std::vector<uint64_t> bytes;  // by object
  std::vector<Event> events;    // each object: its making, touches, and its end if it has one
  uint32_t threads = 1;
  size_t bytes_cut = 0;  // at the end of its file: part of a record

  uint32_t Create(uint64_t size);
  void Free(uint32_t object) { events.push_back({Kind::kFree, false, 0, object}); }
  void Touch(uint32_t object, bool write = false, uint16_t thread = 0) { events.push_back({Kind::kTouch, write, thread, object}); }

  uint64_t touches() const;
  // Of the objects that there were at one time, at most. In whole granules: what they take in memory.
  uint64_t data_bytes() const;
  // The least memory in which it can be replayed: each thread has an object in use while the next one comes in.
  uint64_t least_limit() const;
};

}  // namespace ramspan::bench
