// Links over a pair of sockets, and the frames on them: what peers may say, what they may not, and what they can cost.
#include "common/link.h"
#include "common/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <random>

#include "tests/support/heap_watch.h"
#include "tests/support/no_more_files.h"
#include "tests/support/ofi_servers.h"

namespace ramspan {
namespace {

struct Sockets {
  Sockets() {
    int pair[2];
    RS_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "socketpair %d", errno);
    client = Descriptor(pair[0]);
    server = Descriptor(pair[1]);
  }
  Descriptor client, server;
};

class LinkPair : public testing::Test {
 protected:
  LinkPair() {
    Sockets sockets;
    client_raw_ = sockets.client.number();
    client = std::make_unique<Link>(std::move(sockets.client), Handshake::Role::kClient, TestSecret());
    server = std::make_unique<Link>(std::move(sockets.server), Handshake::Role::kServer, TestSecret());
    for (int i = 0; i < 4; ++i) {
      client->Progress();
      server->Progress();
    }
  }
  std::optional<LinkFrame> Receive(Link& link, Descriptor* descriptor = nullptr) {
    Descriptor ignored;
    LinkFrame frame;
    link.Progress();
    if (!link.Next(&frame, descriptor == nullptr ? &ignored : descriptor)) return std::nullopt;
    return frame;
  }

  int client_raw_ = -1;
  std::unique_ptr<Link> client, server;
};

LinkFrame Record(uint32_t sequence) {
  return {.kind = LinkFrame::Kind::kRecord, .record = Encode({.type = WireType::kActivity, .sequence = sequence})};
}

TEST_F(LinkPair, FramesArriveInOrderInBothDirections) {
  ASSERT_TRUE(client->is_trusted() && server->is_trusted());
  for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(client->Send(Record(i)));
  ASSERT_TRUE(server->Send({.kind = LinkFrame::Kind::kPong}));
  for (uint32_t i = 0; i < 100; ++i) {
    const std::optional<LinkFrame> frame = Receive(*server);
    ASSERT_TRUE(frame.has_value()) << i;
    EXPECT_EQ(frame->record, Record(i).record);
  }
  EXPECT_FALSE(Receive(*server).has_value());
  EXPECT_EQ(Receive(*client)->kind, LinkFrame::Kind::kPong);
}

// `ramspan ctl stop` said that the connection was closed, where the answer had come together with the end.
TEST_F(LinkPair, AnAnswerIsHeardThoughTheEndOfTheConnectionHasComeToo) {
  Meeting meeting{.link = std::move(client), .introduction = {}};
  ASSERT_TRUE(server->Send({.kind = LinkFrame::Kind::kPong}));
  server.reset();
  LinkFrame frame;
  const Status received = meeting.Receive(&frame, std::chrono::seconds(10));
  ASSERT_TRUE(received.ok()) << received.ToString();
  EXPECT_EQ(frame.kind, LinkFrame::Kind::kPong);
  EXPECT_EQ(meeting.Receive(&frame, std::chrono::seconds(10)).code(), StatusCode::kUnavailable);
}

TEST_F(LinkPair, ADescriptorArrivesWithItsFrame) {
  const Descriptor file(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.number(), 4321), 0);
  LinkFrame grant{.kind = LinkFrame::Kind::kGrant, .record = Record(1).record, .access = {.key = 5, .address = 6, .has_descriptor = true}};
  ASSERT_TRUE(server->Send({.kind = LinkFrame::Kind::kPong}));
  ASSERT_TRUE(server->Send(grant, file.number()));
  Descriptor came;
  EXPECT_EQ(Receive(*client, &came)->kind, LinkFrame::Kind::kPong);
  EXPECT_FALSE(came);
  const std::optional<LinkFrame> frame = Receive(*client, &came);
  ASSERT_TRUE(frame.has_value() && came);
  EXPECT_EQ(frame->access, grant.access);
  EXPECT_EQ(lseek(came.number(), 0, SEEK_END), 4321);
}

