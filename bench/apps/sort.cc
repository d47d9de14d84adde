// Sorting 64-bit keys by merging: blocks are sorted by themselves, then eight runs at a time are merged, until one is left. Threads take a
// group of runs each; where there are fewer groups, each takes a range of keys of one.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <parallel/algorithm>
#include <utility>
#include <vector>

#include "bench/apps/application.h"
#include "bench/apps/slab.h"
#include "bench/apps/storage.h"

namespace ramspan::bench {
namespace {

using Key = uint64_t;

constexpr size_t kSortBlock = 16384;  // keys: 128 KiB
constexpr size_t kFanIn = 8;
constexpr size_t kSampled = 1024;  // every so many keys of a run one is remembered, to find where ranges begin

size_t SortBlocks(const AppOptions& o) {
  const uint64_t data = o.full ? uint64_t{1} << 30 : o.data != 0 ? o.data : uint64_t{128} << 20;
  return std::max<size_t>(2, data / (2 * kSortBlock * sizeof(Key)));
}

template <typename Storage>
class MergeSort : public Application {
  using Keys = typename Storage::template Blocks<Key>;

 public:
  explicit MergeSort(const AppOptions& o)
      : threads_(o.threads), blocks_(SortBlocks(o)), samples_(blocks_ * kSortBlock / kSampled), next_samples_(samples_.size()), now_(blocks_, kSortBlock), next_(blocks_, kSortBlock) {}

  void Prepare() override {
    ForAll(threads_, blocks_, [this](size_t b) {
      const auto block = now_.fresh(b);
      for (size_t i = 0; i < kSortBlock; ++i) block.data()[i] = Digest::Mixed(b * kSortBlock + i);
    });
  }

  void Run() override {
    ForAll(threads_, blocks_, [this](size_t b) {
      const auto block = now_.write(b);
      std::sort(block.data(), block.data() + kSortBlock);
      for (size_t i = 0; i < kSortBlock; i += kSampled) samples_[(b * kSortBlock + i) / kSampled] = block.data()[i];
    });
    for (size_t run = 1; run < blocks_; run *= kFanIn) {
      const std::vector<Part> parts = Parts(run);
      for (size_t b = 0; b < blocks_; ++b) next_.renew(b);  // two parts may meet in a block
      ForAll(threads_, parts.size(), [&](size_t i) { Merge(parts[i]); });
      std::swap(now_, next_);
      std::swap(samples_, next_samples_);
      DropAll(&next_);
    }
  }

  Digest Result() override {
    return DigestOf(threads_, blocks_, [this](size_t b, Digest* digest) {
      const auto block = std::as_const(now_).read(b);
      digest->AddBlock(b, block.data(), kSortBlock * sizeof(Key));
      digest->template AddValues<Key>(b * kSortBlock, {block.data(), kSortBlock});
    });
  }

 private:
  // Of a merge: a range of keys of up to kFanIn runs, by positions among all keys, and where they go.
  struct Part {
    size_t runs = 0, to = 0;
    std::array<size_t, kFanIn> begin{}, end{};
  };

  // Walks the keys [at, end) and holds one block.
  class Cursor {
   public:
    Cursor(const Keys* keys, size_t at, size_t end) : keys_(keys), at_(at), end_(end) {
      if (at_ < end_) Enter();
    }
    bool done() const { return at_ == end_; }
    Key key() const { return *key_; }
    void Next() {
      ++key_;
      if (++at_ == end_) return view_.reset();
      if (at_ % kSortBlock == 0) Enter();
    }

   private:
    void Enter() {
      view_.reset();  // one block at a time
      const size_t block = at_ / kSortBlock;
      view_.emplace(keys_->read(block));
      key_ = view_->data() + at_ % kSortBlock;
      if ((block + 1) * kSortBlock < end_) keys_->soon(block + 1);
    }

    const Keys* keys_;
    size_t at_, end_;
    std::optional<typename Storage::template View<const Key>> view_;
    const Key* key_ = nullptr;
  };

  std::vector<Part> Parts(size_t run) const {
    const size_t groups = (blocks_ + run * kFanIn - 1) / (run * kFanIn);
    const size_t ranges = groups >= 2 * static_cast<size_t>(threads_) ? 1 : static_cast<size_t>(threads_);
    std::vector<Part> parts;
    for (size_t g = 0; g < groups; ++g) {
      Part part;
      const size_t group = g * kFanIn * run * kSortBlock;
      size_t to = group;
      for (size_t first = g * kFanIn * run; part.runs < kFanIn && first < blocks_; first += run) {
        part.begin[part.runs] = first * kSortBlock;
        part.end[part.runs++] = std::min(first + run, blocks_) * kSortBlock;
      }
      const std::array<size_t, kFanIn> ends = part.end;
      for (size_t r = 0; r < ranges; ++r) {
        if (r + 1 < ranges) {
          const Key bound = Bound(group, ends[part.runs - 1], static_cast<double>(r + 1) / static_cast<double>(ranges));
          for (size_t i = 0; i < part.runs; ++i) part.end[i] = LowerBound(part.begin[i], ends[i], bound);
        } else {
          part.end = ends;
        }
        part.to = to;
        parts.push_back(part);
        for (size_t i = 0; i < part.runs; ++i) to += part.end[i] - part.begin[i];
        part.begin = part.end;
      }
    }
    return parts;
  }

