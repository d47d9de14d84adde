// `ramspan server` and programs that use it, as a user starts them: servers that outlive clients, clients that outlive servers.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "common/units.h"
#include "tests/ofi/service_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class Service : public ServiceFixture {
 protected:
  // For what runs beside another program, whose words Wait reads.
  static Words ToFiles(const Words& command, const std::string& out, const std::string& err) {
    Words words = {"sh", "-c", "exec \"$@\" > " + out + " 2> " + err, "sh"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
};

TEST_F(Service, AProgramSwapsThroughAServerAndTheServerOutlivesIt) {
  const Server server = StartServer("64MiB");
  for (const bool far : {true, false, true}) {
    const Outcome outcome = Run(Sweep(24 * kMiB), To(server.place, far, {"RAMSPAN_SWAP=remote"}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
    EXPECT_EQ(outcome.err, "") << "nothing is printed in a healthy run";
  }
  EndServer(server);
}

// Where the provider wants local memory registered (FI_MR_LOCAL), a frame is registered at its first use and stays so.
TEST_F(Service, FramesThatTheNetworkHasToKnowAreCountedInTheStatistics) {
  const Server server = StartServer("64MiB");
  const std::string stats = (folder_ / "stats").string();
  for (const bool registered : {true, false}) {
    Words environment = {"RAMSPAN_SWAP=remote", "RAMSPAN_STATS=" + stats};
    if (registered) environment.push_back("RAMSPAN_TEST_REGISTER_LOCAL=1");
    const Outcome outcome = Run(Sweep(24 * kMiB, 3), To(server.place, true, environment));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::smatch found;
    const std::string text = ReadFile(stats);
    ASSERT_TRUE(std::regex_search(text, found, std::regex("\"registered_buffers\":([0-9]+),\"registered_bytes\":([0-9]+)"))) << text;
    const unsigned long buffers = std::stoul(found[1]), bytes = std::stoul(found[2]);
    EXPECT_EQ(buffers > 0, registered) << text;
    EXPECT_EQ(bytes >= kMiB, registered) << text;
    EXPECT_LE(bytes, 64 * kMiB) << "of an arena that reserves sixteen times the limit";
  }
  EndServer(server);
}

TEST_F(Service, AServerOfThisHostIsFoundAtAUnixSocketAlone) {
  const Server server = StartServer("64MiB", {"--socket", (folder_ / "socket").string()});
  EXPECT_EQ(server.place, (folder_ / "socket").string());
  const Outcome outcome = Run(Sweep(24 * kMiB), To(server.place, false, {"RAMSPAN_SWAP=remote"}));
  EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
  EndServer(server);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "socket"));
}

TEST_F(Service, AFileThatIsNoSocketOfItsOwnIsNotDeleted) {
  const std::string notes = (folder_ / "notes.txt").string(), socket = (folder_ / "socket").string();
  std::ofstream(notes) << "my notes\n";
  const Outcome refused = Run({LAUNCHER, "server", "--memory", "8MiB", "--socket", notes}, {});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("cannot listen at " + notes));
  EXPECT_EQ(ReadFile(notes), "my notes\n");
  const Server first = StartServer("8MiB", {"--socket", socket});
  EXPECT_EQ(Run({LAUNCHER, "server", "--memory", "8MiB", "--socket", socket}, {}).status, 2);
  EXPECT_TRUE(std::filesystem::exists(socket)) << "of the server that runs";
  // Somebody has put another one in its place.
  std::filesystem::remove(socket);
  const Server second = StartServer("8MiB", {"--socket", socket});
  EndServer(first);
  EXPECT_TRUE(std::filesystem::exists(socket)) << "of the second server";
  EndServer(second);
  EXPECT_FALSE(std::filesystem::exists(socket));
}

// A lease of a client of this host is an open file of the server's.
TEST_F(Service, AServerTakesAsManyOpenFilesAsItMayHave) {
  std::ofstream(folder_ / "limited") << "#!/bin/sh\nulimit -S -n 40\nexec \"$@\"\n";
  std::filesystem::permissions(folder_ / "limited", std::filesystem::perms(0755));
  limited_ = (folder_ / "limited").string();
  const Server server = StartServer("64MiB");
  EXPECT_TRUE(std::regex_search(ReadFile("/proc/" + std::to_string(server.pid) + "/limits"), std::regex("Max open files +([0-9]+) +\\1 ")));
  EndServer(server);
}

// The kernel ended it by SIGXFSZ without a word, and what others had there was lost.
// libfabric says "Input/output error" where it finds no descriptor.
TEST_F(Service, OneThatMayOpenTooFewFilesIsToldSo) {
  for (const char* files : {"8", "12", "16"}) {
    const Outcome end = Run({"sh", "-c", std::string("ulimit -n ") + files + "; exec \"$@\"", "sh", LAUNCHER, "server", "--memory", "8MiB", "--listen", "127.0.0.1:0", "--rendezvous", (folder_ / "rendezvous").string()}, {});
    EXPECT_EQ(end.status, 1) << files;
    EXPECT_THAT(end.err, HasSubstr("ulimit -n")) << files;
  }
}

// From now on this process can open so many descriptors more.
void LeaveDescriptors(pid_t pid, rlim_t count) {
  std::set<rlim_t> open;
  for (const auto& file : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) open.insert(std::stoul(file.path().filename()));
  rlim_t end = 0;
  for (; count > 0; ++end) count -= open.count(end) == 0;
  const rlimit limit{end, end};
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &limit, nullptr), 0);
}

