// mappedFile under the same 16 MiB limit as front_test.cc.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ramspan/mapped_file.h"
#include "ramspan/runtime.h"

namespace {
bool disk_fails = false;
}

extern "C" int fdatasync(int file) { return disk_fails ? (errno = EIO, -1) : static_cast<int>(syscall(SYS_fdatasync, file)); }

namespace {

using ramspan::ChunkBytes;
using ramspan::mappedFile;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() {
    std::string name = testing::TempDir() + "ramspan-mapped-XXXXXX";
    close(mkstemp(name.data()));
    path_ = name;
  }
  ~MappedFileTest() override { std::filesystem::remove(path_); }

  void Write(size_t elements) {
    std::vector<uint64_t> all(elements);
    for (size_t i = 0; i < elements; ++i) all[i] = i * 7;
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(all.data()), static_cast<long>(elements * 8));
  }
  std::vector<uint64_t> Read() const {
    std::vector<uint64_t> all(std::filesystem::file_size(path_) / 8);
    std::ifstream(path_, std::ios::binary).read(reinterpret_cast<char*>(all.data()), static_cast<long>(all.size() * 8));
    return all;
  }
  static uint64_t Count(const char* tier, const char* what) {
    const auto tiers = nlohmann::json::parse(ramspan::StatsJson())["tiers"];
    return tiers.contains(tier) ? tiers[tier][what].get<uint64_t>() : 0;
  }

  std::filesystem::path path_;
};

constexpr size_t kElements = (40 << 20) / 8 + 5;

TEST_F(MappedFileTest, IsReadWhenItIsUsedAndNeverWritten) {
  Write(kElements);
  // Static objects and empty bundles of other tests, which may leave once.
  const uint64_t others = nlohmann::json::parse(ramspan::StatsJson())["data_bytes"].get<uint64_t>();
  ASSERT_LT(others, uint64_t{1} << 20);
  const uint64_t in = Count("mapped", "bytes_in"), out = Count("file", "bytes_out");
  const mappedFile<uint64_t> file(path_);
  EXPECT_EQ(file.size(), kElements);
  EXPECT_EQ(Count("mapped", "bytes_in"), in);  // no loading phase
  { EXPECT_EQ(file.array().block(7)[3], (7 * file.array().chunk_elements() + 3) * 7); }
  EXPECT_EQ(Count("mapped", "bytes_in") - in, uint64_t{2} << 20);  // block() asks for the next one, and nobody for more
  uint64_t wrong = 0, i = 0;
  for (const uint64_t& x : file.array()) wrong += x != 7 * i++;
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(i, kElements);
  for (const uint64_t& x : file.array()) wrong += x % 7;
  EXPECT_EQ(wrong, 0u);
  EXPECT_LE(Count("mapped", "bytes_in") - in, 2 * kElements * 8 + (2 << 20));
  EXPECT_LE(Count("file", "bytes_out") - out, others);
}

TEST_F(MappedFileTest, ChangesArePrivateUntilTheyAreWrittenBack) {
  Write(kElements);
  {
    mappedFile<uint64_t> file(path_, 0, mappedFile<uint64_t>::kAll, ChunkBytes{512 << 10});
    const size_t chunks = file.array().chunk_count();
    for (size_t c = 0; c < chunks; c += 3) {
      for (uint64_t& x : file.array().block(c)) ++x;
    }
    EXPECT_EQ(file.changed_chunks(), (chunks + 2) / 3);
    const auto check = [&] {
      uint64_t wrong = 0, i = 0;
      for (const uint64_t& x : std::as_const(file).array()) {
        wrong += x != 7 * i + (i / file.array().chunk_elements() % 3 == 0 ? 1 : 0);
        ++i;
      }
      EXPECT_EQ(wrong, 0u);
    };
    check();
    check();
    EXPECT_EQ(Read()[1], 7u);
    file.writeBack();
    EXPECT_EQ(file.changed_chunks(), 0u);
    EXPECT_EQ(Read()[1], 8u);
    const uint64_t out = Count("file", "bytes_out"), in = Count("file", "bytes_in");
    check();  // all of it comes from the file again
    check();
    EXPECT_LT(Count("file", "bytes_out") - out, uint64_t{1} << 20);
    EXPECT_LT(Count("file", "bytes_in") - in, uint64_t{1} << 20);  // other tests have data in swap, too
    for (uint64_t& x : file.array().block(1)) x = 0;  // never written back
  }
  const std::vector<uint64_t> all = Read();
  EXPECT_EQ(all.size(), kElements);
  EXPECT_EQ(all.back(), 7 * (kElements - 1));
  const size_t per_chunk = (512 << 10) / 8;
  EXPECT_EQ(all[per_chunk], 7 * per_chunk);
}

TEST_F(MappedFileTest, TakesAPartOfAFileAtAnyByte) {
  {
    std::ofstream file(path_, std::ios::binary);
    file << "abc";
    for (uint64_t i = 0; i < 5000; ++i) file.write(reinterpret_cast<const char*>(&i), 8);
    file << "tail";
  }
  const mappedFile<uint64_t> all(path_, 3, 5000);
  EXPECT_EQ(all.size(), 5000u);
  mappedFile<uint64_t> part(path_, 3 + 8 * 1000, 2000, ChunkBytes{4096});
  uint64_t wrong = 0, i = 1000;
  for (const uint64_t& x : std::as_const(part).array()) wrong += x != i++;
  EXPECT_EQ(wrong, 0u);
  part.array().block(0)[0] = 77;
  part.writeBack();
  EXPECT_EQ(std::as_const(all).array().block(0)[1000], 77u);  // first use of that chunk comes after the write
  EXPECT_EQ(std::filesystem::file_size(path_), 3 + 8 * 5000 + 4u);
}

