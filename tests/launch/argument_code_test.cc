#include "launch/argument_code.h"

#include <gtest/gtest.h>

namespace ramspan {
namespace {

using Words = std::vector<std::string>;

Words RoundTrip(const Words& arguments) {
  const Result<Words> decoded = DecodeArguments(EncodeArguments(arguments));
  EXPECT_TRUE(decoded.ok());
  return decoded.ok() ? decoded.value() : Words{};
}

TEST(ArgumentCode, PlainArgumentsTravelAsTheyAre) {
  const Words arguments = {"./app", "-v", "a b", "%d", "$HOME", "x=1", "a:b", "\"", "\\n", "ä"};
  EXPECT_EQ(EncodeArguments(arguments), arguments);
}

TEST(ArgumentCode, WhatHydraWouldMisreadComesBackUnchanged) {
  const Words arguments = {"", ":", "=", "=61", "a\nb", "\x01", "\t", "", ""};
  EXPECT_EQ(RoundTrip(arguments), arguments);
  for (const std::string& word : EncodeArguments(arguments)) {
    EXPECT_NE(word, ":");
    EXPECT_FALSE(word.empty());
  }
}

TEST(ArgumentCode, ThousandsOfArgumentsTravelInFewWords) {
  Words arguments;
  for (int i = 0; i < 20000; ++i) arguments.push_back(i % 7 == 0 ? "" : std::string(static_cast<size_t>(i % 90), 'x'));
  EXPECT_LT(EncodeArguments(arguments).size(), 200u);
  for (const std::string& word : EncodeArguments(arguments)) EXPECT_LT(word.size(), 128u * 1024);
  EXPECT_EQ(RoundTrip(arguments), arguments);
}

TEST(ArgumentCode, WordsThatAreNoCodeAreRefused) {
  EXPECT_FALSE(DecodeArguments({"=6"}).ok());
  EXPECT_FALSE(DecodeArguments({"=zz"}).ok());
}

}  // namespace
}  // namespace ramspan