  // What about a share of the keys at [begin, end) are below, by their samples.
  Key Bound(size_t begin, size_t end, double share) const {
    std::vector<Key> some(samples_.begin() + static_cast<std::ptrdiff_t>(begin / kSampled), samples_.begin() + static_cast<std::ptrdiff_t>(end / kSampled));
    const auto middle = some.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(some.size()));
    std::nth_element(some.begin(), middle, some.end());
    return *middle;
  }

  // The first position of [begin, end) of a run whose key is not below `bound`. Looks into one block at most.
  size_t LowerBound(size_t begin, size_t end, Key bound) const {
    if (begin == end) return end;
    const auto first = samples_.begin() + static_cast<std::ptrdiff_t>(begin / kSampled), last = samples_.begin() + static_cast<std::ptrdiff_t>((end + kSampled - 1) / kSampled);
    const size_t above = static_cast<size_t>(std::lower_bound(first, last, bound) - samples_.begin()) * kSampled;
    if (above <= begin) return begin;
    const size_t from = std::max(begin, above - kSampled), to = std::min(end, above);  // within one block, because those are whole samples long
    const auto view = now_.read(from / kSortBlock);
    const Key* const keys = view.data() + from % kSortBlock;
    return from + static_cast<size_t>(std::lower_bound(keys, keys + (to - from), bound) - keys);
  }

  void Merge(const Part& part) {
    std::vector<Cursor> cursors;
    cursors.reserve(part.runs);
    std::vector<std::pair<Key, size_t>> heads;  // a heap, the least key first
    size_t left = 0;
    for (size_t i = 0; i < part.runs; ++i) {
      cursors.emplace_back(&now_, part.begin[i], part.end[i]);
      if (!cursors[i].done()) heads.emplace_back(cursors[i].key(), i);
      left += part.end[i] - part.begin[i];
    }
    std::make_heap(heads.begin(), heads.end(), std::greater<>());
    for (size_t to = part.to; left > 0;) {
      const auto block = next_.write(to / kSortBlock);
      const size_t count = std::min(left, kSortBlock - to % kSortBlock);
      Key* out = block.data() + to % kSortBlock;
      for (size_t i = 0; i < count; ++i, ++to) {
        if (to % kSampled == 0) next_samples_[to / kSampled] = heads[0].first;
        *out++ = heads[0].first;
        Cursor& cursor = cursors[heads[0].second];
        cursor.Next();
        if (!cursor.done()) {
          heads[0].first = cursor.key();
        } else {
          heads[0] = heads.back();
          heads.pop_back();
        }
        SinkFirst(&heads);
      }
      left -= count;
    }
  }

  static void SinkFirst(std::vector<std::pair<Key, size_t>>* heads) {
    auto& heap = *heads;
    const size_t n = heap.size();
    for (size_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
      if (child + 1 < n && heap[child + 1].first < heap[child].first) ++child;
      if (heap[at].first <= heap[child].first) return;
      std::swap(heap[at], heap[child]);
    }
  }

  const int threads_;
  const size_t blocks_;
  std::vector<Key> samples_, next_samples_;
  Keys now_, next_;
};

// The library's: of one thread, or GCC's parallel one.
class SortByStd : public Application {
 public:
  explicit SortByStd(const AppOptions& o) : threads_(o.threads), keys_(SortBlocks(o) * kSortBlock) {}
  void Prepare() override {
    for (size_t i = 0; i < keys_.size(); ++i) keys_[i] = Digest::Mixed(i);
  }
  void Run() override {
    if (threads_ == 1) return std::sort(keys_.begin(), keys_.end());
    omp_set_num_threads(threads_);
    __gnu_parallel::sort(keys_.begin(), keys_.end());
  }
  Digest Result() override {
    Digest digest;
    digest.AddValues<Key>(0, keys_);
    return digest;
  }

 private:
  const int threads_;
  std::vector<Key> keys_;
};

AppShape SortShape(const AppOptions& o) {
  const size_t blocks = SortBlocks(o);
  return {std::to_string(blocks * kSortBlock) + " keys of 64 bits, eight runs merged at a time", 2 * blocks * kSortBlock * sizeof(Key), (kFanIn + 1) * kSortBlock * sizeof(Key)};
}

}  // namespace

const AppKind kSort = {"sort", "merge sort", "1 GiB with --full", false, SortShape, MakeApp<MergeSort, InCore>, MakeApp<MergeSort, OutOfCore>,
                       [](const AppOptions& o) -> std::unique_ptr<Application> { return std::make_unique<SortByStd>(o); }};

}  // namespace ramspan::bench
