// What sort_text sorts into: runs of sorted lines whose text is in managedPtrs, how they are walked, and how several are
// merged. Data that grows is made block by block, and let go of block by block behind the merge.
#pragma once

#include <ramspan/managed_ptr.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <queue>
#include <string_view>
#include <vector>

using ramspan::adhereTo;
using ramspan::managedPtr;

// Sorted lines, each ended by '\n', in blocks of whole lines.
struct Block {
  managedPtr<char> text{size_t{0}};
  size_t used = 0;
};
class Run {
 public:
  static inline size_t block_bytes = 0;  // of sorted text; one block a run is pinned while merging
  void Append(std::string_view line) {
    if (blocks_.empty() || blocks_.back().used + line.size() > blocks_.back().text.size()) {
      glue_.reset();
      blocks_.push_back({managedPtr<char>(std::max(block_bytes, line.size())), 0});
    }
    if (!glue_) glue_.emplace(blocks_.back().text, false);  // also after a Close
    char* text = *glue_;
    std::memcpy(text + blocks_.back().used, line.data(), line.size());
    blocks_.back().used += line.size();
    bytes_ += line.size();
  }
  // Whole lines, in order; then Close. Again and again.
  void AppendAll(std::string_view lines) {
    while (!lines.empty()) {
      const size_t size = lines.find('\n') + 1;
      Append(lines.substr(0, size));
      lines.remove_prefix(size);
    }
    Close();
  }
  void Close() { glue_.reset(); }
  uint64_t bytes() const { return bytes_; }
  std::vector<Block>& blocks() { return blocks_; }

 private:
  std::vector<Block> blocks_;
  std::optional<adhereTo<char>> glue_;  // of the last block, while the run grows
  uint64_t bytes_ = 0;
};

// Walks a run from its first line to its last and lets go of each block behind it.
class Cursor {
 public:
  explicit Cursor(Run* run) : run_(run) { Enter(); }
  bool done() const { return block_ == run_->blocks().size(); }
  std::string_view line() const { return line_; }  // with its '\n'
  void Next() {
    at_ += line_.size();
    if (at_ < run_->blocks()[block_].used) return Find();
    glue_.reset();
    run_->blocks()[block_++].text = managedPtr<char>(size_t{0});
    Enter();
  }

 private:
  void Enter() {
    at_ = 0;
    if (done()) return;
    glue_.emplace(run_->blocks()[block_].text);
    text_ = *glue_;
    Find();
  }
  void Find() {
    const char* begin = text_ + at_;
    const size_t left = run_->blocks()[block_].used - at_;
    line_ = {begin, static_cast<size_t>(static_cast<const char*>(std::memchr(begin, '\n', left)) - begin) + 1};
  }

  Run* run_;
  size_t block_ = 0, at_ = 0;
  std::optional<adhereTo<char>> glue_;
  const char* text_ = nullptr;
  std::string_view line_;
};

inline bool Before(std::string_view a, std::string_view b) {
  return a.substr(0, a.size() - 1) < b.substr(0, b.size() - 1);  // the '\n' is no part of the key
}

// Calls `take` with every line of the runs in order.
template <typename Take>
void Merge(const std::vector<Run*>& runs, Take take) {
  std::vector<std::unique_ptr<Cursor>> cursors;
  for (Run* run : runs) {
    if (run->bytes() > 0) cursors.push_back(std::make_unique<Cursor>(run));
  }
  const auto later = [](const Cursor* a, const Cursor* b) { return Before(b->line(), a->line()); };
  std::priority_queue<Cursor*, std::vector<Cursor*>, decltype(later)> queue(later);
  for (auto& cursor : cursors) queue.push(cursor.get());
  while (!queue.empty()) {
    Cursor* first = queue.top();
    queue.pop();
    take(first->line());
    first->Next();
    if (!first->done()) queue.push(first);
  }
}
