// A program written for Rambrain with a swap and a strategy of its own. The swap keeps what leaves compressed in ordinary
// memory (here: runs of equal numbers, which a sparse field has many of). The strategy knows the program: rows that are
// finished leave first.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "rambrain/managedPtr.h"

using namespace rambrain;

class RunLengthSwap : public managedSwap {
 public:
  explicit RunLengthSwap(global_bytesize size) : managedSwap(size) {}
  std::atomic<size_t> runs_held{0};  // the calls come one at a time, but this is read by main

 protected:
  using Runs = std::vector<std::pair<double, size_t>>;

  global_bytesize swapOut(managedMemoryChunk* chunk) override {
    if (chunk->swapBuf == nullptr) chunk->swapBuf = new Runs;
    Runs& runs = *static_cast<Runs*>(chunk->swapBuf);
    runs_held -= runs.size();
    runs.clear();
    const double* numbers = static_cast<const double*>(chunk->locPtr);
    for (size_t i = 0; i < chunk->size / sizeof(double); ++i) {
      if (runs.empty() || std::memcmp(&runs.back().first, &numbers[i], sizeof(double)) != 0) runs.emplace_back(numbers[i], 0);
      ++runs.back().second;
    }
    runs_held += runs.size();
    return chunk->size;
  }
  global_bytesize swapIn(managedMemoryChunk* chunk) override {
    double* numbers = static_cast<double*>(chunk->locPtr);
    for (const auto& [number, count] : *static_cast<Runs*>(chunk->swapBuf)) {
      for (size_t i = 0; i < count; ++i) *numbers++ = number;
    }
    return chunk->size;
  }
  void swapDelete(managedMemoryChunk* chunk) override {
    Runs* runs = static_cast<Runs*>(chunk->swapBuf);
    runs_held -= runs->size();
    delete runs;
  }
};

// The newest objects leave first: a program that goes to and fro over its rows comes back to the oldest last.
class NewestFirst : public managedMemory {
 public:
  NewestFirst(managedSwap* swap, global_bytesize size) : managedMemory(swap, size) {}

 protected:
  void schedulerRegister(managedMemoryChunk& chunk) override { objects_.push_back(&chunk); }
  void schedulerDelete(managedMemoryChunk& chunk) override {
    objects_.erase(std::remove(objects_.begin(), objects_.end(), &chunk), objects_.end());
  }
  swapErrorCode swapOut(global_bytesize min_size) override {
    global_bytesize sum = 0;
    for (auto it = objects_.rbegin(); it != objects_.rend() && sum < min_size; ++it) {
      if (!isResident(**it)) continue;
      sum += (*it)->size;
      if (!letGo(**it)) break;
    }
    return sum >= min_size ? ERR_SUCCESS : ERR_NOTENOUGHCANDIDATES;
  }

 private:
  std::vector<managedMemoryChunk*> objects_;
  inCharge strategy{*this};  // the last member
};

int main() {
  const unsigned int rows = 400, columns = 1 << 13;  // 25 MiB, of which 4 MiB are in memory
  RunLengthSwap swap(gig);
  NewestFirst manager(&swap, 4 * mib);

  std::vector<managedPtr<double>> field;
  for (unsigned int x = 0; x < rows; ++x) field.emplace_back(columns, 0.);
  for (unsigned int sweep = 0; sweep < 4; ++sweep) {
    for (unsigned int i = 0; i < rows; ++i) {
      const unsigned int x = sweep % 2 == 0 ? i : rows - 1 - i;
      adhereTo<double> glue(field[x]);
      double* row = glue;
      row[x] += 1;
    }
  }
  double sum = 0;
  for (const auto& row : field) {
    const adhereTo<double> glue(row);
    const double* numbers = glue;
    for (unsigned int y = 0; y < columns; ++y) sum += numbers[y];
  }
  std::printf("sum %g; %llu bytes left memory, held in %zu runs\n", sum,
              static_cast<unsigned long long>(manager.getSwappedMemory()), swap.runs_held.load());
  return sum == 4.0 * rows && swap.runs_held > 0 ? 0 : 1;
}