// A far client's link and its data are a descriptor each. The second client's link had the last one: its transfers did not begin before the first
// client had ended, or the server was given up after 30 s, and neither side said why.
TEST_F(Service, AFarClientForWhoseDataThereIsNoDescriptorIsSentAway) {
  for (const char* chunks : {"64", "8"}) {  // of eight none is moved before `go`
    const Server server = StartServer("64MiB");
    const fs::path server_err = folder_ / ("server-" + std::to_string(started_) + ".err"), err = folder_ / "second.err";
    LeaveDescriptors(server.pid, 3);
    const pid_t first = StartCommand({LOSS_PROGRAM, chunks, std::to_string(256 << 10)}, To(server.place, true, {"RAMSPAN_SWAP=remote"}));
    Ready(0);
    const Words second = ToFiles(Sweep(24 * kMiB), "/dev/null", err), environment = To(server.place, true, {"RAMSPAN_SWAP=remote"});
    EXPECT_NE(Wait(StartCommand(second, environment)).status, 0);
    EXPECT_THAT(ReadFile(err), HasSubstr("it has no descriptors left for clients: raise its limit (ulimit -n)"));
    EXPECT_THAT(ReadFile(server_err), HasSubstr("it has no descriptors left for clients"));
    SayGo();
    EXPECT_THAT(Wait(first).out, HasSubstr(" lost 0 wrong 0 "));
    EXPECT_EQ(Wait(StartCommand(second, environment)).status, 0) << "there is room again: " << ReadFile(err);
    EndServer(server);
    ClearReady();
  }
}

