#include "memserver/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memserver/session.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

constexpr MemServer::Clock::time_point kNow{std::chrono::hours(1)};

enum class SessionEvent { kRequest, kBad, kBye, kDeath };

// Brings a session into a state by the table's own transitions.
ClientSession SessionIn(SessionState state) {
  ClientSession session;
  if (state == SessionState::kJoining) return session;
  if (state == SessionState::kActive) {
    EXPECT_TRUE(session.NoteRequest());
    return session;
  }
  EXPECT_TRUE(session.BeginDrain());
  if (state == SessionState::kGone) session.FinishDrain();
  return session;
}

TEST(ClientSession, TheTransitionTableIsAsWritten) {
  using enum SessionState;
  struct Row {
    SessionState from;
    SessionEvent event;
    bool accepted;
    SessionState to;
  };
  const std::vector<Row> table = {
      {kJoining, SessionEvent::kRequest, true, kActive},     {kJoining, SessionEvent::kBad, true, kJoining},
      {kJoining, SessionEvent::kBye, true, kDraining},       {kActive, SessionEvent::kRequest, true, kActive},
      {kActive, SessionEvent::kBad, true, kActive},          {kActive, SessionEvent::kBye, true, kDraining},
      {kDraining, SessionEvent::kRequest, false, kDraining}, {kDraining, SessionEvent::kBad, true, kDraining},
      {kDraining, SessionEvent::kBye, false, kDraining},     {kGone, SessionEvent::kRequest, false, kGone},
      {kGone, SessionEvent::kBad, true, kGone},              {kGone, SessionEvent::kBye, false, kGone},
      {kJoining, SessionEvent::kDeath, true, kGone},         {kActive, SessionEvent::kDeath, true, kGone},
      {kDraining, SessionEvent::kDeath, false, kDraining},   {kGone, SessionEvent::kDeath, false, kGone},
  };
  for (const Row& row : table) {
    ClientSession session = SessionIn(row.from);
    const bool accepted = row.event == SessionEvent::kRequest ? session.NoteRequest()
                          : row.event == SessionEvent::kBye   ? session.BeginDrain()
                          : row.event == SessionEvent::kDeath ? session.NoteDeath()
                                                       : session.NoteBadMessage();
    const std::string name =
        std::string(SessionStateName(row.from)) + " event " + std::to_string(static_cast<int>(row.event));
    EXPECT_EQ(accepted, row.accepted) << name;
    EXPECT_EQ(session.state(), row.to) << name;
  }
}

TEST(SessionDeathTest, OnlyADrainingSessionCanEnd) {
  for (const SessionState state : {SessionState::kJoining, SessionState::kActive, SessionState::kGone}) {
    ClientSession session = SessionIn(state);
    EXPECT_DEATH(session.FinishDrain(), "cannot end") << SessionStateName(state);
  }
}

TEST(ClientSession, BadMessagesAreLoggedEverMoreRarely) {
  ClientSession session;
  std::vector<uint64_t> logged;
  for (uint64_t i = 1; i <= 100; ++i) {
    if (session.NoteBadMessage()) logged.push_back(i);
  }
  EXPECT_EQ(logged, (std::vector<uint64_t>{1, 2, 4, 8, 16, 32, 64}));
}

WireRecord Request(uint64_t bytes, uint32_t sequence = 5) {
  return Encode({.type = WireType::kLeaseRequest, .sequence = sequence, .bytes = bytes, .minimum_bytes = kLeaseGranule});
}

TEST(MemServer, AnswersARequestWithALeaseAndWithFullWhenThereIsNone) {
  MemServer server({.pool_bytes = 4 * kMiB, .clients = 1});
  uint64_t granted = 0;
  for (uint32_t sequence = 1;; ++sequence) {
    const std::optional<WireMessage> answer = server.Handle(0, Request(4 * kMiB, sequence), kNow);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->sequence, sequence);
    EXPECT_TRUE(Decode(Encode(*answer)).ok());
    if (answer->type == WireType::kFull) break;
    ASSERT_EQ(answer->type, WireType::kLeaseGrant);
    granted += answer->bytes;
  }
  EXPECT_EQ(granted, 4 * kMiB);
}

