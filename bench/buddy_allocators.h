// Allocators that `ramspan bench buddy` compares, behind one pair of calls.
// Thread-safety: Allocate and Free from any thread; the rest with no other thread inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ramspan::bench {

class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual std::string name() const = 0;
  // nullptr: it is full. Without a capacity() of its own it never is, and the caller stops when it has what it wanted.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* at, size_t bytes) = 0;
  virtual bool has_capacity() const { return false; }
  // What it takes for a chunk of so many bytes, as far as it says.
  virtual size_t TakenFor(void* at, size_t bytes) const = 0;
  // The most requests that waited on each level at one time since the last call; empty: it has no levels.
  virtual std::vector<int> TakeWaitingMax() { return {}; }
  // Around each turn: what must not hold for the others.
  virtual void BeginTurn() {}
  virtual void EndTurn() {}
  // Whether all came back and merged to what there was at first.
  virtual bool IsWhole() const { return true; }
};

// All that this machine has. Those with a capacity have `capacity` bytes in units of `unit`. What is not installed is said in *missing, a
// sentence each.
std::vector<std::unique_ptr<Contestant>> AllContestants(uint64_t capacity, uint64_t unit, std::vector<std::string>* missing);

}  // namespace ramspan::bench
