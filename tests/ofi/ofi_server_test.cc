// What a memory server may say to a client, and what of it is believed: a server of this host, played by the test.
#include "client/transport/ofi_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/support/heap_watch.h"
#include "tests/support/mapping_flags.h"
#include "tests/support/no_more_files.h"
#include "tests/support/ofi_servers.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Descriptor MemoryFile(uint64_t bytes, int seals, unsigned pages = 0) {
  Descriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | pages));
  RS_CHECK(ftruncate(file.number(), static_cast<off_t>(bytes)) == 0 && fcntl(file.number(), F_ADD_SEALS, seals) == 0, "memfd: %d", errno);
  return file;
}

class NearServer : public testing::Test {
 protected:
  explicit NearServer(uint64_t capacity_bytes = 4 * kMiB) {
    int pair[2];
    RS_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "socketpair %d", errno);
    auto link = std::make_unique<Link>(Descriptor(pair[0]), Handshake::Role::kClient, TestSecret());
    server_ = std::make_unique<Link>(Descriptor(pair[1]), Handshake::Role::kServer, TestSecret());
    for (int i = 0; i < 4; ++i) {
      link->Progress();
      server_->Progress();
    }
    client_ = OfiServer::Make(0, "test", std::move(link), {.instance = 1, .capacity_bytes = capacity_bytes, .near = true}, nullptr).value();
  }

  void Grant(uint64_t lease, uint64_t offset, uint64_t bytes, const Descriptor& file) {
    const WireMessage grant{.type = WireType::kLeaseGrant, .sequence = 1, .lease = lease, .offset = offset, .bytes = bytes};
    server_->Send({.kind = LinkFrame::Kind::kGrant, .record = Encode(grant), .access = {.has_descriptor = true}}, file.number());
  }
  // Whether the client takes what was granted. What it does not take it gives back, and counts the server as full.
  bool HasTaken() {
    client_->Progress();
    const std::optional<WireRecord> record = client_->Receive();
    RS_CHECK(record.has_value(), "no answer to a %s", "grant");
    const bool taken = Decode(*record).value().type == WireType::kLeaseGrant;
    LinkFrame back;
    Descriptor none;
    server_->Progress();
    EXPECT_EQ(server_->Next(&back, &none), !taken) << "what is not taken is given back";
    return taken;
  }
  bool Takes(uint64_t lease, uint64_t offset, uint64_t bytes, const Descriptor& file) {
    Grant(lease, offset, bytes, file);
    return HasTaken();
  }

  // The server takes nothing: the socket is full, and what is sent next needs heap to wait in.
  void FillSocket() {
    for (bool full = false; !full; client_->descriptor(&full)) client_->Send({.type = WireType::kActivity});
  }
  // The lease that the first return among what the server is sent names; 0: there is none.
  uint64_t NextReturned() {
    for (int rounds = 0; rounds < 10'000; ++rounds) {
      client_->Progress();
      server_->Progress();
      LinkFrame frame;
      for (Descriptor none; server_->Next(&frame, &none);) {
        const WireMessage message = Decode(frame.record).value();
        if (message.type == WireType::kLeaseReturn) return message.lease;
      }
      if (server_->is_closed()) break;
    }
    return 0;
  }

  std::unique_ptr<Link> server_;
  std::unique_ptr<OfiServer> client_;
};

TEST_F(NearServer, ALeaseInASealedFileIsTakenAndUsed) {
  ASSERT_TRUE(Takes(1, kMiB, kMiB, MemoryFile(kMiB, kSealed)));
  char out[100], in[100] = {};
  std::fill_n(out, sizeof out, 'x');
  client_->Start({.server = 0, .is_write = true, .buffer = out, .offset = kMiB + 7, .bytes = sizeof out});
  client_->Start({.server = 0, .buffer = in, .offset = kMiB + 7, .bytes = sizeof in});
  std::vector<ServerTransport::Completion> done;
  client_->Collect(&done);
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(done[1].result, StatusCode::kOk);
  EXPECT_EQ(std::string(in, sizeof in), std::string(out, sizeof out));
}