TEST(MemServer, ALeaseThatCannotBeMadeResidentIsNotGranted) {
  MemServer server({.pool_bytes = 4 * kMiB, .clients = 1, .provide = [](const Lease&) { return false; }});
  const std::optional<WireMessage> answer = server.Handle(0, Request(kMiB), kNow);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, WireType::kFull);
  EXPECT_EQ(answer->flags, static_cast<uint32_t>(FullReason::kNoMemory));
  EXPECT_EQ(server.leases().free_bytes(), 4 * kMiB);
}

TEST(MemServer, ByeGivesTheLeasesBackAndTheLastOneEndsTheService) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 2});
  ASSERT_TRUE(server.Handle(0, Request(kMiB), kNow).has_value());
  const WireRecord bye = Encode({.type = WireType::kBye, .flags = kByeTogether});
  server.Handle(0, bye, kNow);
  EXPECT_EQ(server.leases().free_bytes(), 8 * kMiB);
  EXPECT_FALSE(server.Done());
  server.Handle(0, bye, kNow);  // said twice: counted bad, ends nothing
  EXPECT_FALSE(server.Done());
  EXPECT_EQ(server.session(0).bad_messages(), 1u);
  server.Handle(1, bye, kNow);
  ASSERT_TRUE(server.Done());
  EXPECT_TRUE(server.LeaveTogether().value());
  server.Finish();
  EXPECT_EQ(server.session(0).state(), SessionState::kGone);
}

TEST(MemServer, ClientsThatAllKnowOfADeathDoNotLeaveTogether) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 2});
  server.Handle(0, Encode({.type = WireType::kBye}), kNow);
  server.Handle(1, Encode({.type = WireType::kBye}), kNow);
  ASSERT_TRUE(server.Done());
  EXPECT_FALSE(server.LeaveTogether().value());
}

// The server left, with status 0, and who had said that all live waited for it for ever.
TEST(MemServer, ClientsThatContradictEachOtherInTheirByesAreAnError) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 2});
  server.Handle(0, Encode({.type = WireType::kBye, .flags = kByeTogether}), kNow);
  server.Handle(1, Encode({.type = WireType::kBye}), kNow);
  ASSERT_TRUE(server.Done());
  EXPECT_EQ(server.LeaveTogether().status().code(), StatusCode::kFailedPrecondition);
}

TEST(MemServer, AClientThatDiesGivesItsLeasesBackAndIsNotWaitedFor) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 2});
  ASSERT_TRUE(server.Handle(0, Request(kMiB), kNow).has_value());
  server.NoteDeath(0);
  server.NoteDeath(0);
  EXPECT_EQ(server.leases().free_bytes(), 8 * kMiB);
  EXPECT_FALSE(server.Handle(0, Request(kMiB), kNow).has_value());
  EXPECT_FALSE(server.Done());
  server.Handle(1, Encode({.type = WireType::kBye}), kNow);
  ASSERT_TRUE(server.Done());
  EXPECT_FALSE(server.LeaveTogether().value());
  server.Finish();
}

// Dropped answers stayed leased: nobody could use that memory any more.
TEST(MemServer, AGrantThatCannotBeSentIsFreeAgain) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 1});
  const std::optional<WireMessage> answer = server.Handle(0, Request(kMiB), kNow);
  ASSERT_TRUE(answer.has_value());
  server.Withdraw(0, *answer);
  EXPECT_EQ(server.leases().free_bytes(), 8 * kMiB);
}

TEST(MemServer, ARequestThatIsSentAgainGetsTheSameLease) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 2});
  const std::optional<WireMessage> first = server.Handle(0, Request(kMiB, 7), kNow);
  const std::optional<WireMessage> again = server.Handle(0, Request(kMiB, 7), kNow);
  ASSERT_TRUE(first.has_value() && again.has_value());
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(server.leases().leases(), 1u);
  server.Withdraw(0, *again);  // the first one may have arrived
  EXPECT_EQ(server.leases().leases(), 1u);
  EXPECT_NE(server.Handle(1, Request(kMiB, 7), kNow)->lease, first->lease) << "another client's";
  EXPECT_NE(server.Handle(0, Request(kMiB, 8), kNow)->lease, first->lease);
}