TEST_F(MappedFileTest, ErrorsNameTheFile) {
  const auto says = [](const auto& make, const std::string& what) {
    try {
      make();
      ADD_FAILURE() << "no error: " << what;
    } catch (const ramspan::Error& e) {
      EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
    }
  };
  says([] { mappedFile<int> file("/no/such/file"); }, "/no/such/file: No such file");
  says([] { mappedFile<int> file("/tmp"); }, "/tmp: it is not a regular file");
  Write(100);
  says([&] { mappedFile<uint64_t> file(path_, 0, 101); }, path_.string() + ", which has 800");
  EXPECT_EQ(mappedFile<uint64_t>(path_, 5000).size(), 0u);
  // What does not fill an element was passed over without a word.
  struct Triple {
    double x, y, z;
  };
  says([&] { mappedFile<Triple> file(path_, 7); }, path_.string() + " has 793 bytes from byte 7 on, which are 33 elements of 24 bytes and 1 more");
  EXPECT_EQ(mappedFile<Triple>(path_, 7, 33).size(), 33u);
  EXPECT_EQ(mappedFile<Triple>(path_, 8).size(), 33u);
  struct NeedsAnArgument {  // a file's elements are not constructed
    explicit NeedsAnArgument(int n) : number(n) {}
    int number;
  };
  EXPECT_EQ(mappedFile<NeedsAnArgument>(path_).size(), 200u);
}

TEST_F(MappedFileTest, AFileThatBecameShorterIsDataLost) {
  Write(100000);
  const mappedFile<uint64_t> file(path_, 0, mappedFile<uint64_t>::kAll, ChunkBytes{64 << 10});
  EXPECT_EQ(file.array().block(0)[1], 7u);
  std::filesystem::resize_file(path_, 400000);
  EXPECT_THROW(static_cast<void>(file.array().block(file.array().chunk_count() - 1)), ramspan::DataLost);
  EXPECT_EQ(file.array().block(2)[0], 7 * 2 * 8192u);
}

TEST_F(MappedFileTest, AFileThatMayNotBeWrittenKeepsTheChanges) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write any file";
  Write(1000);
  chmod(path_.c_str(), 0400);
  mappedFile<uint64_t> file(path_);
  file.array().block(0)[1] = 5;
  EXPECT_THROW(file.writeBack(), ramspan::Error);
  EXPECT_EQ(file.changed_chunks(), 1u);
  EXPECT_EQ(file.array().block(0)[1], 5u);
}

// The limit's signal ended the program.
TEST_F(MappedFileTest, ALimitOfFileSizesIsAnErrorThatKeepsTheChanges) {
  Write(1 << 18);
  mappedFile<uint64_t> file(path_);
  file.array().block(file.array().chunk_count() - 1)[1] = 5;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low = {1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  std::string error;
  try {
    file.writeBack();
  } catch (const ramspan::Error& e) {
    error = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(error.find("ulimit -f"), std::string::npos) << error;
  EXPECT_EQ(file.changed_chunks(), 1u);
  file.writeBack();
  EXPECT_EQ(Read()[(file.array().chunk_count() - 1) * file.array().chunk_elements() + 1], 5u);
}

// It was opened before it was looked at, which waits for a writer.
TEST_F(MappedFileTest, AFifoIsRefusedAtOnce) {
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  std::promise<void> refused;
  std::thread writer([this, &refused] {  // so that the test ends in any case
    if (refused.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready) return;
    ADD_FAILURE() << "it waits for somebody to write";
    close(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  });
  try {
    mappedFile<int> file(path_);
    ADD_FAILURE() << "a fifo was mapped";
  } catch (const ramspan::Error& e) {
    EXPECT_NE(std::string(e.what()).find(path_.string() + ": it is not a regular file"), std::string::npos) << e.what();
  }
  refused.set_value();
  writer.join();
}

// Those that are written together are as many as there is room for.
TEST_F(MappedFileTest, IsWrittenBackBesideOtherPins) {
  constexpr size_t kPart = (256 << 10) / 8;
  Write(16 * kPart);
  mappedFile<uint64_t> file(path_, 0, mappedFile<uint64_t>::kAll, ChunkBytes{256 << 10});
  for (size_t i = 0; i < 16 * kPart; i += kPart) file.array()[i] = 1;
  std::vector<ramspan::managedPtr<char>> others;
  std::vector<ramspan::pinnedBlock<char>> pins;
  try {
    for (;;) {
      others.emplace_back(256 << 10);
      pins.emplace_back(others.back(), 0);
    }
  } catch (const ramspan::OutOfMemory&) {
    ASSERT_GT(pins.size(), 4u);
    pins.pop_back();
  }
  file.writeBack();
  EXPECT_EQ(file.changed_chunks(), 0u);
}

// They counted as written when the system had them. The disk did not, and the next try wrote nothing.
TEST_F(MappedFileTest, WhatIsNotOnDiskStaysChanged) {
  constexpr size_t kPart = (256 << 10) / 8;
  Write(8 * kPart);
  mappedFile<uint64_t> file(path_, 0, mappedFile<uint64_t>::kAll, ChunkBytes{256 << 10});
  for (size_t i = 0; i < 8 * kPart; i += kPart) file.array()[i] = 1;
  ASSERT_EQ(file.changed_chunks(), 8u);
  disk_fails = true;
  EXPECT_THROW(file.writeBack(), ramspan::Error);
  EXPECT_EQ(file.changed_chunks(), 8u);
  disk_fails = false;
  file.writeBack();
  EXPECT_EQ(file.changed_chunks(), 0u);
  EXPECT_EQ(Read()[7 * kPart], 1u);
}

}  // namespace