// One that is kept for a client's first transfer is not there for a lease of a client of the server's host, and is for others once that has begun.
TEST_F(Service, DescriptorsAreKeptForConnectionsThatAreToComeAndNoLonger) {
  const Server server = StartServer("64MiB");
  const fs::path server_err = folder_ / "server-1.err", out = folder_ / "second.out";
  LeaveDescriptors(server.pid, 5);  // also for a client of this host, which comes to the port first
  const pid_t first = StartCommand({LOSS_PROGRAM, "8", std::to_string(256 << 10)}, To(server.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  EXPECT_EQ(Wait(StartCommand(ToFiles(Sweep(24 * kMiB), out, "/dev/null"), To(server.place, false))).status, 0) << "some of it is in files";
  EXPECT_THAT(ReadFile(server_err), HasSubstr("refuses a lease: no descriptor left for a client of this host"));
  SayGo();
  EXPECT_THAT(Wait(first).out, HasSubstr(" lost 0 wrong 0 "));
  ClearReady();
  LeaveDescriptors(server.pid, 4);
  const pid_t third = StartCommand(Loss(), To(server.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  const auto far_one_works = [&] { return Wait(StartCommand(ToFiles(Sweep(24 * kMiB), out, "/dev/null"), To(server.place, true, {"RAMSPAN_SWAP=remote"}))).status == 0; };
  EXPECT_TRUE(Becomes(far_one_works)) << "as soon as the server has heard that the other one's data move";
  SayGo();
  EXPECT_THAT(Wait(third).out, HasSubstr(" lost 0 wrong 0 "));
  EndServer(server);
}

TEST_F(Service, ALeaseBeyondTheLimitOfFileSizesIsRefusedAndTheServerLives) {
  std::ofstream(folder_ / "limited") << "#!/bin/sh\nulimit -f 4096\nexec \"$@\"\n";  // 2 or 4 MiB
  std::filesystem::permissions(folder_ / "limited", std::filesystem::perms(0755));
  limited_ = (folder_ / "limited").string();
  const Server server = StartServer("64MiB");
  const Outcome outcome = Run(Sweep(20 * kMiB), To(server.place, false));
  EXPECT_EQ(outcome.out, "verified " + std::to_string(20 * kMiB) + " bytes\n") << outcome.err;
  EndServer(server);
  EXPECT_THAT(ReadFile((folder_ / "server-1.err").string()), HasSubstr("ulimit -f"));
}

TEST_F(Service, SeveralProgramsShareSeveralServers) {
  const Server first = StartServer("64MiB"), second = StartServer("64MiB");
  std::vector<pid_t> programs;
  for (int i = 0; i < 3; ++i) {
    Words command = Sweep(20 * kMiB);
    command.insert(command.begin(), {"sh", "-c", "exec \"$@\" > " + (folder_ / ("program-" + std::to_string(i))).string(), "sh"});
    programs.push_back(StartCommand(command, To(first.place + "," + second.place, i != 1, {"RAMSPAN_SWAP=remote"})));
  }
  for (const pid_t program : programs) EXPECT_EQ(Wait(program).status, 0) << ReadFile(folder_ / "err");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ReadFile(folder_ / ("program-" + std::to_string(i))), "verified " + std::to_string(20 * kMiB) + " bytes\n");
  EndServer(first);
  EndServer(second);
}

TEST_F(Service, AServerThatIsKilledTakesWhatLivedOnlyThereAndEverythingElseGoesOn) {
  const Server server = StartServer("64MiB");
  const pid_t program = StartCommand(Loss(), To(server.place, true));
  Ready(0);
  EndServer(server, SIGKILL, 128 + SIGKILL);
  EXPECT_TRUE(Becomes([&] { return ReadFile(folder_ / "err").find("were nowhere else, and are lost") != std::string::npos; })) << "within a fifth of a second";
  SayGo();
  const Outcome outcome = Wait(program);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  unsigned kept = 0, lost = 0;
  ASSERT_EQ(std::sscanf(outcome.out.c_str(), "kept %u lost %u wrong 0 new 64", &kept, &lost), 2) << outcome.out << outcome.err;
  EXPECT_EQ(kept + lost, 64u);
  EXPECT_GE(kept, 8u) << "what was in memory";
  EXPECT_GE(lost, 40u) << "what was on the server";
  std::smatch told;
  ASSERT_TRUE(std::regex_search(outcome.err, told, std::regex("memory server " + server.place + " died with ([0-9.]+ .iB) of this program's chunks"))) << outcome.err;
  const uint64_t held = (ParseBytes(told[1].str()).value() + (128 << 10)) / (256 << 10);  // it is rounded
  EXPECT_GE(held, lost);
  EXPECT_LE(held, 64u) << "those that were in memory, too, had places there";
  EXPECT_THAT(outcome.err, HasSubstr("memory server " + server.place + ": " + std::to_string(lost) + " chunks"));
  EXPECT_THAT(outcome.err, HasSubstr("was only on memory server " + server.place)) << "what is thrown";
  EXPECT_THAT(outcome.err, HasSubstr("start it again: this program uses it again by itself"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("the job again")));
}

TEST_F(Service, WhatAServerOfThisHostHeldIsThereWhenItIsKilled) {
  const Server server = StartServer("64MiB");
  const pid_t program = StartCommand(Loss(), To(server.place, false));
  Ready(0);
  EndServer(server, SIGKILL, 128 + SIGKILL);
  SayGo();
  const Outcome outcome = Wait(program);
  EXPECT_EQ(outcome.out, "kept 64 lost 0 wrong 0 new 64\n") << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("which are not lost"));
}

// It is given up, goes on, and sees that its client is gone: which has not ended, and still uses what it has mapped.
TEST_F(Service, WhatAServerOfThisHostHeldIsThereWhenItIsGivenUpAndLivesOn) {
  const Server server = StartServer("64MiB");
  const pid_t program = StartCommand(Loss(), To(server.place, false, {"RAMSPAN_TEST_SILENCE_MAX=2"}));
  Ready(0);
  const auto leases = [&] {
    size_t count = 0;
    for (const auto& file : std::filesystem::directory_iterator("/proc/" + std::to_string(server.pid) + "/fd")) {
      std::error_code closed;
      count += std::filesystem::read_symlink(file, closed).string().find("ramspan-lease") != std::string::npos;
    }
    return count;
  };
  ASSERT_GT(leases(), 0u);
  SendSignal(server.pid, SIGSTOP);
  ASSERT_TRUE(Becomes([&] { return ReadFile(folder_ / "err").find("is gone") != std::string::npos; }));
  SendSignal(server.pid, SIGCONT);
  ASSERT_TRUE(Becomes([&] { return leases() == 0; })) << "the server has seen the end of the link";
  SayGo();
  const Outcome outcome = Wait(program);
  EXPECT_EQ(outcome.out, "kept 64 lost 0 wrong 0 new 64\n") << outcome.err;
  EndServer(server);
}

TEST_F(Service, AServerThatIsStoppedForTooLongIsGivenUp) {
  const Server server = StartServer("64MiB");
  const pid_t program = StartCommand(Loss(), To(server.place, true, {"RAMSPAN_TEST_SILENCE_MAX=2"}));
  Ready(0);
  SendSignal(server.pid, SIGSTOP);
  SayGo();
  const Outcome outcome = Wait(program);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("wrong 0 new 64")) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("lost 0 ")));
  SendSignal(server.pid, SIGCONT);
  EndServer(server);
}

// Time in which it could not run is nobody's silence, and its leases stay.
TEST_F(Service, AClientThatIsSuspendedLosesNothingAndKeepsNobodyWaiting) {
  const Server server = StartServer("64MiB");
  const pid_t suspended = StartCommand(Sweep(24 * kMiB, 0), To(server.place, true, {"RAMSPAN_SWAP=remote", "RAMSPAN_TEST_SILENCE_MAX=4"}));
  Ready(0);
  SendSignal(suspended, SIGSTOP);
  // A ping a second, looks each 0.2 s: with less a server that is well would be given up on a busy machine.
  const auto longer_than_silence = std::chrono::steady_clock::now() + std::chrono::milliseconds(4800);
  Words other = {"sh", "-c", "exec \"$@\" > " + (folder_ / "other").string(), "sh"};
  for (const std::string& word : Sweep(16 * kMiB)) other.push_back(word);
  do {
    EXPECT_EQ(Wait(StartCommand(other, To(server.place, true, {"RAMSPAN_SWAP=remote"}))).status, 0);
    EXPECT_EQ(ReadFile(folder_ / "other"), "verified " + std::to_string(16 * kMiB) + " bytes\n");
  } while (std::chrono::steady_clock::now() < longer_than_silence);
  EXPECT_THAT(Ctl({"list", server.place}), testing::ContainsRegex("1 client holds [1-9][0-9] MiB"));
  SendSignal(suspended, SIGCONT);
  std::ofstream(folder_ / "ready/stop") << "";
  const Outcome outcome = Wait(suspended);
  EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EndServer(server);
}

