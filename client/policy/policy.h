// CachePolicy: who leaves, who is fetched ahead. The ports behind which policies are replaced.
//
// Thread-safety: every call is made under the engine's mutex; a policy keeps its order in the chunks' prev/next and
// must not block, allocate memory per call, or change a chunk's state.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "client/chunk/chunk.h"

namespace ramspan {

class CachePolicy {
 public:
  virtual ~CachePolicy() = default;

  virtual void OnCreate(Chunk* chunk) = 0;
  virtual void OnFree(Chunk* chunk) = 0;
  // The program came for a chunk that was not resident.
  virtual void OnMiss(Chunk* chunk) = 0;
  // The program touched a chunk that had been fetched ahead, for the first time.
  virtual void OnPrefetchHit(Chunk* chunk) = 0;
  // A chunk that was fetched ahead left untouched.
  virtual void OnPrefetchWasted(Chunk* chunk) = 0;
  virtual void OnPrefetchIssued(Chunk* chunk) = 0;
  virtual void SetLimits(uint64_t memory_bytes, uint64_t swapped_bytes) = 0;

  // Fills out with Resident chunks in the order in which they should leave, until their bytes reach `bytes` or out is
  // full; returns how many. Called again for more: continues behind those it named.
  virtual size_t PickVictims(uint64_t bytes, std::span<Chunk*> out) = 0;
  // Whether there is enough to fetch ahead to wake a thread for it: a wake-up costs as much as some chunks do.
  virtual bool WantsReadAhead() const = 0;
  // Fills out with Swapped chunks (that have slots, and not in mapped files) to be fetched ahead now; returns how many.
  virtual size_t PickReadAhead(std::span<Chunk*> out) = 0;

  // For people and tests; these may allocate.
  virtual uint64_t preemptive_bytes() const { return 0; }  // fetched ahead, not yet touched
  virtual std::string Describe() const { return ""; }       // the order, a line a chunk
  virtual bool IsValid() const { return true; }             // its own structure is sound
};

}  // namespace ramspan
