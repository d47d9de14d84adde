// Memory servers on several hosts, which come and go, and clients on others, while every byte is looked at.
#include <signal.h>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/cluster_fixture.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using testing::HasSubstr;
using testing::Not;

// Of one client. It has 4 MiB of its own, so some 20 MiB are with servers at each moment.
constexpr size_t kData = 24 * kMiB;
constexpr int kChunks = kData / (256 << 10);  // of Loss, which waits in between

class ClusterServers : public ClusterFixture {
 protected:
  static nlohmann::json RemoteStatistics(const Started& program) { return nlohmann::json::parse(ReadFile(program.folder / "stats.json")).at("tiers").at("remote"); }
  static uint64_t Remote(const Started& program, const char* what) { return RemoteStatistics(program).at(what).get<uint64_t>(); }
  // Each server by its name, and their bytes add up to those of all.
  static void ExpectStatisticsOf(const Started& program, const std::set<std::string>& places) {
    std::set<std::string> names;
    uint64_t out = 0, in = 0;
    const nlohmann::json remote = RemoteStatistics(program);
    for (const nlohmann::json& server : remote.at("servers")) {
      names.insert(server.at("server").get<std::string>());
      EXPECT_EQ(server.at("state"), "alive");
      out += server.at("bytes_out").get<uint64_t>();
      in += server.at("bytes_in").get<uint64_t>();
    }
    EXPECT_EQ(names, places);
    // A server's bytes count from the beginning of a transfer, those of all from its end: what is read ahead or written back when the program ends
    // is in the first sum only. More than the program's memory cannot be under way.
    const auto expect_sum = [](uint64_t of_servers, uint64_t of_all) {
      EXPECT_GE(of_servers, of_all);
      EXPECT_LE(of_servers, of_all + 4 * kMiB);
    };
    expect_sum(out, Remote(program, "bytes_out"));
    expect_sum(in, Remote(program, "bytes_in"));
  }
  void ExpectAllKept(const Started& program) {
    const std::string count = std::to_string(kChunks);
    const Outcome outcome = WaitFor(program);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "kept " + count + " lost 0 wrong 0 new " + count + "\n") << outcome.err;
  }
  static Words Statistics() { return {"RAMSPAN_STATS=stats.json"}; }
};

// What the servers say that clients hold, and what the clients say that they moved.
class ClusterCounts : public ClusterServers, public testing::WithParamInterface<int> {};

TEST_P(ClusterCounts, ClientsOfOtherHostsUseAllServersAndEachServerKnowsWhoHoldsWhat) {
  const int count = GetParam();
  std::vector<Server> servers;
  std::string places;
  std::set<std::string> names;
  for (int host = 1; host <= count; ++host) {
    servers.push_back(StartServer(host, "64MiB"));
    names.insert(PlaceOf(host));
    places += (host == 1 ? "" : ",") + PlaceOf(host);
  }
  const std::vector<Started> clients = {StartClient(7, Loss(kChunks), places, Statistics()), StartClient(8, Loss(kChunks), places, Statistics())};
  for (const Started& client : clients) AwaitReady(client);
  uint64_t at_h7 = 0, at_h8 = 0;
  int used = 0, unused = 0;  // by clients
  for (const Server& server : servers) {
    const Listing listing = List(server.place);
    EXPECT_EQ(listing.lent_bytes, 64 * kMiB);
    EXPECT_EQ(listing.bytes_of.size(), clients.size()) << server.place;
    uint64_t sum = 0;
    for (const auto& [who, bytes] : listing.bytes_of) {
      (who == "loss_program@h7" ? at_h7 : at_h8) += bytes;
      ++(bytes > 0 ? used : unused);
      sum += bytes;
    }
    EXPECT_EQ(sum, listing.held_bytes);
    EXPECT_LE(sum, listing.lent_bytes);
  }
  EXPECT_GE(used, std::max(2 * 2, count)) << "of " << used + unused << ": clients use several servers, and not all the same";
  for (const uint64_t held : {at_h7, at_h8}) EXPECT_GE(held, kData - 4 * kMiB) << "what is not in memory is with servers";
  for (const Started& client : clients) SayGo(client);
  for (const Started& client : clients) {
    ExpectAllKept(client);
    EXPECT_EQ(client.err(), "") << "nothing is printed in a healthy run";
    EXPECT_GT(Remote(client, "bytes_in"), kData / 2);
    EXPECT_GT(Remote(client, "bytes_out"), kData / 2);
    EXPECT_EQ(Remote(client, "errors"), 0u);
    ExpectStatisticsOf(client, names);
  }
  for (const Server& server : servers) {
    ListUntil(server.place, IsEmpty);
    EndServer(server);
    EXPECT_EQ(server.err(), "");
  }
}
INSTANTIATE_TEST_SUITE_P(Of, ClusterCounts, testing::Values(2, 6));

TEST_F(ClusterServers, AClientUsesTheServerOfItsOwnHostFirst) {
  const Server far = StartServer(1, "64MiB"), near = StartServer(2, "64MiB");
  const Started client = StartClient(2, Loss(kChunks), PlaceOf(1) + "," + PlaceOf(2));
  AwaitReady(client);
  EXPECT_GE(List(near.place).held_bytes, kData - 4 * kMiB);
  EXPECT_EQ(List(far.place).held_bytes, 0u);
  SayGo(client);
  ExpectAllKept(client);
  EndServer(far);
  EndServer(near);
}

