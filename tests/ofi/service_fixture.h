// Servers and programs that use them, as a user starts them on one host, for tests of `ramspan server`.
#pragma once

#include <signal.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <string>

#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"
#include "tests/support/sizes.h"

namespace ramspan {

class ServiceFixture : public JobFixture {
 protected:
  struct Server {
    pid_t pid = -1;
    std::string place;
  };

  // REQUIRES: what it is told is right.
  Server StartServer(const std::string& memory, Words more = {"--listen", "127.0.0.1:0"}) {
    const std::string out = (folder_ / ("server-" + std::to_string(++started_))).string();
    Words words = {"sh", "-c", "exec \"$@\" > " + out + " 2> " + out + ".err", "sh", LAUNCHER, "server", "--memory", memory};
    words.insert(words.end(), more.begin(), more.end());
    if (!limited_.empty()) words.insert(words.begin(), limited_);
    const pid_t pid = StartCommand(words);
    std::smatch found;
    std::string text;
    const auto listens = [&] {
      text = ReadFile(out);
      return std::regex_search(text, found, std::regex(" at ([^ ]+), "));
    };
    EXPECT_TRUE(Becomes(listens)) << text << ReadFile(out + ".err");
    return {pid, found.empty() ? "" : found[1].str()};
  }
  void EndServer(const Server& server, int signal = SIGTERM, int status = 0) {
    SendSignal(server.pid, signal);
    EXPECT_EQ(Wait(server.pid).status, status);
  }

  static Words Sweep(size_t bytes, int sweeps = 1) { return {SWEEP_PROGRAM, std::to_string(bytes), std::to_string(256 << 10), "2", "1", std::to_string(sweeps)}; }
  Outcome Run(const Words& command, const Words& environment, std::chrono::seconds patience = kPatience) { return Wait(StartCommand(command, environment), patience); }
  static Words To(const std::string& servers, bool far, Words more = {}) {
    more.insert(more.end(), {"RAMSPAN_SERVERS=" + servers, "RAMSPAN_TRANSPORT=ofi", "RAMSPAN_MEMORY=4MiB"});
    if (far) more.push_back("RAMSPAN_TEST_FAR=1");
    return more;
  }
  Words Loss() const { return {LOSS_PROGRAM, "64", std::to_string(256 << 10)}; }
  // What `ramspan ctl` prints. Its output goes to a file of its own, because a program that runs meanwhile writes where Wait reads.
  std::string Ctl(const Words& words) {
    const std::string out = (folder_ / ("ctl-" + std::to_string(++started_))).string();
    Words command = {"sh", "-c", "exec \"$@\" > " + out, "sh", LAUNCHER, "ctl"};
    command.insert(command.end(), words.begin(), words.end());
    EXPECT_EQ(Wait(StartCommand(command)).status, 0);
    return ReadFile(out);
  }
  void SayGo() const { std::ofstream(folder_ / "ready/go") << ""; }

  int started_ = 0;
  std::string limited_;  // a program that starts servers, or empty
};

}  // namespace ramspan
