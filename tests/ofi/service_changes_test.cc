// Servers that come, drain, lend less and end while programs use them, and programs that share them: what `ramspan ctl`, rendezvous folders,
// fair shares and quotas do, as a user sees it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include <gmock/gmock.h>

#include "common/descriptor.h"
#include "tests/ofi/service_fixture.h"
#include "tests/support/send_signal.h"

namespace ramspan {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class ServiceChanges : public ServiceFixture {};

// The program goes on meanwhile, and every byte is looked at afterwards.
TEST_F(ServiceChanges, ADrainedServerEndsAndItsClientsHaveMovedElsewhere) {
  for (const bool far : {true, false}) {
    ClearReady();
    std::filesystem::remove(folder_ / "ready/stop");
    std::filesystem::remove(folder_ / "ready/go");
    const Server first = StartServer("64MiB"), second = StartServer("64MiB");
    const pid_t program = StartCommand(Sweep(24 * kMiB, 0), To(first.place + "," + second.place, far, {"RAMSPAN_SWAP=remote"}));
    Ready(0);
    Words command = {"sh", "-c", "exec \"$@\" > " + (folder_ / "drain").string(), "sh", LAUNCHER, "ctl", "drain", "--wait", first.place};
    EXPECT_EQ(Wait(StartCommand(command)).status, 0);
    EXPECT_THAT(ReadFile(folder_ / "drain"), HasSubstr(first.place + " drains: "));
    EXPECT_THAT(ReadFile(folder_ / "drain"), HasSubstr(" to go\n" + first.place + " has ended\n"));
    EXPECT_EQ(Wait(first.pid).status, 0) << "it ends by itself";
    std::ofstream(folder_ / "ready/stop") << "";
    const Outcome outcome = Wait(program);
    EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
    EXPECT_EQ(outcome.err, "") << "nobody lost anything";
    EndServer(second);
  }
}

// It was told as a death, in the log of each program that had nothing there.
TEST_F(ServiceChanges, AServerThatIsDrainedIsNotSaidToHaveDiedByWhoHasNothingThere) {
  for (const bool far : {true, false}) {
    ClearReady();
    std::filesystem::remove(folder_ / "ready/stop");
    std::filesystem::remove(folder_ / "ready/go");
    const Server server = StartServer("64MiB");
    const pid_t program = StartCommand(Sweep(2 * kMiB, 0), To(server.place, far));
    Ready(0);
    EXPECT_THAT(Ctl({"drain", "--wait", server.place}), HasSubstr("has ended"));
    EXPECT_EQ(Wait(server.pid).status, 0);
    std::ofstream(folder_ / "ready/stop") << "";
    const Outcome outcome = Wait(program);
    EXPECT_EQ(outcome.out, "verified " + std::to_string(2 * kMiB) + " bytes\n") << outcome.err;
    EXPECT_EQ(outcome.err, "") << (far ? "far" : "near");
  }
}

TEST_F(ServiceChanges, TheLastServerDrainsToFilesOfAProgramThatDoesNothing) {
  const Server server = StartServer("64MiB");
  const pid_t program = StartCommand(Loss(), To(server.place, true));
  Ready(0);
  Words command = {"sh", "-c", "exec \"$@\" > " + (folder_ / "drain").string(), "sh", LAUNCHER, "ctl", "drain", server.place};
  EXPECT_EQ(Wait(StartCommand(command)).status, 0);
  EXPECT_EQ(Wait(server.pid).status, 0);
  SayGo();
  EXPECT_EQ(Wait(program).out, "kept 64 lost 0 wrong 0 new 64\n");
}

// Nothing has another place: the data stays where it is.
TEST_F(ServiceChanges, AServerThatNobodyCanLeaveStaysAndMayLendAgain) {
  const Server server = StartServer("64MiB");
  Words command = Loss();
  command.insert(command.begin(), {"sh", "-c", "exec \"$@\" > " + (folder_ / "said").string() + " 2>&1", "sh"});
  const pid_t program = StartCommand(command, To(server.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  EXPECT_EQ(Run({LAUNCHER, "ctl", "drain", server.place}, {}).status, 0);
  EXPECT_THAT(Run({LAUNCHER, "ctl", "list", server.place}, {}).out, HasSubstr("; it drains"));
  EXPECT_EQ(Run({LAUNCHER, "ctl", "undrain", server.place}, {}).status, 0);
  SayGo();
  EXPECT_EQ(Wait(program).status, 0);
  EXPECT_THAT(ReadFile(folder_ / "said"), HasSubstr("kept 64 lost 0 wrong 0 new 64\n"));
  EndServer(server);
}

// The second one was told when the first had ended, and lent meanwhile, to those who moved away from the first, too.
TEST_F(ServiceChanges, CtlDrainTellsAllServersBeforeItWaitsForOne) {
  const Server held = StartServer("64MiB"), free = StartServer("64MiB");
  Words command = Loss();
  command.insert(command.begin(), {"sh", "-c", "exec \"$@\" > " + (folder_ / "said").string() + " 2>&1", "sh"});
  const pid_t program = StartCommand(command, To(held.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  const std::string told = (folder_ / "drain").string();
  const pid_t drain = StartCommand({"sh", "-c", "exec \"$@\" > " + told + " 2>&1", "sh", LAUNCHER, "ctl", "drain", "--wait", held.place + "," + free.place});
  EXPECT_EQ(Wait(free.pid, seconds(30)).status, 0) << "it holds nothing, and ends";
  EXPECT_EQ(Run({LAUNCHER, "ctl", "undrain", held.place}, {}).status, 0);
  EXPECT_EQ(Wait(drain).status, 1) << "the first one lends again";
  EXPECT_THAT(ReadFile(told), AllOf(HasSubstr("it drains no more"), HasSubstr(free.place + " has ended\n")));
  SayGo();
  EXPECT_EQ(Wait(program).status, 0);
  EndServer(held);
}

// Nobody names a server: they write themselves down in a folder, and a program that runs meanwhile follows.
TEST_F(ServiceChanges, ServersJoinAndLeaveByAFolderWhileAProgramRuns) {
  const std::string servers = (folder_ / "servers").string(), name = "dir:" + servers;
  const Words where = {"--listen", "127.0.0.1:0", "--rendezvous", servers};
  const Server first = StartServer("64MiB", where);
  EXPECT_EQ(std::filesystem::status(servers).permissions(), std::filesystem::perms(0700));
  EXPECT_EQ(std::filesystem::status(servers + "/key").permissions(), std::filesystem::perms(0600));
  const pid_t program = StartCommand(Sweep(24 * kMiB, 0), To(name, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  const Server second = StartServer("64MiB", where);
  EXPECT_TRUE(Becomes([&] { return testing::Matches(HasSubstr(second.place + " lends 64 MiB, of which 1 client"))(Ctl({"list", name})); })) << "it joins";
  EXPECT_THAT(Ctl({"drain", "--wait", first.place, "--key-file", servers + "/key"}), HasSubstr(first.place + " has ended"));
  EXPECT_EQ(Wait(first.pid).status, 0);
  EXPECT_THAT(Ctl({"list", name}), AllOf(HasSubstr(second.place), Not(HasSubstr(first.place))));
  std::ofstream(folder_ / "ready/stop") << "";
  const Outcome outcome = Wait(program);
  EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EndServer(second);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(servers), std::filesystem::directory_iterator()), 1) << "the key";
}

// What becomes of servers that other lines name, PlaceFile's tests look at.
TEST_F(ServiceChanges, AServerWritesAFileByWhichProgramsFindItAndTakesItAwayAtItsEnd) {
  const std::string file = (folder_ / "server").string();
  const Server server = StartServer("64MiB", {"--listen", "127.0.0.1:0", "--rendezvous", "file:" + file});
  EXPECT_EQ(ReadFile(file), server.place + "\n");
  const Outcome outcome = Run(Sweep(24 * kMiB), To("file:" + file, true, {"RAMSPAN_SWAP=remote"}));
  EXPECT_EQ(outcome.out, "verified " + std::to_string(24 * kMiB) + " bytes\n") << outcome.err;
  EXPECT_THAT(Ctl({"list", "file:" + file}), HasSubstr(server.place + " lends 64 MiB"));
  EndServer(server);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_F(ServiceChanges, AProgramThatStartsBeforeItsServersUsesThemLater) {
  const std::string servers = (folder_ / "servers").string();
  EndServer(StartServer("8MiB", {"--rendezvous", servers}));  // makes folder and key
  const pid_t program = StartCommand(Sweep(24 * kMiB, 0), To("dir:" + servers, true));
  Ready(0);
  const Server server = StartServer("64MiB", {"--listen", "127.0.0.1:0", "--rendezvous", servers});
  EXPECT_TRUE(Becomes([&] { return testing::Matches(testing::ContainsRegex("1 client holds [1-9]"))(Ctl({"list", "dir:" + servers})); })) << "what is in files moves up";
  std::ofstream(folder_ / "ready/stop") << "";
  EXPECT_EQ(Wait(program).out, "verified " + std::to_string(24 * kMiB) + " bytes\n");
  EndServer(server);
}

// Nothing is ever written again, so only what leaves unchanged can move.
TEST_F(ServiceChanges, WhatIsOnlyReadMovesUpToAServerThatComesLater) {
  const std::string servers = (folder_ / "servers").string();
  EndServer(StartServer("8MiB", {"--rendezvous", servers}));  // makes folder and key
  const pid_t program = StartCommand(Loss(), To("dir:" + servers, true));
  Ready(0);
  std::ofstream(folder_ / "ready/read") << "";
  const Server server = StartServer("64MiB", {"--listen", "127.0.0.1:0", "--rendezvous", servers});
  // Its first lease has 8 MiB, and it asks for the second one when most of that is full.
  EXPECT_TRUE(Becomes([&] { return testing::Matches(testing::ContainsRegex("1 client holds (1[6-9]|[2-6][0-9])"))(Ctl({"list", "dir:" + servers})); }));
  std::filesystem::remove(folder_ / "ready/read");
  SayGo();
  EXPECT_EQ(Wait(program).out, "kept 64 lost 0 wrong 0 new 64\n");
  EndServer(server);
}

TEST_F(ServiceChanges, WhatAKilledServerLeftInTheFolderIsSweptByTheNext) {
  const std::string servers = (folder_ / "servers").string();
  const Words where = {"--listen", "127.0.0.1:0", "--rendezvous", servers};
  EndServer(StartServer("8MiB", where), SIGKILL, 128 + SIGKILL);
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(servers), std::filesystem::directory_iterator()); };
  EXPECT_EQ(files(), 2) << "its file and the key";
  const Server second = StartServer("8MiB", where);
  EXPECT_TRUE(Becomes([&] { return files() == 2; })) << "the second one's file and the key";
  EXPECT_THAT(ReadFile(folder_ / "server-2.err"), HasSubstr("clients of other hosts find it in " + servers + " and cannot reach it")) << "it listens at 127.0.0.1";
  EndServer(second, SIGKILL, 128 + SIGKILL);
  EXPECT_THAT(Ctl({"list", "dir:" + servers}), HasSubstr("1 file of dead servers swept\n"));
  EXPECT_EQ(files(), 1);
}

TEST_F(ServiceChanges, AProgramNamesOtherServersAndLeavesTheFirst) {
  const Server first = StartServer("64MiB"), second = StartServer("64MiB");
  const pid_t program = StartCommand(Loss(), To(first.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  std::ofstream(folder_ / "ready/new-servers") << second.place << "\n";
  std::filesystem::rename(folder_ / "ready/new-servers", folder_ / "ready/servers");
  EXPECT_TRUE(Becomes([&] { return testing::Matches(HasSubstr("of which 0 clients hold 0 B"))(Ctl({"list", first.place})); }));
  EXPECT_THAT(Ctl({"list", second.place}), testing::ContainsRegex("1 client holds [1-9]"));
  EndServer(first, SIGKILL, 128 + SIGKILL);
  SayGo();
  const Outcome outcome = Wait(program);
  EXPECT_EQ(outcome.out, "kept 64 lost 0 wrong 0 new 64\n") << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EndServer(second);
}

// What was there is lost, and nothing else: without the server that came back there would be no room for what is new.
TEST_F(ServiceChanges, AServerThatIsStartedAgainAtItsAddressIsUsedByItsOldClients) {
  const Server before = StartServer("64MiB");
  const pid_t program = StartCommand(Loss(), To(before.place, true, {"RAMSPAN_SWAP=remote"}));
  Ready(0);
  EndServer(before, SIGKILL, 128 + SIGKILL);
  const Server again = StartServer("64MiB", {"--listen", before.place});
  EXPECT_EQ(again.place, before.place);
  EXPECT_TRUE(Becomes([&] { return testing::Matches(HasSubstr("of which 1 client"))(Ctl({"list", again.place})); }));
  SayGo();
  const Outcome outcome = Wait(program);
  EXPECT_THAT(outcome.out, HasSubstr("wrong 0 new 64\n")) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("lost 0 ")));
  EndServer(again);
}

// One that has it all, and one that comes later and has nowhere else to go: the server asks the first to move away what is
// above its share.
TEST_F(ServiceChanges, AHogGivesBackWhatALaterProgramHasARightTo) {
  for (const bool far : {true, false}) {
    ClearReady();
    std::filesystem::remove(folder_ / "ready/stop");
    const Server server = StartServer("32MiB");
    const pid_t hog = StartCommand(Sweep(40 * kMiB, 0), To(server.place, far));
    Ready(0);
    EXPECT_TRUE(Becomes([&] { return testing::Matches(testing::ContainsRegex("1 client holds (2[89]|3[0-2])"))(Ctl({"list", server.place})); }));
    Words late = {"sh", "-c", "exec \"$@\" > " + (folder_ / "late").string() + " 2>&1", "sh"};
    const Words sweep = {SWEEP_PROGRAM, std::to_string(16 * kMiB), std::to_string(256 << 10), "1", "1", "2"};
    late.insert(late.end(), sweep.begin(), sweep.end());
    EXPECT_EQ(Wait(StartCommand(late, To(server.place, far, {"RAMSPAN_SWAP=remote", "RAMSPAN_TEST_READY=" + folder_.string()}))).status, 0);
    EXPECT_EQ(ReadFile(folder_ / "late"), "verified " + std::to_string(16 * kMiB) + " bytes\n");
    std::ofstream(folder_ / "ready/stop") << "";
    const Outcome outcome = Wait(hog);
    EXPECT_EQ(outcome.out, "verified " + std::to_string(40 * kMiB) + " bytes\n") << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EndServer(server);
  }
}

TEST_F(ServiceChanges, AServerThatShrinksOrSetsAQuotaGetsBackWhatIsTooMuch) {
  const Server server = StartServer("64MiB");
  const pid_t program = StartCommand(Sweep(48 * kMiB, 0), To(server.place, true));
  Ready(0);
  EXPECT_TRUE(Becomes([&] { return testing::Matches(testing::ContainsRegex("1 client holds (4[0-9]|5|6).*writes .*/s, reads "))(Ctl({"list", server.place})); })) << "and how fast";
  EXPECT_THAT(Ctl({"shrink", server.place, "--memory", "32MiB"}), HasSubstr("lends 32 MiB, of which "));
  EXPECT_TRUE(Becomes([&] { return testing::Matches(testing::ContainsRegex("lends 32 MiB, of which 1 client holds (32|[12][0-9]|[1-9])[. ]"))(Ctl({"list", server.place})); }));
  EXPECT_THAT(Ctl({"quota", server.place, "--memory", "16MiB"}), HasSubstr("each job may hold 16 MiB"));
  EXPECT_TRUE(Becomes([&] { return testing::Matches(testing::ContainsRegex("1 client holds (1[0-6]|[1-9])[. ](.|\n)* of at most 16 MiB"))(Ctl({"list", server.place})); }));
  std::ofstream(folder_ / "ready/stop") << "";
  const Outcome outcome = Wait(program);
  EXPECT_EQ(outcome.out, "verified " + std::to_string(48 * kMiB) + " bytes\n") << outcome.err;
  EndServer(server);
}

// It ended at once, without taking back its file in the folder or its socket.
TEST_F(ServiceChanges, ATerminalThatHangsUpEndsAServerAsSigtermDoesUnlessNohupSaysOtherwise) {
  const std::string socket = (folder_ / "socket").string();
  const Server ends = StartServer("64MiB", {"--socket", socket});
  for (int i = 0; i < 200; ++i) SendSignal(ends.pid, SIGHUP);  // terminals send two
  EndServer(ends, SIGHUP);
  EXPECT_FALSE(std::filesystem::exists(socket));
  limited_ = "nohup";
  const Server stays = StartServer("64MiB");
  SendSignal(stays.pid, SIGHUP);
  const Outcome outcome = Run(Sweep(24 * kMiB), To(stays.place, false, {"RAMSPAN_SWAP=remote"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EndServer(stays);
}

bool HasServerFile(const std::filesystem::path& folder) {
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    if (one.path().filename().string().rfind("server-", 0) == 0) return true;
  }
  return false;
}

// From the end of its loop on it was killed by the second one, before it had taken back anything.
TEST_F(ServiceChanges, ASecondSignalDoesNotKeepAServerFromTakingBackItsFiles) {
  const std::string socket = (folder_ / "socket").string(), folder = (folder_ / "rendezvous").string();
  for (const int signal : {SIGTERM, SIGINT}) {
    const Server server = StartServer("64MiB", {"--socket", socket, "--rendezvous", folder});
    EXPECT_TRUE(std::filesystem::exists(socket));
    EXPECT_TRUE(HasServerFile(folder));
    for (int i = 0; i < 200; ++i) SendSignal(server.pid, signal);
    EXPECT_EQ(Wait(server.pid).status, 0) << signal;
    EXPECT_FALSE(std::filesystem::exists(socket)) << signal;
    EXPECT_FALSE(HasServerFile(folder)) << signal;
  }
}

// A library of libfabric's made it an exit with status 1, without a word, from when it was loaded until the server served.
TEST_F(ServiceChanges, ASignalWhileAServerStartsEndsItInOrder) {
  const std::string socket = (folder_ / "socket").string();
  for (int milliseconds = 0; milliseconds < 250; milliseconds += 25) {  // of those that a start takes; any moment is right
    const pid_t pid = StartCommand({LAUNCHER, "server", "--memory", "8MiB", "--socket", socket});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    SendSignal(pid, SIGTERM);
    const Outcome outcome = Wait(pid);
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 128 + SIGTERM) << outcome.status << " after " << milliseconds << " ms: " << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(socket)) << milliseconds;
  }
}

// A server that waits for its key file, which is a pipe here, as for a file system that does not answer.
class ServiceThatHangs : public ServiceFixture {
 protected:
  ServiceThatHangs() {
    EXPECT_EQ(mkfifo(key_.c_str(), 0600), 0);
    pid_ = StartCommand({LAUNCHER, "server", "--memory", "8MiB", "--socket", socket_, "--key-file", key_});
    // There is nobody to write to before the server reads.
    EXPECT_TRUE(Becomes([this] { return (writes_ = Descriptor(open(key_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC))).number() >= 0; }));
  }

  const std::string key_ = (folder_ / "pipe").string(), socket_ = (folder_ / "socket").string();
  pid_t pid_ = -1;
  Descriptor writes_;
};

TEST_F(ServiceThatHangs, EndsInOrderAtOneSignalAsSoonAsItCan) {
  SendSignal(pid_, SIGTERM);
  const std::string secret = "a secret, long enough\n";
  EXPECT_EQ(write(writes_.number(), secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
  writes_ = Descriptor();
  const Outcome outcome = Wait(pid_);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(socket_));
}

TEST_F(ServiceThatHangs, EndsAtOnceWhenItIsAskedAgain) {
  const auto has_ended = [this] { return ReadFile("/proc/" + std::to_string(pid_) + "/stat").find(") Z ") != std::string::npos; };
  EXPECT_TRUE(Becomes([&] { return SendSignal(pid_, SIGINT) != 0 || has_ended(); }));
  EXPECT_EQ(Wait(pid_).status, 128 + SIGINT);
}

}  // namespace
}  // namespace ramspan