// ---- Fair shares ----

// A server whose first client holds all that it lends, in leases of 32 MiB.
class HoggedServer {
 public:
  explicit HoggedServer(uint64_t pool_bytes)
      : server_({.pool_bytes = pool_bytes, .ask_back = [this](uint32_t client, uint64_t bytes) { asked_[client] = bytes; }}) {
    server_.NoteArrival(0, "hog");
    while (const uint64_t lease = Ask(0, 32 * kMiB, kNow)) hogs_.push_back(lease);
  }

  // The lease; 0: refused.
  uint64_t Ask(uint32_t client, uint64_t bytes, MemServer::Clock::time_point now) {
    const std::optional<WireMessage> answer = server_.Handle(client, Request(bytes, ++sequence_), now);
    return answer && answer->type == WireType::kLeaseGrant ? answer->lease : 0;
  }

  void GiveBackOne(MemServer::Clock::time_point now) {
    server_.Handle(0, Encode({.type = WireType::kLeaseReturn, .sequence = ++sequence_, .lease = hogs_.back()}), now);
    hogs_.pop_back();
    returned_ += 32 * kMiB;
  }
  void GiveBackWhatIsAskedFor(MemServer::Clock::time_point now) {
    while (returned_ < asked_[0] && !hogs_.empty()) GiveBackOne(now);
  }
  // What the client is to have returned in all, as it was told last.
  uint64_t asked(uint32_t client) { return asked_[client]; }
  MemServer& server() { return server_; }

 private:
  uint32_t sequence_ = 0;
  uint64_t returned_ = 0;  // by the hog
  std::map<uint32_t, uint64_t> asked_;
  MemServer server_;
  std::vector<uint64_t> hogs_;
};

// What was promised to each was more than what was asked back for all: none of them got a byte.
TEST(MemServer, ClientsThatComeLateTogetherGetTheirShare) {
  for (const uint64_t pool : {uint64_t{1} << 30, uint64_t{8} << 30}) {
    for (const uint32_t late : {1u, 2u, 4u, 16u}) {
      for (const bool one_job : {true, false}) {
        HoggedServer hogged(pool);
        for (uint32_t client = 1; client <= late; ++client) hogged.server().NoteArrival(client, one_job ? "late" : "");
        const LeaseTable& leases = hogged.server().leases();
        const uint64_t share = one_job ? pool / 2 : pool / (late + 1) * late;
        for (int round = 0; round < 2000 && pool - leases.HeldBy(0) < share; ++round) {
          const MemServer::Clock::time_point now = kNow + std::chrono::milliseconds(20) * round;
          for (uint32_t client = 1; client <= late; ++client) hogged.Ask(client, 8 * kMiB, now);
          hogged.GiveBackWhatIsAskedFor(now);
        }
        EXPECT_LE(leases.HeldBy(0), pool - share + 32 * kMiB) << late << (one_job ? " of one job" : " jobs") << " in " << (pool >> 20);
        EXPECT_LE(leases.free_bytes(), 32 * kMiB + late * 8 * kMiB);
      }
    }
  }
}

// Only a want of another one ended it, and who is above its share has none.
TEST(MemServer, AWantThatIsOverHoldsNothingBack) {
  HoggedServer hogged(256 * kMiB);
  hogged.server().NoteArrival(1);
  EXPECT_EQ(hogged.Ask(1, 32 * kMiB, kNow), 0u);
  hogged.GiveBackOne(kNow);
  EXPECT_NE(hogged.Ask(1, 32 * kMiB, kNow), 0u) << "no reserve is kept for it any more";
  EXPECT_EQ(hogged.Ask(1, 32 * kMiB, kNow), 0u);
  hogged.GiveBackOne(kNow);
  EXPECT_EQ(hogged.Ask(0, 32 * kMiB, kNow + std::chrono::seconds(5)), 0u) << "promised to the other one";
  EXPECT_NE(hogged.Ask(0, 32 * kMiB, kNow + std::chrono::seconds(11)), 0u) << "which has not come for it";
}

