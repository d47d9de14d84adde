#include <gtest/gtest.h>

#include "launch/pmi_relay.h"

namespace ramspan {
namespace {

TEST(PmiScanner, FindsCommandsHoweverTheyAreCut) {
  const std::string text =
      "cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=k key=a value=b\ncmd=barrier_in\ncmd=finalize\n";
  for (size_t step = 1; step < text.size(); ++step) {
    PmiScanner scanner;
    for (size_t at = 0; at < text.size(); at += step) scanner.Feed(std::string_view(text).substr(at, step));
    EXPECT_TRUE(scanner.init());
    EXPECT_TRUE(scanner.finalize());
    EXPECT_EQ(scanner.abort_code(), -1);
  }
}

TEST(PmiScanner, ReadsTheCodeOfAnAbort) {
  PmiScanner scanner;
  scanner.Feed("cmd=init pmi_version=1\n");
  EXPECT_FALSE(scanner.finalize());
  scanner.Feed("cmd=abort exitcode=9\n");
  EXPECT_EQ(scanner.abort_code(), 9);
}

}  // namespace
}  // namespace ramspan
