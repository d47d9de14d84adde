#include "launch/allocation.h"

#include <gtest/gtest.h>

namespace ramspan {
namespace {

using Names = std::vector<std::string>;

TEST(Nodes, AreWhatSlurmMeans) {
  EXPECT_EQ(ExpandNodes("n[1-3,07-08],login"), (Names{"n1", "n2", "n3", "n07", "n08", "login"}));
  EXPECT_EQ(ExpandNodes("r[1-2]n[9-10]-ib"), (Names{"r1n9-ib", "r1n10-ib", "r2n9-ib", "r2n10-ib"}));
  EXPECT_EQ(ExpandNodes("n7"), Names{"n7"});
}

TEST(Nodes, WhatIsNoListOfNodesIsNone) {
  for (const char* list : {"", "n[", "n]", "n[1-", "n[3-1]", "n[a-b]", "n[1-999999999]", "n[1],", "n[1-2000]m[1-2000]"}) EXPECT_TRUE(ExpandNodes(list).empty()) << list;
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Each range was a call within the one before it, until the stack ended; and only each range was bounded, not how many of them there are, nor how
// long the names become.
TEST(Nodes, AListOfAnyLengthTakesLittleMemory) {
  EXPECT_TRUE(ExpandNodes("n" + Repeated("[1-2]", 20000)).empty());
  EXPECT_TRUE(ExpandNodes("n" + Repeated("[1-1]", 20000)).empty());
  EXPECT_TRUE(ExpandNodes("n[" + Repeated("0-99999,", 14000) + "1]").empty());
  EXPECT_TRUE(ExpandNodes("n[1-99999]" + std::string(120000, 'x')).empty());
  EXPECT_TRUE(ExpandNodes(std::string(120000, 'x') + "[1-99999]").empty());
  EXPECT_EQ(ExpandNodes("n[0-99999]").size(), 100000u) << "as many nodes as there may be";
  EXPECT_TRUE(ExpandNodes("n[0-99999],m").empty());
}

TEST(Counts, AreWhatSlurmMeans) {
  EXPECT_EQ(ExpandCounts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(ExpandCounts("16"), std::vector<int>{16});
  for (const char* list : {"", "0", "2(x", "2(x0)", "2(x3", "two", "2(x999999999)", "2000000000(x2)"}) EXPECT_TRUE(ExpandCounts(list).empty()) << list;
}

// Their sum was an int that had overflown.
TEST(HostFiles, SlotsOfAllLinesAreCountedAndThoseOfAHostAreBounded) {
  const HostFile many = ParseHostFile(Repeated("a:20000\n", 200000));
  EXPECT_TRUE(many.is_special);
  EXPECT_EQ(many.slots, 4000000000u);
  EXPECT_LE(many.hosts[0].slots, 20000);
  EXPECT_EQ(ParseHostFile(Repeated("a\nb\n", 800)).slots, 1600u) << "an order of ranks has slots, too";
  EXPECT_TRUE(ParseHostFile(":4\n").is_special) << "no host";
  EXPECT_FALSE(ParseHostFile("a:2\na:3\nb\n").is_special);
  EXPECT_EQ(ParseHostFile("a:2\na:3\nb\n").hosts[0].slots, 5);
}

TEST(HostFiles, OfManyHostsAreReadInTheTimeThatTheirLinesTake) {
  std::string text;
  for (int i = 0; i < 100001; ++i) text += "n" + std::to_string(i) + "\n";
  EXPECT_EQ(ParseHostFile(text).hosts.size(), 100001u);
  EXPECT_TRUE(ParseHostFile(text).is_special);
}

class PlaceTest : public testing::Test {
 protected:
  static std::string On(const std::vector<HostSlots>& hosts, int ranks, int servers, bool behind = false) {
    const std::optional<Placement> placement = Place(hosts, ranks, servers, behind);
    if (!placement) return "none";
    return HostList(placement->ranks) + " " + HostList(placement->servers) + (placement->servers_alone ? " alone" : "");
  }
  const std::vector<HostSlots> four_{{"a", 4}, {"b", 4}, {"c", 4}, {"d", 4}};
};

TEST_F(PlaceTest, ServersGetTheHostsThatRanksLeave) {
  EXPECT_EQ(On(four_, 6, 2), "a:4,b:2 c:1,d:1 alone");
  EXPECT_EQ(On(four_, 4, 2), "a:4 b:1,c:1 alone");
  EXPECT_EQ(On(four_, 12, 3), "a:4,b:4,c:4 d:3 alone");
  EXPECT_EQ(On(four_, 4, 7, true), "a:4 b:3,c:2,d:2 alone");
}

TEST_F(PlaceTest, WhereNoHostIsLeftServersAreSpreadOrCloseTheLine) {
  EXPECT_EQ(On(four_, 13, 2), "a:4,b:4,c:4,d:1 a:1,b:1");
  EXPECT_EQ(On(four_, 13, 6), "a:4,b:4,c:4,d:1 a:2,b:2,c:1,d:1");
  EXPECT_EQ(On(four_, 13, 3, true), "a:4,b:4,c:4,d:1 d:3");
}

TEST_F(PlaceTest, TooFewSlotsArePlacedByNobodyHere) {
  EXPECT_EQ(On(four_, 17, 0), "none");
  EXPECT_EQ(On(four_, 13, 4, true), "none");
}

TEST_F(PlaceTest, WithoutServersOnlyRanksArePlaced) { EXPECT_EQ(On(four_, 5, 0), "a:4,b:1  alone"); }

TEST_F(PlaceTest, DescriptionsOfManyHostsStayShort) {
  std::vector<HostSlots> many;
  for (int i = 0; i < 40; ++i) many.push_back({"n" + std::to_string(i), 1});
  EXPECT_EQ(Describe(*Place(many, 30, 1, true)), "30 ranks on n0 n1 n2 n3 n4 n5 n6 n7 ... (30 nodes), 1 server on n30");
}

}  // namespace
}  // namespace ramspan
