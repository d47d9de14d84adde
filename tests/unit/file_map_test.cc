// FileMap: which bytes a slot names, and what it keeps for them.
#include "client/swap/file_map.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace ramspan {
namespace {

class FileMapTest : public testing::Test {
 protected:
  ~FileMapTest() override {
    for (const std::string& path : paths_) std::filesystem::remove(path);
  }

  std::shared_ptr<const MappedFile> Make(const std::string& contents) {
    std::string path = testing::TempDir() + "ramspan-file-map-" + std::to_string(getpid()) + "-" + std::to_string(paths_.size());
    std::ofstream(path, std::ios::binary) << contents;
    paths_.push_back(path);
    return MappedFile::Open(path).value();
  }
  SlotRef Map(const std::shared_ptr<const MappedFile>& file, uint64_t offset) { return map_.Map(file, offset).value(); }
  std::string Read(SlotRef slot, size_t bytes) {
    std::string text(bytes, '?');
    IoRequest request{.slot = slot, .buffer = text.data(), .bytes = bytes};
    IoRequest *batch[] = {&request}, *done[1];
    map_.SubmitRead(batch);
    EXPECT_EQ(map_.Poll(done, {}), 1u);
    EXPECT_EQ(request.result, StatusCode::kOk);
    return text;
  }

  std::vector<std::string> paths_;
  FileMap map_;
};

TEST_F(FileMapTest, ASlotIsWhereItWasMapped) {
  const auto first = Make("0123456789"), second = Make("abcdef");
  const SlotRef a = Map(first, 0), b = Map(second, 0), c = Map(second, 5), d = Map(first, 9);
  EXPECT_EQ(Read(a, 10), "0123456789");
  EXPECT_EQ(Read(b, 6), "abcdef");
  EXPECT_EQ(Read(c, 1), "f");
  EXPECT_EQ(Read(d, 1), "9");
  for (const SlotRef slot : {a, b, c}) map_.Free(slot, 1);
  EXPECT_EQ(Read(d, 1), "9");
  const SlotRef again = Map(second, 1);
  EXPECT_EQ(Read(again, 5), "bcdef");
  map_.Free(d, 1);
  EXPECT_EQ(Read(again, 5), "bcdef");
  map_.Free(again, 5);
}

TEST_F(FileMapTest, AFileIsClosedWithItsLastSlot) {
  auto file = Make("0123456789");
  const std::weak_ptr<const MappedFile> open = file;
  const SlotRef a = Map(file, 1), b = Map(file, 1);
  file.reset();
  map_.Free(a, 1);
  EXPECT_EQ(Read(b, 2), "12");
  map_.Free(b, 1);
  EXPECT_TRUE(open.expired());
}

// 32 bytes a chunk, which nobody was asked for: mapping 33 000 chunks took all of a limit of 4 MiB, for ever, and nothing that was there could be read.
TEST_F(FileMapTest, KeepsNothingForAChunk) {
  const auto file = Make(std::string(100'000, 'x'));
  std::vector<SlotRef> slots;
  for (uint64_t i = 0; i < 100'000; ++i) slots.push_back(Map(file, i));
  EXPECT_LT(map_.stats().metadata_bytes, 4096u);
  for (const SlotRef slot : slots) map_.Free(slot, 1);
}

// Files without contents on disk, as large as they like. The addresses of those that went are used again.
TEST_F(FileMapTest, FilesThatComeAndGoForYearsFindAddresses) {
  constexpr uint64_t kLarge = uint64_t{1} << 42;
  const auto make = [&] {
    const auto file = Make("");
    std::error_code error;
    std::filesystem::resize_file(paths_.back(), kLarge, error);
    return error ? nullptr : MappedFile::Open(paths_.back()).value();
  };
  const auto kept = make(), other = make();
  if (kept == nullptr || other == nullptr) GTEST_SKIP() << "the file system of " << testing::TempDir() << " has no files of " << kLarge << " bytes";
  SlotRef held = Map(kept, kLarge - 1);
  // Each time the file that was mapped first goes, so that the addresses wander through the space, and around its end.
  for (int n = 0; n < 1 << 19; ++n) {
    const auto& next = n % 2 == 0 ? other : kept;
    const Result<SlotRef> slot = map_.Map(next, kLarge - 1);
    ASSERT_TRUE(slot.ok()) << n;
    ASSERT_NE(slot.value(), held);
    ASSERT_LT(slot.value().bits, uint64_t{1} << 59);
    map_.Free(held, 1);
    held = slot.value();
  }
  map_.Free(held, 1);
}

}  // namespace
}  // namespace ramspan