TEST_F(Service, TheLeasesOfAKilledClientComeBack) {
  const Server server = StartServer("32MiB");
  for (const bool far : {true, false}) {
    ClearReady();
    const pid_t hog = StartCommand(Sweep(24 * kMiB, 0), To(server.place, far, {"RAMSPAN_SWAP=remote"}));
    Ready(0);
    SendSignal(hog, SIGKILL);
    EXPECT_EQ(Wait(hog).status, 128 + SIGKILL);
    const Outcome outcome = Run(Sweep(24 * kMiB), To(server.place, far, {"RAMSPAN_SWAP=remote"}));
    EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
  }
  EndServer(server);
}

TEST_F(Service, CtlListsWhoIsThereAndWhatTheyHold) {
  const Server server = StartServer("64MiB");
  const auto list = [&] { return Run({LAUNCHER, "ctl", "list", server.place}, {}); };
  const Outcome empty = list();
  EXPECT_EQ(empty.status, 0) << empty.err;
  EXPECT_EQ(empty.out, server.place + " lends 64 MiB, of which 0 clients hold 0 B\n");
  EXPECT_EQ(Run({LAUNCHER, "ctl", "quota", server.place, "--memory", "40MiB"}, {}).status, 0);
  EXPECT_EQ(Run({LAUNCHER, "ctl", "quota", server.place, "--memory", "0", "--job", "slurm 7"}, {}).status, 0);
  EXPECT_EQ(list().out, server.place + " lends 64 MiB, of which 0 clients hold 0 B; each job may hold 40 MiB\n  slurm 7 may hold 0 B\n");
  const pid_t far = StartCommand(Sweep(24 * kMiB, 0), To(server.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  // Its output goes to a file of its own, because the program's goes where the next Wait reads.
  Words command = {"sh", "-c", "exec \"$@\" > " + (folder_ / "list").string(), "sh", LAUNCHER, "ctl", "list", server.place};
  EXPECT_EQ(Wait(StartCommand(command)).status, 0);
  const std::string text = ReadFile(folder_ / "list");
  EXPECT_THAT(text, HasSubstr("of which 1 client holds "));
  EXPECT_THAT(text, HasSubstr("sweep_program[" + std::to_string(far) + "]@"));
  EXPECT_THAT(text, Not(HasSubstr("  0 B ")));
  std::ofstream(folder_ / "ready/stop") << "";
  EXPECT_EQ(Wait(far).status, 0);
  EndServer(server);
}

TEST_F(Service, CtlStopEndsAServerAndItsClientsGoOn) {
  const Server first = StartServer("64MiB"), second = StartServer("64MiB", {"--socket", (folder_ / "socket").string()});
  const pid_t program = StartCommand(Loss(), To(second.place, false));
  Ready(0);
  Words command = {"sh", "-c", "exec \"$@\" > " + (folder_ / "stop").string(), "sh", LAUNCHER, "ctl", "stop", first.place, second.place};
  EXPECT_EQ(Wait(StartCommand(command)).status, 0);
  EXPECT_EQ(ReadFile(folder_ / "stop"), first.place + " ends\n" + second.place + " ends\n");
  EXPECT_EQ(Wait(first.pid).status, 0);
  EXPECT_EQ(Wait(second.pid).status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "socket"));
  SayGo();
  EXPECT_EQ(Wait(program).status, 0);
}

// The key in the folder was used for both, and the other server was said to have another secret.
TEST_F(Service, CtlTakesTheKeyOfEachServerThatIsNamed) {
  const std::string folder = (folder_ / "servers").string();
  const Server found = StartServer("8MiB", {"--listen", "127.0.0.1:0", "--rendezvous", folder}), named = StartServer("8MiB");
  const Outcome joined = Run({LAUNCHER, "ctl", "list", "dir:" + folder + "," + named.place}, {});
  EXPECT_EQ(joined.status, 1) << "as for a program, which has one key for all";
  EXPECT_THAT(joined.out, HasSubstr(found.place + " lends"));
  EXPECT_THAT(joined.err, HasSubstr("secret"));
  // One that cannot be found kept the others from hearing of it, with the status of a mistyped line.
  const Outcome one_missing = Run({LAUNCHER, "ctl", "list", "dir:" + (folder_ / "nowhere").string(), named.place}, {});
  EXPECT_EQ(one_missing.status, 1);
  EXPECT_THAT(one_missing.err, HasSubstr("nowhere"));
  EXPECT_THAT(one_missing.out, HasSubstr(named.place));
  const Outcome stopped = Run({LAUNCHER, "ctl", "stop", "dir:" + folder, named.place}, {});
  ASSERT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_EQ(stopped.out, found.place + " ends\n" + named.place + " ends\n");
  EXPECT_EQ(Wait(found.pid).status, 0);
  EXPECT_EQ(Wait(named.pid).status, 0);
}

// A server that answers to one of the keys counted as one that does not answer, and one that does not was asked again with the same key.
TEST_F(Service, CtlAsksAServerThatIsNamedTwiceOnceWithEachKey) {
  const std::string folder = (folder_ / "servers").string(), key = (folder_ / "home/.ramspan.key").string();
  std::ofstream(key) << "another secret, long enough\n";
  std::filesystem::permissions(key, std::filesystem::perms(0600));
  const Server server = StartServer("8MiB", {"--listen", "127.0.0.1:0", "--rendezvous", folder});
  for (const Words& names : {Words{server.place, "dir:" + folder}, Words{"dir:" + folder, server.place}}) {
    const Outcome listed = Run({LAUNCHER, "ctl", "list", names[0], names[1]}, {});
    EXPECT_EQ(listed.status, 0) << names[0];
    EXPECT_EQ(listed.err, "") << names[0];
    EXPECT_THAT(listed.out, HasSubstr(server.place + " lends 8 MiB"));
  }
  EndServer(server);
  const Outcome absent = Run({LAUNCHER, "ctl", "list", "127.0.0.1:1", "127.0.0.1:1"}, {});
  EXPECT_EQ(absent.status, 1);
  EXPECT_EQ(absent.err.find("refused"), absent.err.rfind("refused")) << absent.err;
}

// As programs do. Only the variables were read.
TEST_F(Service, CtlFindsServersAndTheirKeyInTheConfigurationFile) {
  const std::string key = (folder_ / "other.key").string();
  const Server server = StartServer("64MiB", {"--listen", "127.0.0.1:0", "--key-file", key});
  EXPECT_THAT(Run({LAUNCHER, "ctl", "list"}, {}).err, HasSubstr("no server is named")) << "nobody has named one";
  std::ofstream(folder_ / "home/.ramspan.conf") << "[default]\nservers = " << server.place << "\nserverKeyFile = " << key << "\n";
  EXPECT_THAT(Run({LAUNCHER, "ctl", "list"}, {}).out, HasSubstr(server.place + " lends 64 MiB"));
  EndServer(server);
}

TEST_F(Service, CtlSaysWhatIsWrong) {
  const Server server = StartServer("64MiB");
  std::ofstream(folder_ / "other.key") << "another secret, long enough\n";
  std::filesystem::permissions(folder_ / "other.key", std::filesystem::perms(0600));
  const Outcome stranger = Run({LAUNCHER, "ctl", "stop", server.place, "--key-file", (folder_ / "other.key").string()}, {});
  EXPECT_EQ(stranger.status, 1);
  EXPECT_THAT(stranger.err, HasSubstr("secret"));
  EXPECT_EQ(Run({LAUNCHER, "ctl", "list"}, {"RAMSPAN_SERVERS=" + server.place}).status, 0) << "it is still there";
  const Outcome absent = Run({LAUNCHER, "ctl", "list", "127.0.0.1:1"}, {});
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(absent.err, HasSubstr("127.0.0.1:1: Connection refused"));
  const std::string twice = Run({LAUNCHER, "ctl", "list", server.place + "," + server.place}, {}).out;
  EXPECT_EQ(twice.find(server.place), twice.rfind(server.place)) << "named twice, asked once: " << twice;
  EXPECT_THAT(Run({LAUNCHER, "ctl", "destroy", server.place}, {}).err, HasSubstr("list, drain, undrain, shrink, quota or stop"));
  EXPECT_EQ(Run({LAUNCHER, "ctl"}, {}).status, 2);
  // It was a quota of every job: `--job "$UNSET"`.
  for (const Words& empty : {Words{"--job", ""}, Words{"--job="}}) {
    Words command = {LAUNCHER, "ctl", "quota", server.place, "--memory", "16MiB"};
    command.insert(command.end(), empty.begin(), empty.end());
    const Outcome outcome = Run(command, {});
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("ramspan ctl: ")) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("--job"));
  }
  EXPECT_THAT(Run({LAUNCHER, "ctl", "quota", server.place, "--memory", "default"}, {}).err, HasSubstr("say which (--job NAME)"));
  EXPECT_THAT(Run({LAUNCHER, "ctl", "shrink", server.place, "--memory", "40"}, {}).err, HasSubstr("units forgotten? (40MiB)"));
  EXPECT_THAT(Run({LAUNCHER, "ctl", "quota", server.place, "--memory", "default", "--job", "slurm 7"}, {}).out, HasSubstr("slurm 7 may hold as much as each other job"));
  EndServer(server);
}

