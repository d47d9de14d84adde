// Rooflines: the same work by hand, without the library, measured between the library's own passes so that both see
// the same machine. A copy pass is what one thread does at best: get a chunk, compute on it while it is in cache, put
// the chunk that has been in memory longest. The shared memory is an anonymous shared mapping of this process: the
// same kind of pages as a same-node server's window (which leases may fill), populated before it is measured.
// Thread-safety: none. The classes own their buffers and files.
#pragma once

#include <libaio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "bench/options.h"
#include "bench/passes.h"

namespace ramspan::bench {

// Seconds, by what they went into. `other` is loop and clock.
struct PassTimes {
  uint64_t bytes = 0;
  double put = 0, get = 0, compute = 0;
  double total() const { return put + get + compute; }
};

// Pages from mmap, all resident.
class Pages {
 public:
  Pages(size_t bytes, bool shared);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_;
  size_t bytes_;
};

class SharedRoofline {
 public:
  // A window of `window_bytes` beside frames of `frame_bytes`, both in chunks of `chunk`.
  SharedRoofline(size_t chunk, size_t window_bytes, size_t frame_bytes);

  // Over the window once, in order.
  PassTimes Sweep(bool write);
  // `count` chunks anywhere in the window: one get, one compute pass, and where they are written one put.
  PassTimes Random(size_t count, std::mt19937_64* random, bool write = true);

 private:
  void Visit(size_t index, bool write, PassTimes* times);

  const size_t chunk_;
  Pages window_;
  Pages frames_;
  std::vector<size_t> held_;  // by frame: the chunk of the window that it holds
  size_t next_frame_ = 0;
  uint64_t sink_ = 0;  // keeps the read pass alive
};

// A file in the directory (empty: $TMPDIR, else /tmp), without a name, its extents written. Throws std::runtime_error.
class FileRoofline {
 public:
  FileRoofline(const std::string& directory, bool direct, size_t chunk, size_t bytes);
  ~FileRoofline();
  FileRoofline(const FileRoofline&) = delete;
  FileRoofline& operator=(const FileRoofline&) = delete;

  // libaio with 8 chunks in flight over the whole file, writes then reads; compute apart, on what is in memory.
  PassTimes Sweep(bool write);
  // Seconds for `count` accesses anywhere in the file: each reads one chunk and waits for it, while others are written if any are; at most 7 writes are
  // under way.
  double Random(size_t count, std::mt19937_64* random, bool write = true);

 private:
  static constexpr int kDepth = 8;
  double Transfer(bool write);
  int Await(io_event* events);
  void Start(int slot, size_t index, bool write);

  const size_t chunk_;
  const size_t bytes_;
  Pages buffers_;
  int fd_ = -1;
  io_context_t context_ = nullptr;
  iocb controls_[kDepth];
  uint64_t sink_ = 0;
};

// The one that fits where the bytes of this run go.
class TierRoofline {
 public:
  TierRoofline(const BenchOptions& options, size_t chunk);
  // Seconds for as much as the data, in order.
  PassTimes InOrder(bool write);
  // Seconds that one chunk anywhere takes to be read.
  double ReadAnywhere(size_t count);

 private:
  const uint64_t data_;
  std::mt19937_64 random_{20240301};
  std::unique_ptr<FileRoofline> file_;
  std::unique_ptr<SharedRoofline> shared_;
};

}  // namespace ramspan::bench
