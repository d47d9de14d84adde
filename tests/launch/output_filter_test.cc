#include "launch/output_filter.h"

#include <gtest/gtest.h>

#include <random>

namespace ramspan {
namespace {

const std::string kRule(83, '=');
const std::string kBanner =
    "\n" + kRule + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 5259 RUNNING AT vm\n=   EXIT CODE: 9\n" +
    "=   CLEANING UP REMAINING PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n" + kRule +
    "\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"
    "This typically refers to a problem with your application.\n"
    "Please see the FAQ page for debugging suggestions\n";

std::string Filtered(OutputFilter& filter, const std::string& text, unsigned seed) {
  std::mt19937 random(seed);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::min<size_t>(text.size() - at, 1 + random() % 40);
    filter.Feed(std::string_view(text).substr(at, length), out);
    at += length;
  }
  filter.Finish(out);
  return out;
}

TEST(OutputFilter, TheBannerIsTakenOutHoweverTheStreamIsCut) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    OutputFilter filter(OutputFilter::Kind::kBanner);
    EXPECT_EQ(Filtered(filter, "one" + kBanner + "two\nthree", seed), "onetwo\nthree") << "seed " << seed;
    EXPECT_EQ(filter.taken(), kBanner);
  }
}

TEST(OutputFilter, TheBannerAtTheEndIsTakenOut) {
  OutputFilter filter(OutputFilter::Kind::kBanner);
  EXPECT_EQ(Filtered(filter, kBanner, 1), "");
}

TEST(OutputFilter, ALastLineWithoutItsEndGetsNoneFromTheBanner) {
  OutputFilter filter(OutputFilter::Kind::kBanner);
  EXPECT_EQ(Filtered(filter, "no end" + kBanner, 1), "no end");
}

TEST(OutputFilter, RulesOfTheApplicationPass) {
  const std::string text = kRule + "\n= results =\n" + kRule + "\n====\nx" + kRule + "\n=   BAD\n" + kRule;
  for (unsigned seed = 0; seed < 200; ++seed) {
    OutputFilter filter(OutputFilter::Kind::kBanner);
    EXPECT_EQ(Filtered(filter, text, seed), text) << "seed " << seed;
  }
}

TEST(OutputFilter, AnyBytesPass) {
  std::mt19937 random(7);
  std::string text(300000, '\0');
  for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? "=\n["[random() % 3] : random());
  for (const auto kind : {OutputFilter::Kind::kBanner, OutputFilter::Kind::kComplaints}) {
    OutputFilter filter(kind);
    EXPECT_EQ(Filtered(filter, text, 3), text);
  }
}

TEST(OutputFilter, AProgressBarComesOutWhenTheStreamPauses) {
  OutputFilter filter(OutputFilter::Kind::kBanner);
  std::string out;
  filter.Feed("====", out);
  EXPECT_EQ(out, "====");
  filter.Feed("==>\n==", out);
  EXPECT_TRUE(filter.has_pending());
  filter.Flush(out);
  EXPECT_EQ(out, "======>\n==");
}

TEST(OutputFilter, HydrasComplaintsAreTakenOutOfStderr) {
  const std::string text = "a\n[mpiexec@vm] control_cb: failed\n[proxy:0:0@vm] lost\n[other] b\nsee [proxy:0] c\n";
  for (unsigned seed = 0; seed < 100; ++seed) {
    OutputFilter filter(OutputFilter::Kind::kComplaints);
    EXPECT_EQ(Filtered(filter, text, seed), "a\n[other] b\nsee [proxy:0] c\n") << "seed " << seed;
  }
}

}  // namespace
}  // namespace ramspan