// Each was told by the system's word alone, by nothing, or by another mistake's message.
TEST_F(Service, MistakesAreToldWithTheirCauseAndWhatHelps) {
  const std::string at = folder_.string() + "/";
  std::filesystem::create_directory(at + "folder");
  std::filesystem::permissions(at + "folder", std::filesystem::perms(0700));
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(at + name) << text; };
  write("home/.ramspan.key", "a secret that nobody needs\n");
  std::filesystem::permissions(at + "home/.ramspan.key", std::filesystem::perms(0600));
  write("empty", "");
  write("good", "127.0.0.1:1\n");
  write("binary", "\x01\x02\x03\n");
  write("data", "results of a year\n");
  write("list", "# ours\nnode7:7117\n");
  const Server server = StartServer("8MiB", {"--listen", "127.0.0.1:0"});
  const std::vector<std::pair<Words, std::string>> ctl = {
      {{"list", "file:" + at + "absent"}, "No such file or directory; the first `ramspan server --rendezvous file:" + at + "absent` makes it"},
      {{"list", "file:" + at + "folder"}, "it is a folder: write dir:" + at + "folder"},
      {{"list", "file:" + at + "binary"}, "line 1 has characters that no place has"},
      {{"list", "file:" + at + "good"}, "127.0.0.1:1: Connection refused; no memory server listens there now"},
      {{"list", "dir:" + at + "good"}, "Not a directory; a file with a place a line is named file:" + at + "good"},
      {{"list", at + "good"}, "it is no socket but a file: one with a place a line is named file:" + at + "good"},
      {{"list", at + "folder"}, "it is a folder: those in which servers write themselves down are named dir:" + at + "folder"},
      {{"list", at + "absent"}, "No such file or directory; no memory server listens there now"},
      {{"list", "no.such.host.invalid:7117"}, "memory server no.such.host.invalid:7117: no host no.such.host.invalid is known here"},
      {{server.place}, "there is no command \"" + server.place + "\": list, drain"},
      {{"list", "--keyfile", "k", server.place}, "did you mean --key-file?"},
  };
  for (const auto& [words, expected] : ctl) {
    Words command = {LAUNCHER, "ctl"};
    command.insert(command.end(), words.begin(), words.end());
    EXPECT_THAT(Run(command, {}).err, HasSubstr(expected));
  }
  EXPECT_EQ(Run({LAUNCHER, "ctl", "list", "file:" + at + "empty"}, {}).out, at + "empty: no server\n");
  const std::vector<std::pair<Words, std::string>> wrong_servers = {
      {{"--listen", server.place}, "another process listens there, maybe a memory server. Port 0 is any free one"},
      {{"--listen", "192.0.2.1:0"}, "no interface of this host has that address"},
      {{"--listen", "127.0.0.1"}, "--listen 127.0.0.1: write HOST:PORT"},
      {{"--listen", "no.such.host.invalid:0"}, "cannot listen at no.such.host.invalid:0: no host"},
      {{"--socket", "relative"}, "--socket relative: write the /path of a Unix socket"},
      {{"--socket", at + "good"}, "what is there is no socket, and stays as it is"},
      {{"--rendezvous", at + "good"}, "a file with a place a line is named file:" + at + "good"},
      {{"--rendezvous", "file:" + at + "folder"}, "it is a folder: write --rendezvous " + at + "folder"},
      {{"--rendezvous", "file:" + at + "data"}, "it holds something else than places of memory servers"},
      {{"--rendezvous", "file:" + at + "list"}, "does not name this server: write the line @ramspan-"},
      {{"--rendezvous", "file:" + at + "absent/file"}, "it cannot be made: No such file or directory"},
      {{"--rendevous", at + "folder"}, "did you mean --rendezvous?"},
  };
  for (const auto& [words, expected] : wrong_servers) {
    Words command = {LAUNCHER, "server", "--memory", "8MiB"};
    command.insert(command.end(), words.begin(), words.end());
    const Outcome outcome = Run(command, {});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.err, HasSubstr(expected));
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr("cannot reach it"))) << "a warning of what does not come about";
  }
  EXPECT_THAT(Run({LAUNCHER, "run", "--hostfile", at + "absent", "--", "true"}, {}).err, HasSubstr("absent: No such file or directory"));
  EXPECT_THAT(Run({LAUNCHER, "run", "--hostfile", at + "folder", "--", "true"}, {}).err, HasSubstr("is a folder, and no list of hosts"));
  EXPECT_THAT(Run({LAUNCHER, "run", "--server", "1", "--", "true"}, {}).err, HasSubstr("did you mean --servers?"));
  EndServer(server);
}