// One client knows the places, the other one looks into a folder where the servers write down theirs.
TEST_F(ClusterServers, ServersJoinAndLeaveUnderLoadAndNoByteIsLost) {
  const std::string folder = (folder_ / "servers").string(), key = (folder_ / "home/.ramspan.key").string();
  const Words noted = {"--rendezvous", folder, "--key-file", key};
  std::map<int, Server> servers = {{1, StartServer(1, "64MiB", noted)}};
  const std::vector<Started> clients = {StartClient(4, Sweep(kData), PlaceOf(1) + "," + PlaceOf(2)),
                                        StartClient(5, Sweep(kData), "dir:" + folder, {"RAMSPAN_SERVER_KEY_FILE=" + key})};
  for (const Started& client : clients) AwaitReady(client);
  const auto both_are_there = [](const Listing& listing) { return listing.bytes_of.size() == 2; };
  // Each time another host's server comes, and the one that had everything goes. The first comes back in the end.
  for (const auto& [leaves, joins] : std::vector<std::pair<int, int>>{{1, 2}, {2, 1}}) {
    servers[joins] = StartServer(joins, "64MiB", noted);
    ListUntil(servers[joins].place, both_are_there);
    EXPECT_EQ(Ctl({"drain", servers[leaves].place}).status, 0);
    EXPECT_EQ(WaitFor(servers[leaves]).status, 0) << "it ends by itself when it is empty";
    EXPECT_GE(List(servers[joins].place).held_bytes, 2 * (kData - 4 * kMiB)) << "all is there now";
  }
  for (const Started& client : clients) SayStop(client);
  for (const Started& client : clients) {
    ExpectVerified(client, kData);
    EXPECT_THAT(client.err(), Not(HasSubstr("lost")));
  }
  EndServer(servers[1]);
}

TEST_F(ClusterServers, TwoJobsShareOneServerAndTheMemoryOfTheOneThatEndsIsTheOthers) {
  const Server server = StartServer(1, "64MiB");
  const Started first = StartClient(2, Loss(kChunks / 2), PlaceOf(1)), second = StartClient(3, Loss(kChunks), PlaceOf(1));
  AwaitReady(first);
  AwaitReady(second);
  EXPECT_EQ(List(server.place).bytes_of.size(), 2u);
  SayGo(first);
  EXPECT_EQ(WaitFor(first).out, "kept 48 lost 0 wrong 0 new 48\n") << first.err();
  const Listing alone = ListUntil(server.place, [](const Listing& listing) { return listing.bytes_of.size() == 1; });
  // With what the second makes now, it holds more than was free beside the first.
  EXPECT_GE(alone.held_bytes, kData - 4 * kMiB);
  SayGo(second);
  ExpectAllKept(second);
  EndServer(server);
}

// A quota is a job's, on however many hosts it runs; what is above goes to files.
TEST_F(ClusterServers, TwoJobsOnOneServerKeepToTheirQuotas) {
  const Server server = StartServer(1, "64MiB");
  EXPECT_EQ(Ctl({"quota", server.place, "--memory", "8MiB", "--job", "slurm 1"}).status, 0);
  std::vector<Started> clients;
  for (const auto& [host, job] : std::vector<std::pair<int, int>>{{2, 1}, {3, 1}, {4, 2}}) {
    clients.push_back(StartClient(host, Sweep(kData), PlaceOf(1), {"SLURM_JOB_ID=" + std::to_string(job)}, "auto"));
    AwaitReady(clients.back());
  }
  const auto of_first = [](Listing listing) { return listing.bytes_of["sweep_program@h2"] + listing.bytes_of["sweep_program@h3"]; };
  const auto of_second = [](Listing listing) { return listing.bytes_of["sweep_program@h4"]; };
  const Listing before = ListUntil(server.place, [&](const Listing& listing) { return of_first(listing) > 0 && of_second(listing) >= kData - 4 * kMiB; });
  EXPECT_LE(of_first(before), 8 * kMiB);
  EXPECT_EQ(Ctl({"quota", server.place, "--memory", "12MiB"}).status, 0);
  const Listing after = ListUntil(server.place, [&](const Listing& listing) { return of_second(listing) <= 12 * kMiB; });
  EXPECT_LE(of_first(after), 8 * kMiB) << "its own quota is another one";
  for (const Started& client : clients) SayStop(client);
  for (const Started& client : clients) ExpectVerified(client, kData);
  EndServer(server);
}

TEST_F(ClusterServers, AKilledClientsLeasesComeBack) {
  const Server server = StartServer(1, "32MiB");
  const Started hog = StartClient(2, Loss(kChunks), PlaceOf(1));
  AwaitReady(hog);
  EXPECT_GE(List(server.place).held_bytes, kData - 4 * kMiB);
  Kill(hog);
  ListUntil(server.place, IsEmpty);
  ExpectVerified(StartClient(3, Sweep(kData, 1), PlaceOf(1)), kData);  // does not fit beside the hog's
  EndServer(server);
}

}  // namespace
}  // namespace ramspan