TEST_F(NearServer, WhatIsMappedAsksForHugePages) {
  if (!SystemKnowsHugePages()) GTEST_SKIP() << "none here";
  std::byte* const mapped = client_->description().mapped;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped) % (2 * kMiB), 0u) << "else no lease could have any";
  ASSERT_TRUE(Takes(1, 2 * kMiB, 2 * kMiB, MemoryFile(2 * kMiB, kSealed)));
  EXPECT_PRED1(AsksForHugePages, FlagsOfMapping(mapped + 2 * kMiB));
}

TEST_F(NearServer, ALeaseForWhichThereIsNoDescriptorIsGivenBackAndTheServerStays) {
  const Descriptor file = MemoryFile(kMiB, kSealed), more = MemoryFile(kMiB, kSealed);
  Grant(1, 0, kMiB, file);
  testing::internal::CaptureStderr();
  {
    NoMoreFiles none;
    EXPECT_FALSE(HasTaken());
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("ulimit -n"));
  EXPECT_FALSE(client_->is_dead());
  EXPECT_TRUE(Takes(2, 0, kMiB, more));
}

TEST_F(NearServer, AFileThatCouldShrinkIsRefused) {
  EXPECT_FALSE(Takes(1, 0, kMiB, MemoryFile(kMiB, F_SEAL_GROW)));
  EXPECT_FALSE(Takes(4, 0, kMiB, MemoryFile(kMiB, F_SEAL_GROW | F_SEAL_SEAL)));
  EXPECT_FALSE(Takes(2, 0, kMiB, MemoryFile(kMiB, 0)));
  EXPECT_FALSE(Takes(3, 0, kMiB, MemoryFile(kMiB, kSealed | F_SEAL_FUTURE_WRITE))) << "nobody could write to it";
}

// No huge page is there: mapping it failed after the place had been emptied, and the program's memory came under the server's next grant.
TEST_F(NearServer, AFileOfHugePagesIsRefusedBeforeItsPlaceIsEmptied) {
  constexpr uint64_t kLease = 2 * kMiB;
  EXPECT_FALSE(Takes(1, 0, kLease, MemoryFile(kLease, kSealed, MFD_HUGETLB)));
  // What the kernel would put into a hole: the reservation is there as before.
  void* place = mmap(client_->description().mapped, kLease, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  EXPECT_EQ(place, MAP_FAILED);
  EXPECT_TRUE(Takes(2, 0, kLease, MemoryFile(kLease, kSealed)));
}

TEST_F(NearServer, AFileOfAnotherSizeIsRefused) {
  EXPECT_FALSE(Takes(1, 0, kMiB, MemoryFile(kMiB / 2, kSealed)));
}

TEST_F(NearServer, AGrantBeyondThePoolOrOverAnotherOneIsRefused) {
  const Descriptor file = MemoryFile(2 * kMiB, kSealed);
  EXPECT_FALSE(Takes(1, 3 * kMiB, 2 * kMiB, file));
  ASSERT_TRUE(Takes(2, kMiB, 2 * kMiB, file));
  EXPECT_FALSE(Takes(3, 2 * kMiB, 2 * kMiB, file));
  EXPECT_FALSE(Takes(4, 0, 2 * kMiB, file));
  EXPECT_FALSE(Takes(5, kMiB, 2 * kMiB, file));
}

TEST_F(NearServer, WhatIsNotLeasedCannotBeReached) {
  ASSERT_TRUE(Takes(1, 0, kMiB, MemoryFile(kMiB, kSealed)));
  char byte = 'x';
  client_->Start({.server = 0, .is_write = true, .buffer = &byte, .offset = kMiB, .bytes = 1});
  client_->Send({.type = WireType::kLeaseReturn, .lease = 1});
  client_->Start({.server = 0, .is_write = true, .buffer = &byte, .offset = 0, .bytes = 1});
  std::vector<ServerTransport::Completion> done;
  client_->Collect(&done);
  ASSERT_EQ(done.size(), 2u);
  for (const auto& one : done) EXPECT_EQ(one.result, StatusCode::kUnavailable);
}

// It was taken off the client's books before it was sent, so nobody sent it again: the server kept it lent until the client's end.
TEST_F(NearServer, ALeaseThatIsReturnedWithoutHeapIsReturnedLater) {
  ASSERT_TRUE(Takes(7, 0, kMiB, MemoryFile(kMiB, kSealed)));
  FillSocket();
  bool refused = false;
  {
    const EndingHeap none(0);
    EXPECT_NO_THROW(client_->Send({.type = WireType::kLeaseReturn, .lease = 7}));
    refused = EndingHeap::refused();
  }
  EXPECT_TRUE(refused) << "then this test shows nothing";
  EXPECT_FALSE(client_->HoldsNothing()) << "the server does not know it yet";
  char byte = 'x';
  client_->Start({.server = 0, .is_write = true, .buffer = &byte, .offset = 0, .bytes = 1});
  std::vector<ServerTransport::Completion> done;
  client_->Collect(&done);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].result, StatusCode::kUnavailable) << "it is not used any more";
  EXPECT_EQ(NextReturned(), 7u);
  EXPECT_TRUE(client_->HoldsNothing());
}