TEST_F(Service, WithAnotherSecretNobodyGetsIn) {
  const Server server = StartServer("32MiB");
  std::ofstream(folder_ / "other.key") << "another secret, long enough\n";
  std::filesystem::permissions(folder_ / "other.key", std::filesystem::perms(0600));
  const Outcome outcome = Run(Sweep(8 * kMiB), To(server.place, true, {"RAMSPAN_SERVER_KEY_FILE=" + (folder_ / "other.key").string()}));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("the same key file?"));
  // The server hangs up first and says why then.
  EXPECT_TRUE(Becomes([&] { return ReadFile(folder_ / "server-1.err").find("it has another secret") != std::string::npos; }));
  EXPECT_EQ(Run(Sweep(8 * kMiB), To(server.place, true)).status, 0) << "those who know it do";
  EndServer(server);
}

TEST_F(Service, AKeyFileThatOthersMayReadIsRefused) {
  std::ofstream(folder_ / "home/.ramspan.key") << "a secret that is none any more\n";
  std::filesystem::permissions(folder_ / "home/.ramspan.key", std::filesystem::perms(0644));
  const Outcome outcome = Run({LAUNCHER, "server", "--memory", "8MiB"}, {});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("chmod 600"));
}

TEST_F(Service, ServersThatAreNotThereAreAnErrorThatNamesThem) {
  std::ofstream(folder_ / "home/.ramspan.key") << "a secret that nobody needs\n";
  std::filesystem::permissions(folder_ / "home/.ramspan.key", std::filesystem::perms(0600));
  const Outcome outcome = Run(Sweep(8 * kMiB), To("127.0.0.1:1", true));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("memory server 127.0.0.1:1 cannot be used: Connection refused"));
}

// Who meets the library for the first time has no key file, because no server has made one yet.
TEST_F(Service, WithoutAKeyFileTheErrorNamesWhoMakesIt) {
  const Outcome program = Run(Sweep(8 * kMiB), To("127.0.0.1:1", true));
  EXPECT_EQ(program.status, 1);
  EXPECT_THAT(program.err, HasSubstr(".ramspan.key: No such file or directory; the first `ramspan server` makes it: start one, or copy the file"));
  EXPECT_THAT(Run({LAUNCHER, "ctl", "list", "127.0.0.1:1"}, {}).err, HasSubstr("the first `ramspan server` makes it"));
  const Outcome server = Run({LAUNCHER, "server", "--memory", "8MiB", "--key-file", "/nowhere/key"}, {});
  EXPECT_THAT(server.err, HasSubstr("key file /nowhere/key: it cannot be made: No such file or directory\n"));
}