TEST_F(LinkPair, AFrameThatPromisesADescriptorAndHasNoneEndsTheLink) {
  ASSERT_TRUE(server->Send({.kind = LinkFrame::Kind::kGrant, .record = Record(1).record, .access = {.has_descriptor = true}}));
  EXPECT_FALSE(Receive(*client).has_value());
  EXPECT_EQ(client->why_closed().code(), StatusCode::kFailedPrecondition);
}

// What `ramspan ctl` and the server say to each other arrives as it was sent, and nothing else passes for it.
TEST_F(LinkPair, OrdersAndReportsArriveAndUnknownOrdersEndTheLink) {
  ASSERT_TRUE(client->Send({.kind = LinkFrame::Kind::kOrder, .order = {.order = ServiceOrder::kQuota, .bytes = 77, .job = "slurm 1"}}));
  EXPECT_EQ(Receive(*server)->order, (ServiceCommand{.order = ServiceOrder::kQuota, .bytes = 77, .job = "slurm 1"}));
  LinkFrame report{.kind = LinkFrame::Kind::kReport};
  report.report = {.of = ServiceReport::Of::kServer, .held_bytes = 5, .lent_bytes = 1u << 30, .clients = 7, .label = "node7:7117"};
  ASSERT_TRUE(server->Send(report));
  EXPECT_EQ(Receive(*client)->report, report.report);
  EXPECT_EQ(server->peer_role(), Handshake::Role::kClient);
  ASSERT_TRUE(client->Send({.kind = LinkFrame::Kind::kOrder, .order = {.order = static_cast<ServiceOrder>(kServiceOrderMax + 1)}}));
  EXPECT_FALSE(Receive(*server).has_value());
  EXPECT_TRUE(server->is_closed());
}

// A process at its limit of open files: the kernel drops the descriptor and says so.
TEST_F(LinkPair, ADescriptorForWhichThisProcessHasNoNumberCostsThatFrameOnly) {
  const Descriptor file(memfd_create("test", MFD_CLOEXEC));
  const LinkFrame grant{.kind = LinkFrame::Kind::kGrant, .record = Record(1).record, .access = {.has_descriptor = true}};
  ASSERT_TRUE(server->Send(grant, file.number()));
  Descriptor first, second;
  {
    NoMoreFiles none;
    ASSERT_TRUE(Receive(*client, &first).has_value()) << client->why_closed().message();
  }
  EXPECT_FALSE(first);
  ASSERT_TRUE(server->Send(grant, file.number()));
  ASSERT_TRUE(Receive(*client, &second).has_value());
  EXPECT_TRUE(second) << "the next one is its own frame's";
  EXPECT_FALSE(client->is_closed());
}

TEST_F(LinkPair, ADescriptorThatCannotBeKeptUntilItIsSentCostsThatFrameOnly) {
  const Descriptor file(memfd_create("test", MFD_CLOEXEC));
  uint32_t sent = 0;
  while (!server->wants_to_write()) ASSERT_TRUE(server->Send(Record(sent++)));
  const LinkFrame grant{.kind = LinkFrame::Kind::kGrant, .record = Record(1).record, .access = {.has_descriptor = true}};
  {
    NoMoreFiles none;
    EXPECT_FALSE(server->Send(grant, file.number()));
  }
  EXPECT_FALSE(server->is_closed());
  ASSERT_TRUE(server->Send(Record(sent++)));
  for (uint32_t i = 0; i < sent; ++i) {
    server->Progress();
    const std::optional<LinkFrame> frame = Receive(*client);
    ASSERT_TRUE(frame.has_value()) << i << client->why_closed().message();
    ASSERT_EQ(frame->record, Record(i).record);
  }
}

// Somebody in the middle, who can change, repeat and insert bytes but does not know the secret.
TEST_F(LinkPair, BytesThatAreNotThePeersEndTheLink) {
  std::array<std::byte, 100> forged{};
  forged[0] = std::byte{98};
  ASSERT_EQ(send(client_raw_, forged.data(), forged.size(), 0), 100);
  EXPECT_FALSE(Receive(*server).has_value());
  EXPECT_THAT(server->why_closed().message(), testing::HasSubstr("broken seal"));
}

