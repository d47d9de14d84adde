// swap-targets: the chunks in vectors of STXXL (Debian: libstxxl-dev), where it is installed. Apart, because its headers say much.
#include "bench/swap_targets_stores.h"

#if RAMSPAN_BENCH_STXXL
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <stxxl/vector>
#include <vector>
#endif

namespace ramspan::bench {

#if RAMSPAN_BENCH_STXXL
namespace {

// Blocks as large as the program's chunks where that is possible, which is how one would tune it; one block a page, LRU.
// Elements are reached by a pointer into their block, found once a chunk: operator[] for each element would be many times slower.
template <unsigned kBlockBytes>
class StxxlStore : public ChunkStore {
 public:
  StxxlStore(const TargetLayout& layout, uint64_t limit) : layout_(layout) {
    const auto blocks = limit / kBlockBytes / static_cast<uint64_t>(layout.threads);
    const auto pages = static_cast<unsigned>(std::max<uint64_t>(2, blocks));
    for (int t = 0; t < layout.threads; ++t) {
      const uint64_t chunks = layout.PartBegin(t + 1) - layout.PartBegin(t);
      vectors_.push_back(std::make_unique<Vector>(chunks * layout.elements(), pages));
    }
  }
  void Read(uint32_t chunk, const std::function<void(const double*)>& use) override {
    InBlocks(chunk, [&](const Vector& vector, size_t at) { return &vector[at]; }, use);
  }
  void Write(uint32_t chunk, const std::function<void(double*)>& use) override {
    InBlocks(chunk, [&](Vector& vector, size_t at) { return &vector[at]; }, use);
  }
  uint64_t BytesMoved() const override {
    const stxxl::stats& stats = *stxxl::stats::get_instance();
    return stats.get_read_volume() + stats.get_written_volume();
  }

 private:
  using Vector = typename stxxl::VECTOR_GENERATOR<double, 1, 2, kBlockBytes, stxxl::RC, stxxl::lru>::result;

  template <typename Reach, typename Use>
  void InBlocks(uint32_t chunk, const Reach& reach, const Use& use) {
    int t = 0;
    while (t + 1 < layout_.threads && chunk >= layout_.PartBegin(t + 1)) ++t;
    use(reach(*vectors_[static_cast<size_t>(t)], (chunk - layout_.PartBegin(t)) * layout_.elements()));
  }

  const TargetLayout layout_;
  std::vector<std::unique_ptr<Vector>> vectors_;
};

}  // namespace

bool HasStxxl() { return true; }

std::unique_ptr<ChunkStore> MakeStxxlStore(const TargetLayout& layout, uint64_t limit, const std::string& directory) {
  stxxl::disk_config disk(directory + "/ramspan-targets-stxxl-" + std::to_string(getpid()), 0, "syscall");
  disk.autogrow = true;
  disk.unlink_on_open = true;
  disk.direct = stxxl::disk_config::DIRECT_TRY;
  stxxl::config::get_instance()->add_disk(disk);
  // The size of a block is a constant of the program. A chunk has to lie within one.
  switch (layout.chunk_bytes) {
    case 64u << 10: return std::make_unique<StxxlStore<64u << 10>>(layout, limit);
    case 256u << 10: return std::make_unique<StxxlStore<256u << 10>>(layout, limit);
    case 1u << 20: return std::make_unique<StxxlStore<1u << 20>>(layout, limit);
    case 2u << 20: return std::make_unique<StxxlStore<2u << 20>>(layout, limit);
    default: throw std::runtime_error("blocks of STXXL are compiled for --chunk 64KiB, 256KiB, 1MiB and 2MiB only");
  }
}
#else
bool HasStxxl() { return false; }
std::unique_ptr<ChunkStore> MakeStxxlStore(const TargetLayout&, uint64_t, const std::string&) { return nullptr; }
#endif

}  // namespace ramspan::bench