// The kernel ended it without a word (SIGXFSZ) and the half of a key stayed, or, on a full disk, it was told to start a server.
TEST_F(Service, AKeyThatCannotBeWrittenIsAnErrorThatSaysWhyAndLeavesNothing) {
  const std::filesystem::path keys = folder_ / "keys";
  std::filesystem::create_directory(keys);
  // What is said goes through a pipe: the limit is also one of where the test reads it.
  const Outcome outcome = Run({"sh", "-c", "(ulimit -f 0; \"$@\"; echo status $?) 2>&1 | cat", "sh", LAUNCHER, "server", "--memory", "8MiB", "--key-file", keys / "key"}, {});
  EXPECT_EQ(outcome.out, "ramspan server: key file " + (keys / "key").string() + ": it cannot be written: File too large\nstatus 2\n");
  EXPECT_TRUE(std::filesystem::is_empty(keys));
}

// A server of this name introduced itself to nobody, and a job of this name was asked for in vain: links take printable ASCII alone.
TEST_F(Service, NamesOfOtherLettersAreUsedWithQuestionMarks) {
  const Server server = StartServer("8MiB", {"--socket", (folder_ / "größe").string()});
  const Outcome listed = Run({LAUNCHER, "ctl", "list", server.place}, {});
  EXPECT_EQ(listed.status, 0) << listed.err;
  const Outcome limited = Run({LAUNCHER, "ctl", "quota", server.place, "--memory", "4MiB", "--job", "größe"}, {});
  EXPECT_EQ(limited.status, 0) << limited.err;
  EXPECT_THAT(limited.out, HasSubstr("gr??"));
  EndServer(server);
}

// A script that looks for a server in the list found none.
TEST_F(Service, CtlFailsWhenItsOutputCannotBeWritten) {
  const Server server = StartServer("8MiB");
  const Outcome full = Run({"sh", "-c", "exec \"$@\" > /dev/full", "sh", LAUNCHER, "ctl", "list", server.place}, {});
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("No space left on device"));
  EndServer(server);
}

// The options of `ramspan run` were named, which had not been used.
TEST_F(Service, AFullServerThatStandsByItselfIsEnlargedByItsOwnOption) {
  const Server server = StartServer("8MiB");
  for (const bool far : {true, false}) {
    const Outcome outcome = Run(Sweep(24 * kMiB), To(server.place, far, {"RAMSPAN_SWAP=remote"}));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, HasSubstr("memory servers are full (8 MiB each, less what `ramspan ctl` keeps back: drain, shrink, quota; `ramspan ctl list` shows it): more memory of each (ramspan server --memory)"));
    EXPECT_THAT(outcome.err, Not(HasSubstr("--server-memory")));
  }
  EndServer(server);
}

