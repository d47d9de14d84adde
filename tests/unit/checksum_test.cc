#include "common/checksum.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/vector_registers.h"

namespace ramspan {
namespace {

constexpr size_t kSizes[] = {1,     16,    128,   240,   241,    256,    512,    1000,   1024,   4096,
                             16384, 65535, 65536, 65537, 100001, 131072, 196609, 262143, 1 << 20};

std::vector<char> RandomBytes(size_t bytes) {
  std::mt19937_64 random(bytes);
  std::vector<char> data(bytes);
  for (char& c : data) c = static_cast<char>(random());
  return data;
}

TEST(Checksum, NoSizeLeavesVectorRegistersInUse) {
  RAMSPAN_NEEDS_TO_SEE_UPPER_HALVES();
  for (const size_t bytes : kSizes) {
    SCOPED_TRACE(bytes);
    const std::vector<char> from = RandomBytes(bytes);
    std::vector<char> to(bytes);
    ExpectUpperHalvesClearAfter("Checksum", [&] { Checksum(from.data(), bytes); });
    for (const HashedSide side : {HashedSide::kSource, HashedSide::kDestination}) {
      ExpectUpperHalvesClearAfter("CopyWithChecksum", [&] { CopyWithChecksum(to.data(), from.data(), bytes, side); });
    }
  }
}

TEST(Checksum, OfACopyIsThatOfItsBytesOnEitherSide) {
  for (const size_t bytes : kSizes) {
    const std::vector<char> from = RandomBytes(bytes);
    for (const HashedSide side : {HashedSide::kSource, HashedSide::kDestination}) {
      std::vector<char> to(bytes);
      EXPECT_EQ(CopyWithChecksum(to.data(), from.data(), bytes, side), Checksum(from.data(), bytes)) << bytes;
      EXPECT_EQ(to, from) << bytes;
    }
  }
}

// Writes into one byte of each 4 KiB of `data` without a pause, as a stray store from another process would.
class Scribbler {
 public:
  explicit Scribbler(std::vector<char>* data) : thread_([this, data] {
    for (unsigned char value = 0; !stop_.load(std::memory_order_relaxed); ++value) {
      for (size_t at = 0; at < data->size(); at += 4096) {
        __atomic_store_n(data->data() + at, static_cast<char>(value), __ATOMIC_RELAXED);
      }
      rounds_.fetch_add(1, std::memory_order_relaxed);
    }
  }) {}
  ~Scribbler() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> stop_{false};       // publishes nothing but itself
  std::atomic<uint64_t> rounds_{0};     // likewise
  std::thread thread_;
};

// A near server's pool is memory that others can write to. The hash was taken of the source before it was copied, so a
// store in between went into the program's data without an error.
TEST(Checksum, OfAReadIsThatOfTheBytesThatArrived) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race is the point of this test";
#endif
  for (const size_t bytes : {size_t{4096}, size_t{65536}, size_t{300000}}) {
    std::vector<char> from = RandomBytes(bytes);
    std::vector<char> to(bytes);
    const Scribbler scribbler(&from);
    while (scribbler.rounds() == 0) std::this_thread::yield();
    // Long enough for the other thread to run beside this one or, on one core, to interrupt it in mid-copy.
    const uint64_t until = scribbler.rounds() + 2000;
    for (int copies = 0; copies < 2000 || scribbler.rounds() < until; ++copies) {
      const uint64_t checksum = CopyWithChecksum(to.data(), from.data(), bytes, HashedSide::kDestination);
      ASSERT_EQ(checksum, Checksum(to.data(), bytes)) << "copy " << copies << " of " << bytes << " bytes";
    }
  }
}

// A checksum of the destination would call right whatever a stray store made of the copy.
TEST(Checksum, OfAWriteIsThatOfTheBytesThatWereToBeWritten) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race is the point of this test";
#endif
  for (const size_t bytes : {size_t{4096}, size_t{65536}, size_t{300000}}) {
    const std::vector<char> from = RandomBytes(bytes);
    const uint64_t right = Checksum(from.data(), bytes);
    std::vector<char> to(bytes);
    const Scribbler scribbler(&to);
    while (scribbler.rounds() == 0) std::this_thread::yield();
    const uint64_t until = scribbler.rounds() + 2000;
    for (int copies = 0; copies < 2000 || scribbler.rounds() < until; ++copies) {
      ASSERT_EQ(CopyWithChecksum(to.data(), from.data(), bytes, HashedSide::kSource), right) << "copy " << copies;
    }
  }
}

}  // namespace
}  // namespace ramspan
