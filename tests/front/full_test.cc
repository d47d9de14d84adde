// Memory and swap are both full: what is there stays readable and writable, so that a program can still write its
// checkpoint. One process with little memory and swap; each test fills both and gives everything back.
#include <gtest/gtest.h>
#include <ramspan/adhere_all.h>
#include <ramspan/managed_ptr.h>
#include <ramspan/mapped_file.h>
#include <ramspan/runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using ramspan::adhereTo;
using ramspan::managedPtr;

namespace {

bool larger = false;  // an argument: other figures, for the tests that need them

class FullProgram : public testing::Test {
 protected:
  // Makes and writes objects until the first one is refused.
  void Fill(const std::function<size_t()>& next_bytes) {
    for (;;) {
      ASSERT_LT(objects_.size(), 200'000u) << "never full";
      try {
        managedPtr<unsigned char> object(next_bytes());
        adhereTo<unsigned char> glue(object);
        unsigned char* const p = glue;
        std::memset(p, LetterOf(objects_.size(), 0), object.size());
        objects_.push_back(object);
      } catch (const ramspan::OutOfSwap&) {
        return;
      } catch (const ramspan::OutOfMemory&) {  // descriptors
        return;
      }
    }
  }
  // Descriptors until one is refused; they have no contents yet.
  void FillWithDescriptors(size_t bytes) {
    try {
      for (int i = 0; i < 500'000; ++i) empty_.emplace_back(bytes);
      ADD_FAILURE() << "never full";
    } catch (const ramspan::Error&) {
    }
  }
  // Each object is read and then written anew, by so many threads at once, each with one pin at a time.
  void CheckAll(unsigned threads, unsigned version) {
    std::atomic<size_t> refused{0}, wrong{0};
    const auto work = [&](size_t begin) {
      for (const bool write : {false, true}) {
        for (size_t i = begin; i < objects_.size(); i += threads) {
          const size_t bytes = objects_[i].size();
          try {
            if (!write) {
              const adhereTo<unsigned char> glue(objects_[i]);
              const unsigned char* const p = glue;
              const unsigned char letter = LetterOf(i, version - 1);
              wrong += !std::all_of(p, p + bytes, [&](unsigned char c) { return c == letter; });
            } else {
              adhereTo<unsigned char> glue(objects_[i]);
              unsigned char* const p = glue;
              std::memset(p, LetterOf(i, version), bytes);
            }
          } catch (const ramspan::Error& error) {
            if (refused++ == 0) std::printf("refused: %s\n", error.what());
          }
        }
      }
    };
    std::vector<std::thread> others;
    for (unsigned t = 1; t < threads; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& other : others) other.join();
    EXPECT_EQ(refused, 0u) << "of " << objects_.size() << " objects, " << threads << " threads";
    EXPECT_EQ(wrong, 0u);
  }
  void CheckAll() {
    CheckAll(1, 1);
    CheckAll(4, 2);
    CheckAll(1, 3);
  }
  static unsigned char LetterOf(size_t i, unsigned version) { return static_cast<unsigned char>(i * 7 + version * 61 + 1); }

  std::vector<managedPtr<unsigned char>> objects_, empty_;
  std::mt19937 random_{17};
};

TEST_F(FullProgram, OfObjectsOf1To3000BytesStaysUsable) {
  Fill([&] { return 1 + random_() % 3000; });
  EXPECT_GT(objects_.size(), 2500u);
  CheckAll();
}

TEST_F(FullProgram, OfObjectsOf3000BytesStaysUsable) {
  Fill([] { return 3000; });
  EXPECT_GT(objects_.size(), 1500u);
  CheckAll();
}

TEST_F(FullProgram, OfObjectsOf1To40000BytesStaysUsable) {
  Fill([&] { return 1 + random_() % 40'000; });
  EXPECT_GT(objects_.size(), 200u);
  CheckAll();
}

TEST_F(FullProgram, OfObjectsOf64KiBStaysUsable) {
  Fill([] { return 64 << 10; });
  EXPECT_GE(objects_.size(), 64u + 8u);  // swap, and much of memory; tables of the tests before stay
  CheckAll();
}

// Descriptors took the memory that the objects needed in order to be read.
TEST_F(FullProgram, StaysUsableBesideDescriptorsMadeAfterwards) {
  Fill([] { return 64 << 10; });
  FillWithDescriptors(5000);
  CheckAll();
}

TEST_F(FullProgram, OfSmallObjectsStaysUsableBesideDescriptorsMadeAfterwards) {
  Fill([&] { return 1 + random_() % 3000; });
  FillWithDescriptors(5000);
  FillWithDescriptors(100);
  CheckAll();
}

// The tables of the swap file grew while its slots got scattered, by a page or two of which the largest objects had need.
TEST_F(FullProgram, StaysUsableWhileTheTablesOfSwapGrow) {
  if (!larger) GTEST_SKIP() << "needs more memory: run with the argument larger";
  ramspan::SetPreemptive(false, false);
#if defined(__SANITIZE_THREAD__)
  const std::vector<unsigned> seeds = {7, 13};  // a tenth as fast; threads meet in each of them
#else
  const std::vector<unsigned> seeds = {7, 12, 13, 15, 16, 18, 26, 32};
#endif
  for (const unsigned seed : seeds) {
    random_.seed(seed);
    Fill([&] { return 1 + random_() % 65'536; });
    EXPECT_GT(objects_.size(), 300u);
    CheckAll();
    objects_.clear();
  }
}

// Each chunk of a mapped file that is changed needs a place in swap, and took one in memory from what is there.
TEST_F(FullProgram, StaysUsableBesideAMappedFileThatIsChanged) {
  std::string path = testing::TempDir() + "ramspan-full-XXXXXX";
  close(mkstemp(path.data()));
  std::ofstream(path, std::ios::binary) << std::string(4 << 20, 'm');
  {
    ramspan::mappedFile<char> file(path, 0, ramspan::mappedFile<char>::kAll, ramspan::ChunkBytes{128 << 10});
    for (size_t i = 0; i < 8; ++i) file.array().block(i)[0] = 'x';
    Fill([] { return 128 << 10; });
    size_t changed = 8;
    for (size_t i = 8; i < file.array().chunk_count(); ++i) {
      try {
        file.array().block(i)[0] = 'x';
        ++changed;
      } catch (const ramspan::OutOfSwap&) {
      }
    }
    EXPECT_EQ(file.changed_chunks(), changed);
    EXPECT_LT(changed, file.array().chunk_count());
    CheckAll();
    size_t marked = 0, rest = 0;
    for (const char c : std::as_const(file).array()) (c == 'x' ? marked : rest) += 1;
    EXPECT_EQ(marked, changed);
    file.writeBack();
    EXPECT_EQ(file.changed_chunks(), 0u);
    CheckAll(1, 4);
  }
  std::filesystem::remove(path);
}

// What is swapped waits for a pin that takes the memory for it: adhereAll was refused at once where adhereTo waited.
TEST_F(FullProgram, AdhereAllWaitsForPinsLikeAdhereTo) {
  ramspan::SetPreemptive(false, false);
  managedPtr<unsigned char> large(5 << 18);
  {
    adhereTo<unsigned char> glue(large);
    static_cast<unsigned char*>(glue)[0] = 1;
  }
  Fill([] { return size_t{220} << 10; });
  ASSERT_GT(objects_.size(), 4u);
  for (size_t i = 0; i + 1 < objects_.size(); ++i) {
    SCOPED_TRACE(i);
    std::atomic<bool> pinned{false};
    std::thread holder([&] {
      adhereTo<unsigned char> glue(large);
      static_cast<unsigned char*>(glue)[0] = 1;
      pinned = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // meanwhile the other one comes to wait, as a rule
    });
    while (!pinned) std::this_thread::yield();
    EXPECT_NO_THROW(static_cast<void>(ramspan::adhereAll(objects_[i], objects_[i + 1])));
    holder.join();
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ramspan::Options options;
  larger = argc > 1 && std::string(argv[1]) == "larger";
  options.memory = larger ? 8 << 20 : 2 << 20;
  options.swapMemory = larger ? 16 << 20 : 4 << 20;
  options.policy = ramspan::SwapPolicy::kFail;
  ramspan::Configure(options);
  return RUN_ALL_TESTS();
}
