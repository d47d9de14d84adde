// mappedFile<T>: an existing file of Ts as an array in chunks, without a loading phase. A chunk is read when it is first
// pulled, never ahead of that; it leaves memory without being written anywhere, unless it was changed. Changes are
// private: they go to swap as other data does, and the file keeps its bytes until writeBack. So a chunk's first pull for
// writing throws OutOfSwap where memory and swap are full; it can still be read then.
//
//   const mappedFile<double> input("input.bin");            // const: to be read only
//   for (auto block : input.array().blocks()) Use(block);
//
//   mappedFile<Particle> state("state.bin");                 // copy on write
//   for (Particle& p : state.array()) p.Move();
//   state.writeBack();
//
// Thread-safety: as managedArray. While it is mapped the file must keep its length, and other programs' changes may or may
// not be seen; data of a file that became shorter throws DataLost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ramspan/managed_array.h"

namespace ramspan {

class MappedFile;

namespace detail {
// Throws Error when the file cannot be opened, ConfigError when Ramspan cannot start.
RAMSPAN_API std::shared_ptr<const MappedFile> OpenMapped(const std::string& path);
// Elements from a byte on to the end of the file; 0 beyond it. Throws Error where the last one is not whole.
RAMSPAN_API uint64_t MappedElements(const MappedFile& file, uint64_t offset, size_t element_bytes);
// A chunk with one reference whose contents are in the file. Throws as CreateObject; Error beyond the file's end.
RAMSPAN_API ChunkHead* MapChunk(const std::shared_ptr<const MappedFile>& file, uint64_t offset, size_t bytes);
// Whether the chunk differs from its place in the file as far as is known: somebody pulled it to be written.
RAMSPAN_API bool IsChanged(ChunkHead* chunk);
// Writes changed chunks to the file. Blocks. Throws Error, with the rest unwritten, and as a pull does.
// The i-th chunk belongs at byte offset + i * stride.
RAMSPAN_API void WriteBackChunk(ChunkHead* chunk, const std::shared_ptr<const MappedFile>& file, uint64_t offset);
RAMSPAN_API void SyncMapped(const MappedFile& file);
RAMSPAN_API void WriteBackChunks(const std::vector<ChunkHead*>& chunks, const std::shared_ptr<const MappedFile>& file, uint64_t offset, uint64_t stride);
}  // namespace detail

template <typename T>
class mappedFile {
  static_assert(std::is_trivially_copyable_v<T>, "a file holds bytes: T must be trivially copyable");

 public:
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();

  // `elements` of type T from byte `offset` of the file on; kAll: up to the file's end, and an Error where that is within
  // an element. Reads nothing yet. Throws Error when the file cannot be opened or does not hold so many.
  explicit mappedFile(const std::string& path, uint64_t offset = 0, size_t elements = kAll, ChunkBytes chunk = {})
      : file_(detail::OpenMapped(path)), offset_(offset) {
    const size_t n = elements == kAll ? detail::MappedElements(*file_, offset, sizeof(T)) : elements;
    const size_t per_chunk = std::max<size_t>(1, chunk.value / sizeof(T));
    std::vector<managedPtr<T>> chunks;
    for (size_t first = 0; first < n; first += per_chunk) {
      chunks.push_back(detail::ObjectOf::Adopt<T>(detail::Object(
          detail::MapChunk(file_, offset + first * sizeof(T), std::min(per_chunk, n - first) * sizeof(T)))));
    }
    array_ = managedArray<T>(std::move(chunks), n, per_chunk);
  }

  size_t size() const { return array_.size(); }
  managedArray<T>& array() { return array_; }
  const managedArray<T>& array() const { return array_; }

  // Writes what was changed to the file, and to disk; from then on it is read from there again. Blocks. Throws Error when
  // the file cannot be written (what is not on disk for sure stays changed). REQUIRES: no adhereTo that may write.
  void writeBack() {
    std::vector<detail::ChunkHead*> chunks;
    chunks.reserve(array_.chunk_count());
    for (size_t i = 0; i < array_.chunk_count(); ++i) chunks.push_back(detail::ObjectOf()(array_.chunk(i)).chunk());
    detail::WriteBackChunks(chunks, file_, offset_, array_.chunk_elements() * sizeof(T));
  }
  // Chunks that writeBack would write now.
  size_t changed_chunks() const {
    size_t changed = 0;
    for (size_t i = 0; i < array_.chunk_count(); ++i) changed += detail::IsChanged(detail::ObjectOf()(array_.chunk(i)).chunk());
    return changed;
  }

 private:
  std::shared_ptr<const MappedFile> file_;
  uint64_t offset_;
  managedArray<T> array_;
};

}  // namespace ramspan