TEST_F(LinkPair, AFrameThatIsTooLongEndsTheLinkBeforeItHasCome) {
  const std::array<std::byte, 2> length{std::byte{0xff}, std::byte{0xff}};
  ASSERT_EQ(send(client_raw_, length.data(), 2, 0), 2);
  EXPECT_FALSE(Receive(*server).has_value());
  EXPECT_TRUE(server->is_closed());
}

TEST_F(LinkPair, APeerThatTakesNothingLosesTheLinkBeforeItCostsMemory) {
  int sent = 0;
  while (client->Send(Record(0)) && sent < 100'000) ++sent;
  EXPECT_LT(sent, 100'000);
  EXPECT_THAT(client->why_closed().message(), testing::HasSubstr("does not take"));
}

TEST_F(LinkPair, WhatDidNotFitIsSentLaterInOrder) {
  uint32_t sent = 0;
  while (!client->wants_to_write()) ASSERT_TRUE(client->Send(Record(sent++)));
  for (int more = 0; more < 50; ++more) ASSERT_TRUE(client->Send(Record(sent++)));
  for (uint32_t i = 0; i < sent; ++i) {
    client->Progress();
    const std::optional<LinkFrame> frame = Receive(*server);
    ASSERT_TRUE(frame.has_value()) << i;
    ASSERT_EQ(frame->record, Record(i).record);
  }
}

TEST(Link, AStrangerGetsNothingButAChallenge) {
  Sockets sockets;
  Link server(std::move(sockets.server), Handshake::Role::kServer, TestSecret());
  std::array<std::byte, 4096> garbage;
  garbage.fill(std::byte{0x5a});
  ASSERT_GT(send(sockets.client.number(), garbage.data(), garbage.size(), 0), 0);
  server.Progress();
  EXPECT_TRUE(server.is_closed());
  EXPECT_FALSE(server.is_trusted());
  EXPECT_LE(recv(sockets.client.number(), garbage.data(), garbage.size(), MSG_DONTWAIT), ssize_t{kHelloBytes});
}

// ---- Frames ----

std::vector<LinkFrame> OneOfEachKind() {
  LinkFrame introduction{.kind = LinkFrame::Kind::kIntroduction};
  introduction.introduction.instance = 7;
  introduction.introduction.capacity_bytes = kPoolBytesMax;
  introduction.introduction.near = true;
  introduction.introduction.fabric = {11, 1, 2, std::vector<std::byte>(16, std::byte{9})};
  introduction.introduction.local_name = "@name";
  introduction.introduction.label.assign(kFrameTextMax, 'x');
  introduction.introduction.job = "slurm 4711";
  LinkFrame report{.kind = LinkFrame::Kind::kReport}, give_back{.kind = LinkFrame::Kind::kGiveBack}, usage{.kind = LinkFrame::Kind::kUsage};
  report.report = {ServiceReport::Of::kQuota, 1, 2, 3, 4, true, {5, 6, 7, 8}, "label", "job"};
  give_back.bytes = 1 << 20;
  usage.usage = {.written_bytes = 1, .read_bytes = 2};
  const LinkFrame order{.kind = LinkFrame::Kind::kOrder, .order = {ServiceOrder::kQuota, 9, "job"}};
  return {introduction, order, report, {.kind = LinkFrame::Kind::kDraining, .draining = true}, give_back, usage, Record(3), {.kind = LinkFrame::Kind::kGrant, .record = Record(4).record, .access = {1, 2, true}}, {.kind = LinkFrame::Kind::kPing},
          {.kind = LinkFrame::Kind::kPong}};
}

TEST(LinkFrame, EveryKindSurvivesARoundTrip) {
  for (const LinkFrame& frame : OneOfEachKind()) {
    FrameBuffer buffer;
    const size_t length = EncodeFrame(frame, &buffer);
    LinkFrame back;
    ASSERT_TRUE(DecodeFrame(std::span(buffer).first(length), &back).ok());
    EXPECT_EQ(back.kind, frame.kind);
    EXPECT_EQ(back.introduction, frame.introduction);
    EXPECT_EQ(back.access, frame.access);
    EXPECT_EQ(back.order, frame.order);
    EXPECT_EQ(back.report, frame.report);
    EXPECT_EQ(back.usage, frame.usage);
    EXPECT_EQ(back.draining, frame.draining);
    EXPECT_EQ(back.bytes, frame.bytes);
    if (frame.kind == LinkFrame::Kind::kRecord || frame.kind == LinkFrame::Kind::kGrant) {
      EXPECT_EQ(back.record, frame.record);
    }
    for (size_t cut = 0; cut < length; ++cut) EXPECT_FALSE(DecodeFrame(std::span(buffer).first(cut), &back).ok()) << cut;
    EXPECT_FALSE(DecodeFrame(std::span(buffer).first(length + 1), &back).ok());
  }
}

// It was sealed, but there was no heap for it where the socket was full: the peer took the next one for a forgery.
TEST_F(LinkPair, AFrameForWhichThereIsNoHeapIsNotSealed) {
  uint32_t sent = 0;
  while (!client->wants_to_write()) ASSERT_TRUE(client->Send(Record(sent++)));
  int refused = 0;
  for (int i = 0; i < 5; ++i) {
    try {
      const EndingHeap none(0);
      sent += client->Send(Record(sent));
    } catch (const std::bad_alloc&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  ASSERT_TRUE(client->Send(Record(sent++)));
  uint32_t received = 0;
  while (received < sent) {
    const std::optional<LinkFrame> frame = Receive(*server);
    if (!frame) {
      ASSERT_FALSE(server->is_closed()) << server->why_closed().message();
      client->Progress();
      continue;
    }
    EXPECT_EQ(Decode(frame->record).value().sequence, received++);
  }
}

// Their number was noted in a list that could not grow: they were open for ever, and the frames after them without theirs.
TEST_F(LinkPair, DescriptorsThatComeWithoutHeapAreKept) {
  LinkFrame grant{.kind = LinkFrame::Kind::kGrant, .record = Encode({.type = WireType::kLeaseGrant, .lease = 1, .bytes = 4096})};
  grant.access.has_descriptor = true;
  const Descriptor memory(memfd_create("ramspan-link-test", MFD_CLOEXEC));
  for (int i = 0; i < 300; ++i) {  // the list has taken more memory by then
    ASSERT_TRUE(server->Send(grant, memory.number()));
    const EndingHeap none(0);
    LinkFrame frame;
    Descriptor descriptor;
    client->Progress();
    const bool whole = client->Next(&frame, &descriptor) && descriptor;
    const UnwatchedHeap unwatched;
    ASSERT_TRUE(whole) << i;
  }
}

TEST(LinkFrameFuzz, WhateverDecodesIsWithinBoundsAndEncodesToTheSameBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<LinkFrame> kinds = OneOfEachKind();
  int good = 0;
  for (int i = 0; i < 50'000; ++i) {
    FrameBuffer buffer, again;
    size_t length = EncodeFrame(kinds[random() % kinds.size()], &buffer);
    for (unsigned changes = random() % 3; changes > 0; --changes) buffer[random() % std::min<size_t>(length, 60)] = static_cast<std::byte>(random());
    if (random() % 8 == 0) length = random() % buffer.size();
    LinkFrame frame;
    if (!DecodeFrame(std::span(buffer).first(length), &frame).ok()) continue;
    ++good;
    ASSERT_LE(frame.introduction.label.size(), kFrameTextMax);
    ASSERT_LE(frame.introduction.capacity_bytes, kPoolBytesMax);
    ASSERT_EQ(EncodeFrame(frame, &again), length);
    ASSERT_TRUE(std::equal(buffer.begin(), buffer.begin() + static_cast<ptrdiff_t>(length), again.begin()));
  }
  EXPECT_GT(good, 10'000);
}

}  // namespace
}  // namespace ramspan
