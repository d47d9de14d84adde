// Which side of a copy RemoteSwap hashes: the frame, in both directions, because others can store into a server's pool (common/checksum.h).
// With the other side a stray store during the copy gives a checksum that is right and bytes that are wrong, silently.
//
// Here the copy itself makes that store: one physical page stands at two addresses, so that what is written into one changes the other
// while the copy is under way. No second thread, no luck.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "client/swap/remote_swap.h"
#include "common/check.h"
#include "common/checksum.h"
#include "tests/support/forwarding_transport.h"
#include "tests/support/local_transport.h"

namespace ramspan {
namespace {

constexpr size_t kPage = 4096, kChunk = 2 * kPage;
constexpr uint64_t kCopyPool = uint64_t{8} << 20;

// One near server, whose pool is a memory file of this test's.
class PoolInAFile final : public ForwardingTransport {
 public:
  explicit PoolInAFile(std::unique_ptr<ServerTransport> to) : ForwardingTransport(std::move(to)), file_(memfd_create("pool", MFD_CLOEXEC)) {
    RS_CHECK(file_ >= 0 && ftruncate(file_, kCopyPool) == 0, "no memory file of %d", file_);
    pool_ = static_cast<std::byte*>(mmap(nullptr, kCopyPool, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    RS_CHECK(pool_ != MAP_FAILED, "no mapping of %d", file_);
  }
  ~PoolInAFile() override {
    munmap(pool_, kCopyPool);
    close(file_);
  }
  Server server(uint32_t number) const override {
    Server server = to_const().server(number);
    server.mapped = pool_;
    return server;
  }
  std::byte* pool() const { return pool_; }
  // Page `page` of the file also stands at this address from now on.
  void AlsoAt(std::byte* address, size_t page) const {
    RS_CHECK(mmap(address, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(page * kPage)) == address,
             "no second mapping of page %zu", page);
  }

 private:
  const int file_;
  std::byte* pool_;
};

class ServerCopy : public testing::Test {
 protected:
  ServerCopy() : servers_({.pool_bytes = kCopyPool, .near = 1}), transport_(servers_.Connect(0)), tier_(transport_) {
    frame_ = static_cast<std::byte*>(mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    RS_CHECK(frame_ != MAP_FAILED, "no frame of %zu", kChunk);
    slot_ = tier_.Reserve(kChunk).value();
    std::memset(frame_, 'A', kPage);
    std::memset(frame_ + kPage, 'B', kPage);
    Transfer(true);
    place_ = static_cast<std::byte*>(memmem(transport_.pool(), kCopyPool, frame_, kChunk));
    RS_CHECK(place_ != nullptr, "%s", "the chunk is not in the pool");
  }
  ~ServerCopy() override {
    tier_.Free(slot_, kChunk);
    munmap(frame_, kChunk);
  }
  // The checksum that comes with it.
  uint64_t Transfer(bool write) {
    IoRequest request{.slot = slot_, .buffer = frame_, .bytes = kChunk};
    IoRequest* batch[] = {&request};
    write ? tier_.SubmitWrite(batch) : tier_.SubmitRead(batch);
    IoRequest* done[1] = {};
    EXPECT_EQ(tier_.Poll(done, std::chrono::microseconds(0)), 1u);
    EXPECT_EQ(request.result, StatusCode::kOk);
    return request.checksum;
  }
  size_t PageOf(const std::byte* in_pool) const { return static_cast<size_t>(in_pool - transport_.pool()) / kPage; }

  LocalServers servers_;
  PoolInAFile transport_;
  RemoteSwap tier_;
  std::byte* frame_ = nullptr;
  std::byte* place_ = nullptr;  // of the slot in the pool
  SlotRef slot_;
};

// The frame's second page is the slot's first one: when that has been read it is written over.
TEST_F(ServerCopy, OfAReadIsWhatTheProgramGets) {
  const uint64_t written = Checksum(place_, kChunk);
  transport_.AlsoAt(frame_ + kPage, PageOf(place_));
  const uint64_t checksum = Transfer(false);
  ASSERT_NE(Checksum(place_, kChunk), Checksum(frame_, kChunk)) << "the source has not changed during the copy";
  EXPECT_EQ(checksum, Checksum(frame_, kChunk));
  EXPECT_EQ(Checksum(frame_, kChunk), written);  // here the bytes are right; it is the source that is not any more
}

// Both pages of the slot are one: the second half is stored over the first one.
TEST_F(ServerCopy, OfAWriteIsWhatTheProgramHad) {
  transport_.AlsoAt(place_ + kPage, PageOf(place_));
  const uint64_t checksum = Transfer(true);
  ASSERT_NE(Checksum(place_, kChunk), Checksum(frame_, kChunk)) << "what is there is what was written";
  EXPECT_EQ(checksum, Checksum(frame_, kChunk));
  // So the next read brings another checksum, and is found to be wrong.
  EXPECT_NE(Transfer(false), checksum);
}

}  // namespace
}  // namespace ramspan
