#include "bench/together.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/network_job.h"

namespace ramspan::bench {
namespace {

// A sweep and the raw figures after it take seconds, on a machine with ten times as many runnable threads as cores a minute. Who has not
// come after this time is gone.
constexpr std::chrono::seconds kPatience{180};

}  // namespace

struct Together::Shared {
  int clients = 0;
  std::atomic<unsigned> came{0};  // of all turns; publishes `brought`
  std::atomic<bool> one_left{false};
  std::array<double, kClientsMax> brought{};
};

void Together::Make(const std::string& path, int clients) {
  Shared shared;
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof shared) != 0) throw std::runtime_error("cannot make " + path + ": " + std::strerror(errno));
  void* const memory = mmap(nullptr, sizeof shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path + ": " + std::strerror(errno));
  (new (memory) Shared)->clients = clients;
  munmap(memory, sizeof shared);
}

Together::Together() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return;
  const char* path = std::strchr(text, ':');
  if (path == nullptr) throw std::runtime_error(std::string(kVariable) + " is not what the job says");
  number_ = std::atoi(text);
  const int file = open(path + 1, O_RDWR | O_CLOEXEC);
  void* const memory = file < 0 ? MAP_FAILED : mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) throw std::runtime_error(std::string("cannot map ") + (path + 1) + ": " + std::strerror(errno));
  shared_ = static_cast<Shared*>(memory);
}

Together& Together::Get() {
  static Together one;
  return one;
}

int Together::clients() const { return shared_ == nullptr ? 1 : shared_->clients; }

void Together::Wait() {
  if (shared_ == nullptr) return;
  const unsigned all = ++turns_ * static_cast<unsigned>(shared_->clients);
  shared_->came.fetch_add(1, std::memory_order_acq_rel);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (shared_->came.load(std::memory_order_acquire) < all) {
    if (shared_->one_left.load(std::memory_order_relaxed)) throw std::runtime_error("another client of this benchmark has failed");
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("another client of this benchmark has ended, or stands still");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void Together::Leave() {
  if (shared_ != nullptr) shared_->one_left.store(true, std::memory_order_relaxed);
}

double Together::Sum(double mine) {
  if (shared_ == nullptr) return mine;
  shared_->brought[static_cast<size_t>(number_)] = mine;
  Wait();
  double sum = 0;
  for (int i = 0; i < shared_->clients; ++i) sum += shared_->brought[static_cast<size_t>(i)];
  Wait();  // nobody brings the next before all have read these
  return sum;
}

}  // namespace ramspan::bench