TEST(MemServer, WhatIsWantedNoMoreIsNotAskedForAnyMore) {
  HoggedServer hogged(256 * kMiB);
  hogged.server().NoteArrival(1);
  EXPECT_EQ(hogged.Ask(1, 32 * kMiB, kNow), 0u);
  EXPECT_EQ(hogged.asked(0), 32 * kMiB);
  hogged.server().Upkeep(kNow + std::chrono::seconds(2));
  EXPECT_EQ(hogged.asked(0), 32 * kMiB);
  hogged.GiveBackOne(kNow + std::chrono::seconds(3));
  EXPECT_NE(hogged.Ask(1, 32 * kMiB, kNow + std::chrono::seconds(3)), 0u);
  EXPECT_EQ(hogged.Ask(1, 32 * kMiB, kNow + std::chrono::seconds(3)), 0u);
  EXPECT_EQ(hogged.asked(0), 64 * kMiB) << "in all";
  hogged.server().NoteDeath(1);
  hogged.server().Upkeep(kNow + std::chrono::seconds(4));
  EXPECT_EQ(hogged.asked(0), 32 * kMiB) << "which it has returned";
  hogged.server().SetLent(64 * kMiB, kNow);
  EXPECT_EQ(hogged.asked(0), 192 * kMiB);
  hogged.server().SetLent(256 * kMiB, kNow);
  EXPECT_EQ(hogged.asked(0), 32 * kMiB);
}

// A client with no other place for its data gives nothing back, and was waited for as long as it was here.
TEST(MemServer, WhoGivesNothingBackIsSparedAndAnotherOneIsAsked) {
  HoggedServer hogged(256 * kMiB);
  hogged.server().NoteArrival(1);
  while (hogged.server().leases().HeldBy(1) < 96 * kMiB) {
    hogged.Ask(1, 32 * kMiB, kNow);
    hogged.GiveBackWhatIsAskedFor(kNow);
  }
  hogged.server().NoteArrival(2);
  EXPECT_EQ(hogged.Ask(2, 16 * kMiB, kNow), 0u);
  const uint64_t before = hogged.asked(0);
  EXPECT_EQ(hogged.asked(1), 0u);
  for (int second = 1; second < 15; ++second) {
    hogged.Ask(2, 16 * kMiB, kNow + std::chrono::seconds(second));
    hogged.server().Upkeep(kNow + std::chrono::seconds(second));
  }
  EXPECT_LT(hogged.asked(0), before);
  EXPECT_EQ(hogged.asked(1), hogged.server().leases().ToBeReturnedBy(1));
  EXPECT_GT(hogged.asked(1), 0u);
}

// It was asked for once: who had no other place in those ten seconds kept it, whatever came later.
TEST(MemServer, WhatIsAboveAQuotaOrAboveWhatIsLentIsAskedForAgain) {
  for (const bool by_quota : {true, false}) {
    HoggedServer hogged(256 * kMiB);
    MemServer::Clock::time_point now = kNow;
    if (by_quota) hogged.server().SetQuota("", 64 * kMiB, now);
    else hogged.server().SetLent(64 * kMiB, now);
    EXPECT_EQ(hogged.asked(0), 192 * kMiB);
    const auto becomes = [&](uint64_t asked, std::chrono::seconds within) {
      const MemServer::Clock::time_point end = now + within + std::chrono::seconds(2);
      for (; now < end && hogged.asked(0) != asked; now += std::chrono::milliseconds(100)) hogged.server().Upkeep(now);
      return hogged.asked(0) == asked;
    };
    EXPECT_TRUE(becomes(0, LeaseTable::kGivesWithin)) << "it is spared";
    EXPECT_TRUE(becomes(192 * kMiB, LeaseTable::kSparedFor)) << (by_quota ? "by a quota" : "by shrink");
  }
}

