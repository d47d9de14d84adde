// A SwapStore in a map, as a program could write one.
// Thread-safety: any thread.
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "ramspan/extend.h"

class MapStore : public ramspan::SwapStore {
 public:
  explicit MapStore(uint64_t capacity) : capacity_(capacity) {}

  std::string Name() const override { return "map"; }
  uint64_t Capacity() const override { return capacity_; }
  bool Write(uint64_t slot, const void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    data_[slot].assign(static_cast<const char*>(data), bytes);
    return true;
  }
  bool Read(uint64_t slot, void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    std::memcpy(data, data_.at(slot).data(), bytes);
    return true;
  }
  void Erase(uint64_t slot, size_t) noexcept override {
    std::lock_guard lock(mutex_);
    data_.erase(slot);
  }
  size_t slots() {
    std::lock_guard lock(mutex_);
    return data_.size();
  }

 private:
  const uint64_t capacity_;
  std::mutex mutex_;
  std::map<uint64_t, std::string> data_;
};
