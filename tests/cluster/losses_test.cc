// Servers that are killed and cables that are pulled: what is lost is said, the rest goes on, and nobody waits for ever.
#include <signal.h>

#include <cstdio>
#include <thread>

#include <gmock/gmock.h>

#include "tests/cluster/cluster_fixture.h"

namespace ramspan {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr int kChunks = 64;  // of 256 KiB: 16 MiB, four times the client's own memory
// By the client's own deadline; the kernel's end a connection much later.
constexpr char kGivenUp[] = "h1:7117 is gone: it has (not answered|moved nothing) for [0-9]+ s";

class ClusterLosses : public ClusterFixture {
 protected:
  struct Counts {
    int kept = -1, lost = -1, wrong = -1, fresh = -1;
  };
  Counts Counted(const Started& program) {
    const Outcome outcome = WaitFor(program);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    Counts counts;
    std::sscanf(outcome.out.c_str(), "kept %d lost %d wrong %d new %d", &counts.kept, &counts.lost, &counts.wrong, &counts.fresh);
    EXPECT_EQ(counts.kept + counts.lost, kChunks) << outcome.out << outcome.err;
    EXPECT_EQ(counts.wrong, 0) << outcome.out;
    EXPECT_EQ(counts.fresh, kChunks) << outcome.out << outcome.err;
    return counts;
  }
  // Of running time, until a server that does not answer is given up.
  static Words GivesUpAfter(int s) { return {"RAMSPAN_TEST_SILENCE_MAX=" + std::to_string(s)}; }
  static void AwaitInErrors(const Started& program, const std::string& what, size_t times) {
    const auto count = [&] {
      const std::string text = program.err();
      size_t found = 0;
      for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++found;
      return found;
    };
    EXPECT_TRUE(Becomes([&] { return count() >= times; })) << what << ": " << program.err();
  }
  static bool HasClient(const Listing& listing) { return !listing.bytes_of.empty(); }
};

TEST_F(ClusterLosses, AKilledServerLosesWhatItHeldAndIsUsedAgainWhenItIsBack) {
  // The second server cannot hold the new chunks alone, and there are no files: they need the first one's successor.
  Server first = StartServer(1, "16MiB");
  const Server second = StartServer(2, "16MiB");
  const Started program = StartClient(3, Loss(kChunks), PlaceOf(1) + "," + PlaceOf(2));
  AwaitReady(program);
  EXPECT_GT(List(second.place).held_bytes, 0u);
  EndServer(first, SIGKILL, 128 + SIGKILL);
  first = StartServer(1, "16MiB");
  ListUntil(first.place, HasClient);
  SayGo(program);
  const Counts counts = Counted(program);
  EXPECT_GE(counts.lost, 8) << "what was on the first";
  EXPECT_GE(counts.kept, 16) << "what was in memory, and on the second";
  EXPECT_THAT(program.err(), HasSubstr("memory server h1:7117"));
  EndServer(first);
  EndServer(second);
}

TEST_F(ClusterLosses, ACableThatIsPulledForAMomentLosesNothing) {
  const Server server = StartServer(1, "64MiB");
  const Started program = StartClient(2, Loss(kChunks), PlaceOf(1));
  AwaitReady(program);
  Unplug(1);
  SayGo(program);
  usleep(500'000);  // the program is waiting for its first chunk by now, or not: both must do
  Plug(1);
  EXPECT_EQ(Counted(program).lost, 0);
  EXPECT_EQ(program.err(), "");
  EndServer(server);
}

TEST_F(ClusterLosses, AServerBehindAPulledCableIsGivenUpAndUsedAgainWhenTheCableIsBack) {
  const Server server = StartServer(1, "64MiB");
  const Words options = {"RAMSPAN_TEST_SILENCE_MAX=2", "RAMSPAN_LOG=info"};
  const Started program = StartClient(2, Loss(kChunks), PlaceOf(1), options);
  AwaitReady(program);
  Unplug(1);
  AwaitInErrors(program, "memory server h1:7117 died", 1);
  AwaitInErrors(program, "memory server h1:7117 is gone", 1);  // said by another thread
  EXPECT_THAT(program.err(), testing::ContainsRegex(kGivenUp));
  Plug(1);
  AwaitInErrors(program, "over the network", 2);  // said when it is found
  SayGo(program);  // there are no files: the new chunks need the server
  const Counts counts = Counted(program);
  EXPECT_GE(counts.lost, 40) << "what was on the server";
  EXPECT_GE(counts.kept, 8) << "what was in memory";
  EndServer(server);
}

TEST_F(ClusterLosses, AProgramThatWaitsForAServerBehindAPulledCableGoesOnWithTheRest) {
  const Server first = StartServer(1, "64MiB"), second = StartServer(2, "64MiB");
  const auto start = [&] {
    Started one = StartClient(3, Loss(kChunks), PlaceOf(1) + "," + PlaceOf(2), GivesUpAfter(2));
    AwaitReady(one);
    return one;
  };
  Started program = start();
  // On a busy machine the first server may have answered so late that all went to the second one.
  for (int tries = 0; tries < 5 && List(first.place).held_bytes < 8 * (256u << 10); ++tries) {
    SayGo(program);
    EXPECT_EQ(Counted(program).lost, 0);
    program = start();
  }
  ASSERT_GE(List(first.place).held_bytes, 8 * (256u << 10)) << "then this test shows nothing";
  Unplug(1);
  SayGo(program);
  const Counts counts = Counted(program);  // the cable stays where it is
  EXPECT_GE(counts.lost, 8);
  EXPECT_GE(counts.kept, 16);
  EXPECT_THAT(program.err(), testing::ContainsRegex(kGivenUp));
  Plug(1);
  EndServer(first);
  EndServer(second);
}

// The interface itself goes, and with it the routes: sends fail at once instead of going nowhere.
TEST_F(ClusterLosses, AnInterfaceThatGoesDownOnTheClientsHostIsNoHang) {
  const Server server = StartServer(1, "64MiB");
  const Started program = StartClient(2, Loss(kChunks), PlaceOf(1), GivesUpAfter(2), "auto");
  AwaitReady(program);
  EXPECT_EQ(std::system("ip -n h2 link set eth0 down"), 0);
  SayGo(program);
  EXPECT_GE(Counted(program).lost, 40);
  EXPECT_EQ(std::system("ip -n h2 link set eth0 up"), 0);
  EndServer(server);
}

// Nobody tells the server of such a death; the kernel's probes find out (45 s, common/socket_address.cc).
TEST_F(ClusterLosses, LongTheLeasesOfAClientWhoseHostIsGoneComeBackWithinTheDeadline) {
  const Server server = StartServer(1, "32MiB");
  const Started hog = StartClient(2, Loss(96), PlaceOf(1));
  AwaitReady(hog);
  Unplug(2);
  Kill(hog);
  EXPECT_FALSE(IsEmpty(List(server.place)));
  ListUntil(server.place, IsEmpty, seconds(120));
  EndServer(server);
}

// Less than the silence after which a server is given up: nothing is lost, however long TCP then waits before it tries again.
TEST_F(ClusterLosses, LongWhatANetworkThatIsBackInTimeHeldUpIsThere) {
  const Server server = StartServer(1, "64MiB");
  const Started program = StartClient(2, Loss(kChunks), PlaceOf(1));
  AwaitReady(program);
  Unplug(2);
  SayGo(program);
  std::this_thread::sleep_for(seconds(20));
  Plug(2);
  EXPECT_EQ(Counted(program).lost, 0);
  EndServer(server);
}

}  // namespace
}  // namespace ramspan
