// Several hosts on one machine, for tests with memory servers on some and clients on others. A host is a network namespace with an interface
// of its own, joined to the others by a bridge, and a host name. Hosts h1 to h8 have the addresses 10.77.0.1 to .8 and know each other's names;
// the test itself is 10.77.0.100, login. They share the file system, as nodes of a cluster share a home.
//
// All of it is in a world that ends with the test (world.h). Where there can be none, the tests are skipped and say why.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "tests/support/job_fixture.h"

namespace ramspan {

class ClusterFixture : public JobFixture {
 public:
  // main's: before the first test.
  static void EnterWorldOrSay();
  static constexpr int kHosts = 8;

 protected:
  // Of a command on some host. Its output has files of its own, and so has what it says by RAMSPAN_TEST_READY.
  struct Started {
    pid_t pid = -1;
    std::filesystem::path folder;
    std::string out() const { return ReadFile(folder / "out"); }
    std::string err() const { return ReadFile(folder / "err"); }
  };
  struct Server : Started {
    int host = 0;
    std::string place;  // "10.77.0.1:7117"
  };
  // What `ramspan ctl list` says of a server.
  struct Listing {
    bool answers = false, drains = false;
    uint64_t lent_bytes = 0, held_bytes = 0;
    std::map<std::string, uint64_t> bytes_of;  // by "program@host"
  };

  void SetUp() override;

  static std::string NameOf(int host) { return "h" + std::to_string(host); }
  static std::string AddressOf(int host) { return "10.77.0." + std::to_string(host); }
  // Where a server of this host listens: each host has all ports for itself.
  static std::string PlaceOf(int host) { return NameOf(host) + ":7117"; }

  Started StartOn(int host, const Words& command, const Words& environment = {});
  // For mpiexec, in the place of ssh: a script that drops options, takes the host, and runs the rest there.
  std::string RemoteShell() const;
  // Listens when this returns.
  Server StartServer(int host, const std::string& memory, const Words& more = {});
  // Waits for the end. A healthy server ends with 0.
  void EndServer(const Server& server, int signal = SIGTERM, int status = 0);
  // Programs of 4 MiB local memory with these servers. Remote memory alone, unless `swap` says otherwise.
  Started StartClient(int host, const Words& command, const std::string& servers, const Words& more = {}, const std::string& swap = "remote");
  // Rewrites and verifies this much until SayStop, or `sweeps` times.
  static Words Sweep(size_t bytes, int sweeps = 0);
  // Fills this many chunks of 256 KiB, waits for SayGo, and counts what is kept and lost (tests/ofi/loss_program.cc).
  static Words Loss(int chunks);

  // As JobFixture::Ready, for a command of StartOn.
  void AwaitReady(const Started& program);
  static void SayStop(const Started& program);
  static void SayGo(const Started& program);
  Outcome WaitFor(const Started& program, std::chrono::seconds patience = kPatience);
  void Kill(const Started& program);
  // Verified all of it, with status 0.
  void ExpectVerified(const Started& program, size_t bytes);

  Listing List(const std::string& place);
  // Asks until the answer is as wanted; at most for `patience`. The last answer.
  Listing ListUntil(const std::string& place, const std::function<bool(const Listing&)>& wanted, std::chrono::seconds patience = kPatience);
  static bool IsEmpty(const Listing& listing) { return listing.answers && listing.held_bytes == 0; }
  Outcome Ctl(const Words& words);

  // Whether processes of this name, of those that the test has started and theirs, come to be on these hosts and no others. Waits: where one rank
  // is ready, others may still be starting.
  testing::AssertionResult RunsOn(const std::set<std::string>& hosts, const std::string& program);

  // What has come to this host through its cable since it was made.
  static uint64_t BytesTo(int host);

  // The cable between this host and the others. Without it a host keeps its interface and its address; what it sends goes nowhere.
  static void Unplug(int host);
  static void Plug(int host);

 private:
  std::set<std::string> HostsOf(const std::string& program);
  int started_ = 0;
};

}  // namespace ramspan
