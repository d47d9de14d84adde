#include "bench/swap_targets_stores.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "bench/report.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/pages.h"

namespace ramspan::bench {
namespace {

// The number behind `name` in a file of the kernel's; 0: there is none.
uint64_t CounterOf(const char* file, const std::string& name) {
  std::ifstream in(file);
  uint64_t value = 0;
  for (std::string word; in >> word >> value;) {
    if (word == name) return value;
  }
  return 0;
}

class PlainStore : public ChunkStore {
 public:
  explicit PlainStore(const TargetLayout& layout) {
    for (uint32_t c = 0; c < layout.chunks; ++c) chunks_.emplace_back(new double[layout.elements()]);
  }
  void Read(uint32_t chunk, const std::function<void(const double*)>& use) override { use(chunks_[chunk].get()); }
  void Write(uint32_t chunk, const std::function<void(double*)>& use) override { use(chunks_[chunk].get()); }
  // Of the whole machine: the kernel does not say whose pages they were.
  uint64_t BytesMoved() const override {
    return (CounterOf("/proc/vmstat", "pswpin") + CounterOf("/proc/vmstat", "pswpout")) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }

 private:
  std::vector<std::unique_ptr<double[]>> chunks_;
};

class MappedStore : public ChunkStore {
 public:
  MappedStore(const TargetLayout& layout, const std::string& directory) : elements_(layout.elements()), bytes_(layout.bytes()) {
    std::string path = directory + "/ramspan-targets-XXXXXX";
    const int fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd < 0) throw std::runtime_error("cannot make a file in " + directory + ": " + std::strerror(errno));
    unlink(path.c_str());
    const bool room = ftruncate(fd, static_cast<off_t>(bytes_)) == 0 && posix_fallocate(fd, 0, static_cast<off_t>(bytes_)) == 0;
    void* const mapped = room ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (mapped == MAP_FAILED) throw std::runtime_error("no room for a mapped file in " + directory);
    data_ = static_cast<double*>(mapped);
  }
  ~MappedStore() override { munmap(data_, bytes_); }
  void Read(uint32_t chunk, const std::function<void(const double*)>& use) override { use(data_ + chunk * elements_); }
  void Write(uint32_t chunk, const std::function<void(double*)>& use) override { use(data_ + chunk * elements_); }
  // What is written counts when it becomes dirty.
  uint64_t BytesMoved() const override { return CounterOf("/proc/self/io", "read_bytes:") + CounterOf("/proc/self/io", "write_bytes:"); }

 private:
  const size_t elements_, bytes_;
  double* data_ = nullptr;
};

// What the library counts, whatever the way to its data.
class LibraryStore : public ChunkStore {
 public:
  uint64_t BytesMoved() const override {
    const Json stats = LibraryStats();
    return TierBytes(stats, "bytes_in") + TierBytes(stats, "bytes_out");
  }
  uint64_t BytesLent() const override {
    const Json stats = LibraryStats();
    return stats["tiers"].contains("remote") ? stats["tiers"]["remote"]["slot_bytes_used"].get<uint64_t>() : 0;
  }
};

class RamspanStore final : public LibraryStore {
 public:
  RamspanStore(const TargetLayout& layout, const BenchOptions& options) {
    ConfigureLibrary(options);
    for (uint32_t c = 0; c < layout.chunks; ++c) chunks_.emplace_back(layout.elements());
  }
  void Read(uint32_t chunk, const std::function<void(const double*)>& use) override {
    const adhereTo<double> glue(chunks_[chunk]);
    use(glue);
  }
  void Write(uint32_t chunk, const std::function<void(double*)>& use) override {
    adhereTo<double> glue(chunks_[chunk]);
    use(glue);
  }

 private:
  std::vector<managedPtr<double>> chunks_;
};

class PagesStore final : public LibraryStore {
 public:
  PagesStore(const TargetLayout& layout, const BenchOptions& options) : elements_(layout.elements()) {
    ConfigureLibrary(options);
    data_ = static_cast<double*>(AllocatePages(layout.bytes()));
  }
  ~PagesStore() override { FreePages(data_); }
  void Read(uint32_t chunk, const std::function<void(const double*)>& use) override { use(data_ + chunk * elements_); }
  void Write(uint32_t chunk, const std::function<void(double*)>& use) override { use(data_ + chunk * elements_); }

 private:
  const size_t elements_;
  double* data_ = nullptr;
};

}  // namespace

std::unique_ptr<ChunkStore> MakePlainStore(const TargetLayout& layout) { return std::make_unique<PlainStore>(layout); }

std::unique_ptr<ChunkStore> MakeMappedStore(const TargetLayout& layout, const std::string& directory) {
  return std::make_unique<MappedStore>(layout, directory);
}

std::unique_ptr<ChunkStore> MakeRamspanStore(const TargetLayout& layout, const BenchOptions& options) {
  return std::make_unique<RamspanStore>(layout, options);
}

std::unique_ptr<ChunkStore> MakePagesStore(const TargetLayout& layout, const BenchOptions& options) {
  return std::make_unique<PagesStore>(layout, options);
}

}  // namespace ramspan::bench
