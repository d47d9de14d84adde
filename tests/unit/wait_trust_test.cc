#include "memserver/wait_trust.h"

#include <gtest/gtest.h>

namespace ramspan {
namespace {

// A wait, so many polls, and the message that the last of them finds.
void MessageAfterWait(WaitTrust* trust, bool wait_ended_by_it, int polls = 1) {
  trust->NoteWait(wait_ended_by_it);
  for (int i = 0; i < polls; ++i) trust->NotePoll();
  trust->NoteMessage();
}

TEST(WaitTrust, WaitsThatMessagesDoNotEndAreGivenUp) {
  WaitTrust trust;
  int messages = 0;
  for (; trust.trusted() && messages < 1000; ++messages) MessageAfterWait(&trust, false);
  EXPECT_GT(messages, 1);  // not at the first
  EXPECT_LT(messages, 20);
}

TEST(WaitTrust, AFewMessagesInTheGapBetweenWaitAndPollAreChance) {
  WaitTrust trust;
  for (int i = 0; i < 10000; ++i) MessageAfterWait(&trust, i % 10 != 0);
  EXPECT_TRUE(trust.trusted());
}

TEST(WaitTrust, MessagesThatComeLongAfterAWaitSayNothingOfIt) {
  WaitTrust trust;
  for (int i = 0; i < 1000; ++i) MessageAfterWait(&trust, false, 64);
  for (int i = 0; i < 1000; ++i) trust.NotePoll(), trust.NoteMessage();
  EXPECT_TRUE(trust.trusted());
}

TEST(WaitTrust, ManyMessagesAfterOneWaitCountOnce) {
  WaitTrust trust;
  trust.NoteWait(false);
  for (int i = 0; i < 1000; ++i) trust.NotePoll(), trust.NoteMessage();
  EXPECT_TRUE(trust.trusted());
}

}  // namespace
}  // namespace ramspan