TEST(MemServer, RequestsAfterByeGetNothing) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 2});
  server.Handle(0, Encode({.type = WireType::kBye, .flags = kByeTogether}), kNow);
  EXPECT_FALSE(server.Handle(0, Request(kMiB), kNow).has_value());
  EXPECT_EQ(server.leases().leases(), 0u);
}

TEST(MemServer, AServersOwnMessagesAreRefusedFromAClient) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 1});
  EXPECT_FALSE(
      server.Handle(0, Encode({.type = WireType::kLeaseGrant, .lease = 1, .bytes = kMiB}), kNow).has_value());
  EXPECT_EQ(server.session(0).state(), SessionState::kJoining);
  EXPECT_EQ(server.session(0).bad_messages(), 1u);
}

TEST(MemServer, ClientsMayComeLaterAndTakeNumbersOfThoseWhoLeft) {
  std::vector<uint64_t> reclaimed;
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 0, .reclaim = [&](const Lease& lease) { reclaimed.push_back(lease.id); }});
  server.NoteArrival(0);
  server.NoteArrival(1);
  const std::optional<WireMessage> first = server.Handle(0, Request(kMiB, 9), kNow);
  ASSERT_TRUE(first.has_value() && first->type == WireType::kLeaseGrant);
  server.NoteDeath(0);
  EXPECT_EQ(reclaimed, std::vector{first->lease});
  server.NoteArrival(0);
  const std::optional<WireMessage> second = server.Handle(0, Request(kMiB, 9), kNow);
  ASSERT_TRUE(second.has_value() && second->type == WireType::kLeaseGrant);
  EXPECT_NE(second->lease, first->lease) << "the newcomer's request is not the dead one's, sent again";
  EXPECT_TRUE(server.leases().IsValid());
}

TEST(MemServerDeathTest, ANumberThatIsInUseIsGivenToNobodyElse) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 1});
  EXPECT_DEATH(server.NoteArrival(0), "is here already");
  EXPECT_DEATH(server.NoteArrival(2), "client 2");
}

TEST(MemServer, AForeignRankIsIgnored) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 1});
  EXPECT_FALSE(server.Handle(1, Request(kMiB), kNow).has_value());
  EXPECT_FALSE(server.Handle(UINT32_MAX, Request(kMiB), kNow).has_value());
}

TEST(MemServer, RmaCountsAsActiveForAWhileAfterEachAnnouncement) {
  MemServer server({.pool_bytes = 8 * kMiB, .clients = 1});
  const MemServer::Clock::time_point now = kNow;
  EXPECT_FALSE(server.RmaIsActive(now));
  server.Handle(0, Encode({.type = WireType::kActivity}), now);
  EXPECT_TRUE(server.RmaIsActive(now + std::chrono::milliseconds(10)));
  EXPECT_FALSE(server.RmaIsActive(now + std::chrono::milliseconds(100)));
}

// One flush of 512 MiB went at 0.09 GB/s: no announcement could follow while it lasted, and the server slept.
TEST(MemServer, ALongFlushIsBelievedForAsLongAsItsBytesTake) {
  MemServer server({.pool_bytes = 512 * kMiB, .clients = 2});
  const MemServer::Clock::time_point now = kNow;
  server.Handle(0, Encode({.type = WireType::kActivity, .bytes = 512 * kMiB}), now);
  server.Handle(1, Encode({.type = WireType::kActivity}), now);
  EXPECT_TRUE(server.RmaIsActive(now + std::chrono::seconds(20)));
  server.Handle(0, Encode({.type = WireType::kActivity}), now);  // done
  EXPECT_FALSE(server.RmaIsActive(now + std::chrono::milliseconds(100)));
  server.Handle(0, Encode({.type = WireType::kActivity, .bytes = kPoolBytesMax}), now);
  EXPECT_FALSE(server.RmaIsActive(now + std::chrono::seconds(60))) << "no more than the pool can hold";
}

}  // namespace
}  // namespace ramspan