// More of them than frames are kept closed the link: a server that lives was lost.
class NearServerOfManyLeases : public NearServer {
 protected:
  static constexpr uint64_t kLeases = 400;
  NearServerOfManyLeases() : NearServer(kLeases * kLeaseGranule) {}
};

TEST_F(NearServerOfManyLeases, WhatIsReturnedAtOnceWaitsUntilTheServerTakesIt) {
  for (uint64_t i = 0; i < kLeases; ++i) ASSERT_TRUE(Takes(i + 1, i * kLeaseGranule, kLeaseGranule, MemoryFile(kLeaseGranule, kSealed)));
  FillSocket();
  for (uint64_t i = 0; i < kLeases; ++i) client_->Send({.type = WireType::kLeaseReturn, .lease = i + 1});
  client_->Progress();
  ASSERT_FALSE(client_->is_dead());
  EXPECT_FALSE(client_->HoldsNothing()) << "the server does not know it yet";
  for (uint64_t i = 0; i < kLeases; ++i) ASSERT_EQ(NextReturned(), i + 1);
  EXPECT_TRUE(client_->HoldsNothing());
}

// What is said to a server that has gone took a place for frames that wait, in destructors, too.
TEST_F(NearServer, OneThatIsGoneNeedsNoHeap) {
  FillSocket();
  client_->Bury("the test");
  const EndingHeap none(0);
  client_->Send({.type = WireType::kBye});
}

// There was no heap for the words of the error, and without them there was no error: the frame was dropped and the link went on.
class NearServerThatErrs : public NearServer, public testing::WithParamInterface<LinkFrame> {};

TEST_P(NearServerThatErrs, EndsWithoutHeap) {
  client_->Progress();  // what the next frame needs is there now
  ASSERT_TRUE(server_->Send(GetParam()));
  try {
    const EndingHeap none(0);
    client_->Progress();
  } catch (const std::bad_alloc&) {  // then the next call says it
  }
  client_->Progress();
  EXPECT_TRUE(client_->is_dead());
}

LinkFrame Answer(const WireMessage& message) { return {.kind = LinkFrame::Kind::kRecord, .record = Encode(message)}; }
const WireMessage kSomeGrant{.type = WireType::kLeaseGrant, .sequence = 1, .lease = 1, .bytes = kMiB};

INSTANTIATE_TEST_SUITE_P(
    Frames, NearServerThatErrs,
    testing::Values(LinkFrame{.kind = static_cast<LinkFrame::Kind>(200)}, LinkFrame{.kind = LinkFrame::Kind::kRecord}, LinkFrame{.kind = LinkFrame::Kind::kUsage}, Answer(kSomeGrant),
                    LinkFrame{.kind = LinkFrame::Kind::kGrant, .record = Encode(kSomeGrant), .access = {.has_descriptor = true}}));

}  // namespace
}  // namespace ramspan