TEST_F(Service, TransportMpiBesideNamedServersIsAnErrorThatSaysHowTheyAreReached) {
  const Outcome outcome = Run(Sweep(8 * kMiB), {"RAMSPAN_SERVERS=127.0.0.1:1", "RAMSPAN_TRANSPORT=mpi"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("transport = mpi"));
  EXPECT_THAT(outcome.err, HasSubstr("the servers that are named (servers) are reached by transport = ofi, or auto"));
}

// It started without a word, and the kernel would have ended it when its clients used what they were promised.
TEST_F(Service, AServerThatWouldLendMoreThanItsHostHasDoesNotStart) {
  const Outcome outcome = Run({LAUNCHER, "server", "--memory", "64TiB"}, {});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--memory 64TiB does not fit: this host has "));
  EXPECT_THAT(outcome.err, testing::ContainsRegex("of memory available. Remedy: --memory [0-9]+MiB or less\n"));
  EXPECT_THAT(Run({LAUNCHER, "server", "--memory", "64"}, {}).err, HasSubstr("is not between 1 MiB and 64 TiB; units forgotten? (64MiB)"));
}

TEST_F(Service, WhatCannotBeListenedAtIsAnErrorThatSaysWhy) {
  for (const auto& [listen, what] : std::vector<std::pair<std::string, std::string>>{
           {"0.0.0.0:0", "open to all networks"}, {"[::ffff:0.0.0.0]:0", "open to all networks"}, {"nowhere", "write HOST:PORT"}, {"192.0.2.77:0", "cannot listen at 192.0.2.77:0"}}) {
    const Outcome outcome = Run({LAUNCHER, "server", "--memory", "8MiB", "--listen", listen}, {});
    EXPECT_EQ(outcome.status, 2) << listen;
    EXPECT_THAT(outcome.err, HasSubstr(what));
  }
}

// libfabric's default would be 85 MB.
TEST_F(Service, AFarServerCostsAClientFewBuffersBesideItsLimit) {
  const Server server = StartServer("64MiB");
  const pid_t program = StartCommand(Sweep(24 * kMiB, 0), To(server.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  const std::string status = ReadFile("/proc/" + std::to_string(program) + "/status");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(status, found, std::regex("RssAnon:\\s+([0-9]+) kB"))) << status;
  EXPECT_LT(std::stoul(found[1]), 60u << 10) << "KiB, of which 4 MiB are the limit";
  EXPECT_GT(std::stoul(found[1]), 20u << 10) << "has it swapped at all? Then the documents can promise less";
  std::ofstream(folder_ / "ready/stop") << "";
  EXPECT_EQ(Wait(program).status, 0);
  EndServer(server);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadows need terabytes of addresses
// What had met the servers stayed for ever: with each try two threads, their sockets and one client more of theirs.
TEST_F(Service, AStartThatFailsLeavesNothingBehind) {
  const Server server = StartServer("64MiB");
  for (const bool far : {true, false}) {
    const Outcome outcome = Run({END_PROGRAM, "start-in-vain"}, To(server.place, far, {"RAMSPAN_SWAPFILES=" + (folder_ / "no/such/folder/%d-%d").string()}));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "0 threads and 0 descriptors more\n") << "far: " << far;
  }
  EndServer(server);
}

// libfabric could not map its buffers when the first transfer began, and said "later" for ever: for 30 s nothing moved, then the server was said to
// have died with data that it had never got.
TEST_F(Service, UnderALimitOfAddressesAServerServesOrIsRefusedForThem) {
  const Server server = StartServer("64MiB");
  int right = 0, refused = 0;
  for (const bool far : {true, false}) {
    for (const int megabytes : {36, 48, 84, 92, 100, 124, 300}) {
      const Outcome outcome = Run({"sh", "-c", "ulimit -v " + std::to_string(1024 * megabytes) + "; exec " END_PROGRAM " sweep"}, To(server.place, far));
      SCOPED_TRACE(std::string(far ? "far, " : "near, ") + std::to_string(megabytes) + " MiB: status " + std::to_string(outcome.status) + ", " + outcome.out + outcome.err);
      EXPECT_THAT(outcome.err, Not(HasSubstr("is gone")));
      EXPECT_THAT(outcome.err, Not(HasSubstr("died")));
      if (outcome.status == 0) {
        ++right;
        EXPECT_EQ(outcome.out, "sum right\n");
        continue;
      }
      ++refused;
      EXPECT_LT(outcome.status, 128) << "a signal ended it";
      EXPECT_THAT(outcome.err, testing::ContainsRegex("ulimit -[vd]|error while loading"));  // the loader's words
    }
  }
  EXPECT_GT(right, 0);
  EXPECT_GT(refused, 0);
  EndServer(server);
}
#endif

// Of all threads together; running time, which others on the same cores do not change.
TEST_F(Service, AnIdleServerUsesLessThanAHundredthOfACore) {
  const Server server = StartServer("64MiB", {"--listen", "127.0.0.1:0", "--threads", "3"});
  const auto run_seconds = [&] {
    double sum = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(server.pid) + "/task")) {
      double nanoseconds = 0;
      std::ifstream(task.path() / "schedstat") >> nanoseconds;
      sum += nanoseconds * 1e-9;
    }
    return sum;
  };
  const pid_t client = StartCommand(Loss(), To(server.place, true));
  Ready(0);  // its data is there, and it only waits now
  double least = 1;
  for (int i = 0; i < 5 && least >= 0.01; ++i) {
    const double before = run_seconds();
    const auto begin = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(seconds(1));
    least = std::min(least, (run_seconds() - before) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  EXPECT_LT(least, 0.01);
  SayGo();
  EXPECT_EQ(Wait(client).status, 0);
  EndServer(server);
}

TEST_F(Service, NeitherSideLoadsWhatItDoesNotUse) {
  const Server server = StartServer("32MiB");
  const auto libraries = [](pid_t pid) { return ReadFile("/proc/" + std::to_string(pid) + "/maps"); };
  EXPECT_THAT(libraries(server.pid), Not(HasSubstr("libmpi")));
  const pid_t without = StartCommand(Sweep(8 * kMiB, 0), {"RAMSPAN_MEMORY=4MiB"});
  Ready(0);
  EXPECT_THAT(libraries(without), testing::AllOf(Not(HasSubstr("libfabric")), Not(HasSubstr("libmpi")), Not(HasSubstr("libucp"))));
  std::ofstream(folder_ / "ready/stop") << "";
  EXPECT_EQ(Wait(without).status, 0);
  for (const bool far : {true, false}) {
    ClearReady();
    std::filesystem::remove(folder_ / "ready/stop");
    const pid_t with = StartCommand(Sweep(8 * kMiB, 0), To(server.place, far, {"RAMSPAN_SWAP=remote"}));
    Ready(0);
    EXPECT_THAT(libraries(with), testing::AllOf(HasSubstr("libfabric"), Not(HasSubstr("libmpi")))) << "libfabric brings no MPI along, and nothing else needs it";
    std::ofstream(folder_ / "ready/stop") << "";
    EXPECT_EQ(Wait(with).status, 0);
  }
  EndServer(server);
}

// What the dynamic linker would load at the start.
TEST_F(Service, AProgramIsNotLinkedWithMpiBecauseOfRamspan) {
  const Outcome outcome = Run({"ldd", SWEEP_PROGRAM}, {});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("libramspan.so"));
  EXPECT_THAT(outcome.out, testing::AllOf(Not(HasSubstr("libmpi")), Not(HasSubstr("libramspan-mpi")), Not(HasSubstr("libfabric"))));
}

}  // namespace
}  // namespace ramspan
