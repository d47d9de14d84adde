// MappedFiles: chunks whose first contents are in a file of the program's (include/ramspan/mapped_file.h).
// Thread-safety: any thread. Owns nothing: the tier that reads from files belongs to the TieredSwap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "client/swap/swap_tier.h"
#include "common/mutex.h"

namespace ramspan {

class Engine;
class FileMap;
class MappedFile;
class Swaps;
class TieredSwap;
struct Chunk;

class MappedFiles {
 public:
  MappedFiles(Engine* engine, TieredSwap* swap, Swaps* swaps) : engine_(engine), swap_(swap), swaps_(swaps) {}

  // A chunk that lives in the file at `offset` until it is changed. What Engine::Create returns. Throws ConfigError when
  // there is no place for the tier of mapped files.
  Result<Chunk*> MapChunk(const std::shared_ptr<const MappedFile>& file, uint64_t offset, uint64_t bytes);
  // The same for a chunk that was just written back there, and stays as it is unless this is OK. REQUIRES: as Engine::ReplaceSlot.
  Status MapAgain(Chunk* chunk, const std::shared_ptr<const MappedFile>& file, uint64_t offset);

 private:
  Result<SlotRef> PlaceIn(const std::shared_ptr<const MappedFile>& file, uint64_t offset);

  Engine* const engine_;
  TieredSwap* const swap_;
  Swaps* const swaps_;
  Mutex mutex_{LockRank::kMappedFiles};
  FileMap* map_ RS_GUARDED_BY(mutex_) = nullptr;  // in swap_, after the first mapped file
  size_t index_ RS_GUARDED_BY(mutex_) = 0;        // of that tier
};

}  // namespace ramspan
