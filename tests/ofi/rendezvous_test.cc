// The folder in which memory servers say where they are: what is believed of it, and what dead servers leave there.
#include "common/rendezvous.h"

#include "client/transport/ofi_places.h"
#include "common/place_file.h"
#include "common/place_file_post.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "tests/support/heap_watch.h"

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Rendezvous : public testing::Test {
 protected:
  Rendezvous() {
    std::string name = (fs::temp_directory_path() / "ramspan-rendezvous-XXXXXX").string();
    RS_CHECK(mkdtemp(name.data()) != nullptr, "mkdtemp %d", errno);
    path_ = fs::path(name) / "servers";
  }
  ~Rendezvous() override { fs::remove_all(path_.parent_path()); }

  RendezvousFolder Folder() { return RendezvousFolder::Open(path_, true).value(); }
  static RendezvousEntry Entry(uint64_t instance, const std::string& place = "127.0.0.1:1") {
    RendezvousEntry entry = OwnEntry(instance);
    entry.place = ParseSocketPlace(place).value();
    return entry;
  }
  fs::path FileOf(uint64_t instance) const {
    char name[32];
    std::snprintf(name, sizeof name, "server-%016llx", static_cast<unsigned long long>(instance));
    return path_ / name;
  }
  void MakeOld(uint64_t instance) const {
    const timespec old[2] = {{.tv_sec = 1'000'000'000, .tv_nsec = 0}, {.tv_sec = 1'000'000'000, .tv_nsec = 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, FileOf(instance).c_str(), old, 0), 0);
  }
  static pid_t DeadProcess() {
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, nullptr, 0);
    return pid;
  }

  fs::path path_;
};

TEST_F(Rendezvous, AnEntryIsFoundAsItWasWritten) {
  const RendezvousFolder folder = Folder();
  ASSERT_TRUE(folder.Write(Entry(0xabc, "node7:7117")).ok());
  ASSERT_TRUE(folder.Write(Entry(0xdef, "[fe80::1]:80")).ok());
  const std::vector<RendezvousEntry> found = folder.Read().value();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].place.text(), "node7:7117");
  EXPECT_EQ(found[0].instance, 0xabcu);
  EXPECT_EQ(found[0].pid, getpid());
  EXPECT_EQ(found[1].place.text(), "[fe80::1]:80");
  EXPECT_EQ(fs::status(FileOf(0xabc)).permissions(), fs::perms(0600));
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0700));
  folder.Remove(found[0]);
  EXPECT_EQ(folder.Read().value().size(), 1u);
}

// Each byte of a valid entry replaced, taken away or doubled: either it is refused, or it means what it says.
TEST_F(Rendezvous, NoSpoiledEntryIsTakenForAnotherThanItSays) {
  const std::string good = EncodeEntry(Entry(0x123456789abcdef, "127.0.0.1:7117"));
  ASSERT_TRUE(DecodeEntry(good).ok());
  std::mt19937 random(7);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int how = 0; how < 12; ++how) {
      std::string bad = good;
      if (how == 0) bad.erase(at, 1);
      else if (how == 1) bad.insert(at, 1, good[at]);
      else bad[at] = static_cast<char>(random() % 256);
      const Result<RendezvousEntry> read = DecodeEntry(bad);
      if (!read.ok()) continue;
      EXPECT_EQ(DecodeEntry(EncodeEntry(read.value())).value().place.text(), read.value().place.text()) << bad;
    }
  }
  EXPECT_FALSE(DecodeEntry(good + "more\n").ok());
  EXPECT_FALSE(DecodeEntry(good + std::string(1000, 'x')).ok());
  EXPECT_FALSE(DecodeEntry("").ok());
  std::string newer = good;
  newer.replace(newer.find(" 1\n"), 3, " 2\n");
  EXPECT_FALSE(DecodeEntry(newer).ok());
}

TEST_F(Rendezvous, WhatIsNoEntryIsPassedOver) {
  const RendezvousFolder folder = Folder();
  ASSERT_TRUE(folder.Write(Entry(1)).ok());
  fs::copy_file(FileOf(1), FileOf(2));                    // says that it is another server's
  fs::create_symlink(FileOf(1), FileOf(3));
  ASSERT_EQ(mkfifo(FileOf(4).c_str(), 0600), 0);          // would block whoever opens it
  fs::create_directory(FileOf(5));
  std::ofstream(FileOf(6)) << std::string(1 << 20, 'x');
  std::ofstream(path_ / "server-7") << EncodeEntry(Entry(7));
  std::ofstream(path_ / ".server-0000000000000008") << EncodeEntry(Entry(8));
  const std::vector<RendezvousEntry> found = folder.Read().value();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].instance, 1u);
}

std::vector<std::string> PlacesOf(const std::vector<OfiPlaces::Place>& places) {
  std::vector<std::string> texts;
  for (const OfiPlaces::Place& one : places) texts.push_back(one.place.text());
  return texts;
}

// A network file system may have lost a file's bytes, or not give them now. Clients left a server that lived.
TEST_F(Rendezvous, AServerWhoseFileCannotBeReadOrUnderstoodIsNotGone) {
  const RendezvousFolder folder = Folder();
  for (uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(folder.Write(Entry(i, "node" + std::to_string(i) + ":7117")).ok());
  OfiPlaces places;
  places.Use(OfiPlaces::Parse("dir:" + path_.string()).value());
  EXPECT_EQ(PlacesOf(places.Look()).size(), 4u);
  fs::resize_file(FileOf(1), 20);
  fs::remove(FileOf(2));
  fs::create_directory(FileOf(2));  // what cannot be read
  fs::remove(FileOf(3));
  for (unsigned look = 1; look < OfiPlaces::kLooksMissed; ++look) EXPECT_EQ(PlacesOf(places.Look()).size(), 4u);
  for (int look = 0; look < 2; ++look) EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node1:7117", "node2:7117", "node4:7117"));
  ASSERT_TRUE(folder.Write(Entry(1, "node1:7118")).ok());
  fs::remove(FileOf(2));
  EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node1:7118", "node2:7117", "node4:7117"));
  for (unsigned look = 2; look < OfiPlaces::kLooksMissed; ++look) places.Look();
  EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node1:7118", "node4:7117"));
}

// Servers touch their files each by itself, so that a folder which somebody removed holds some of them at first. Those that had not come back yet
// were left, with all that was in their memory.
TEST_F(Rendezvous, AServerWhoseFileIsMissingHasTimeToWriteItAgain) {
  OfiPlaces places;
  places.Use(OfiPlaces::Parse("dir:" + path_.string()).value());
  const RendezvousFolder folder = Folder();
  for (uint64_t i = 1; i <= 2; ++i) ASSERT_TRUE(folder.Write(Entry(i, "node" + std::to_string(i) + ":7117")).ok());
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(PlacesOf(places.Look()).size(), 2u);
    fs::remove(FileOf(2));
    for (unsigned look = 1; look < OfiPlaces::kLooksMissed; ++look) EXPECT_EQ(PlacesOf(places.Look()).size(), 2u);
    ASSERT_TRUE(folder.Write(Entry(2, "node2:7117")).ok());
  }
}

// By instance, which is random: one more server in the folder, and a server in use was left.
TEST_F(Rendezvous, MoreServersThanAProgramUsesPushOutNoneThatIsInUse) {
  const RendezvousFolder folder = Folder();
  constexpr uint64_t kMax = OfiPlaces::kInFolderMax;
  const auto write = [&](uint64_t i) { ASSERT_TRUE(folder.Write(Entry(i, "node" + std::to_string(i) + ":7117")).ok()); };
  for (uint64_t i = 11; i < kMax + 11; ++i) write(i);
  OfiPlaces places;
  places.Use(OfiPlaces::Parse("dir:" + path_.string()).value());
  const std::vector<std::string> before = PlacesOf(places.Look());
  EXPECT_EQ(before.size(), kMax);
  for (uint64_t i = 1; i < 11; ++i) write(i);
  testing::internal::CaptureStderr();
  for (int look = 0; look < 3; ++look) EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAreArray(before));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("names more than 256 memory servers"));
  EXPECT_EQ(said.find("names more"), said.rfind("names more")) << "once";
  MakeOld(5);
  fs::remove(FileOf(20));
  const std::vector<std::string> after = PlacesOf(places.Look());
  EXPECT_EQ(after.size(), kMax);
  EXPECT_THAT(after, testing::Not(testing::Contains("node5:7117"))) << "nobody has touched it for long";
}

TEST_F(Rendezvous, AFolderOfTooManyFilesIsSaidToBeAndKeepsWhatWasKnown) {
  const RendezvousFolder folder = Folder();
  ASSERT_TRUE(folder.Write(Entry(1)).ok());
  OfiPlaces places;
  places.Use(OfiPlaces::Parse("dir:" + path_.string()).value());
  EXPECT_EQ(places.Look().size(), 1u);
  for (size_t i = 0; i < RendezvousFolder::kNamesMax; ++i) std::ofstream(path_ / ("other-" + std::to_string(i)));
  testing::internal::CaptureStderr();
  EXPECT_EQ(places.Look().size(), 1u);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("holds more than 4096 files: take away"));
}

TEST_F(Rendezvous, AFolderThatOthersMayUseIsRefused) {
  Folder();
  for (const unsigned mode : {0750u, 0701u, 0777u}) {
    fs::permissions(path_, fs::perms(mode));
    EXPECT_THAT(RendezvousFolder::Open(path_, true).status().message(), HasSubstr("chmod 700"));
  }
  EXPECT_THAT(RendezvousFolder::Open(path_.parent_path() / "absent", false).status().message(), HasSubstr("--rendezvous` makes it"));
  std::ofstream(path_.parent_path() / "file") << "";
  EXPECT_FALSE(RendezvousFolder::Open(path_.parent_path() / "file", true).ok());
}

TEST_F(Rendezvous, WhatDeadServersLeftIsSweptAndNothingElse) {
  const RendezvousFolder folder = Folder();
  RendezvousEntry dead_here = Entry(1), dead_elsewhere = Entry(2), silent_but_there = Entry(3), young = Entry(4);
  dead_here.pid = DeadProcess();
  for (RendezvousEntry* one : {&dead_elsewhere, &silent_but_there, &young}) {
    one->system = "another/1";
    one->pid = dead_here.pid;
  }
  SocketAddress bound;
  const Descriptor listener = Listen(ParseSocketPlace("127.0.0.1:0").value(), &bound).value();
  silent_but_there.place = ParseSocketPlace("127.0.0.1:" + std::to_string(bound.port())).value();
  const RendezvousEntry living = Entry(5);
  for (const RendezvousEntry& one : {dead_here, dead_elsewhere, silent_but_there, young, living}) ASSERT_TRUE(folder.Write(one).ok());
  for (const uint64_t old : {2u, 3u}) MakeOld(old);
  EXPECT_EQ(folder.Sweep(), 2u);
  std::vector<uint64_t> left;
  const std::vector<RendezvousEntry> found = folder.Read().value();
  for (const RendezvousEntry& one : found) left.push_back(one.instance);
  EXPECT_THAT(left, testing::ElementsAre(3, 4, 5));
  EXPECT_EQ(std::distance(fs::directory_iterator(path_), fs::directory_iterator()), 3) << "nothing of its own";
}

// It asked the file system for the time, by a file, to judge itself; when it was killed at that moment the file stayed, and nobody took it away.
TEST_F(Rendezvous, AServerThatIsAloneMakesNoFileToJudgeItself) {
  const RendezvousFolder folder = Folder();
  ASSERT_TRUE(folder.Write(Entry(1)).ok());
  const Descriptor watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(inotify_add_watch(watch.number(), path_.c_str(), IN_CREATE), 0);
  EXPECT_EQ(folder.Sweep(-1, /*own=*/1), 0u);
  char events[4096];
  EXPECT_EQ(read(watch.number(), events, sizeof events), -1) << "something was made";
}

TEST_F(Rendezvous, WhatOneThatWasKilledWhileItAskedForTheTimeLeftGoesWithTheNext) {
  const RendezvousFolder folder = Folder();
  RendezvousEntry elsewhere = Entry(1);
  elsewhere.system = "another/1";
  ASSERT_TRUE(folder.Write(elsewhere).ok());
  std::ofstream(path_ / ".now") << "";
  EXPECT_EQ(folder.Sweep(), 0u);
  EXPECT_FALSE(fs::exists(path_ / ".now"));
}

TEST_F(Rendezvous, AServerSaysThatItIsThereEvenIfItsFileWasTakenAway) {
  const RendezvousFolder folder = Folder();
  const RendezvousEntry entry = Entry(1);
  ASSERT_TRUE(folder.Write(entry).ok());
  MakeOld(1);
  ASSERT_TRUE(folder.Touch(entry).ok());
  EXPECT_GT(fs::last_write_time(FileOf(1)), fs::file_time_type::clock::now() - std::chrono::hours(1));
  fs::remove(FileOf(1));
  ASSERT_TRUE(folder.Touch(entry).ok());
  EXPECT_TRUE(fs::exists(FileOf(1)));
}

TEST_F(Rendezvous, APostIsThereAsLongAsItsServer) {
  RendezvousEntry dead = Entry(1);
  dead.pid = DeadProcess();
  ASSERT_TRUE(Folder().Write(dead).ok());
  {
    const auto post = RendezvousPost::Make(Folder(), Entry(2));
    ASSERT_TRUE(post.ok());
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (Folder().Read().value().size() != 1 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ASSERT_EQ(Folder().Read().value().size(), 1u) << "the next server sweeps";
    EXPECT_EQ(Folder().Read().value()[0].instance, 2u);
  }
  EXPECT_TRUE(Folder().Read().value().empty());
}

// An entry in a folder that had been moved or removed, and made again, did not come back: its server held on to the old one.
TEST_F(Rendezvous, APostIsWrittenAgainWhenSomebodyHasDeletedIt) {
  const auto post = RendezvousPost::Make(Folder(), Entry(2), std::chrono::milliseconds(5));
  ASSERT_TRUE(post.ok());
  const auto comes_back = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::exists(FileOf(2)) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return fs::exists(FileOf(2));
  };
  fs::remove(FileOf(2));
  EXPECT_TRUE(comes_back());
  fs::rename(path_, path_.string() + ".old");
  Folder();
  EXPECT_TRUE(comes_back());
}

// A job that was killed had left entries of hosts that are off: 2 s each before a server served that was in the folder already, and
// before it ended.
TEST_F(Rendezvous, APostIsMadeAndEndsWhileItSweepsForLong) {
  SocketAddress bound;
  const Descriptor mute = Listen(ParseSocketPlace("127.0.0.1:0").value(), &bound).value();
  ASSERT_EQ(listen(mute.number(), 0), 0);  // has room for one; who comes then hears nothing, as from a host that is off
  std::vector<Descriptor> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(StartConnect(bound).value());
  constexpr uint64_t kDead = 20;
  for (uint64_t i = 1; i <= kDead; ++i) {
    RendezvousEntry entry = Entry(i, "127.0.0.1:" + std::to_string(bound.port()));
    entry.system = "another/1";
    ASSERT_TRUE(Folder().Write(entry).ok());
    MakeOld(i);
  }
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(RendezvousPost::Make(Folder(), Entry(kDead + 1)).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "they take 40 s";
  EXPECT_GE(Folder().Read().value().size(), kDead / 2) << "nobody is called dead who had no time to answer";
}

TEST_F(Rendezvous, WhatNobodyUnderstandsIsSweptWhenNobodyTouchesIt) {
  const RendezvousFolder folder = Folder();
  std::ofstream(FileOf(1)) << "ramspan-ser";  // there was no room for the rest
  std::ofstream(FileOf(2)) << "ramspan-server 2\nof a newer version\n";
  MakeOld(1);
  EXPECT_EQ(folder.Sweep(), 1u);
  EXPECT_FALSE(fs::exists(FileOf(1)));
  EXPECT_TRUE(fs::exists(FileOf(2))) << "its server lives";
}

// All systems call their first namespace the same: another host's processes would have been taken for ended ones of this host.
TEST(RendezvousSystem, ASystemThatDoesNotSayWhichStartItIsHasNoName) {
  EXPECT_EQ(SystemName("", 4026531836), "");
  EXPECT_EQ(SystemName("b", 7), "b/7");
}

TEST(RendezvousSystem, APlaceIsOfOneHostOrOfMore) {
  for (const char* one : {"/run/socket", "@name", "127.0.1.1:7117", "[::1]:7117"}) EXPECT_TRUE(IsOfOneHost(ParseSocketPlace(one).value())) << one;
  for (const char* more : {"10.0.0.7:7117", "node7:7117", "[fe80::1]:80"}) EXPECT_FALSE(IsOfOneHost(ParseSocketPlace(more).value())) << more;
}

TEST_F(Rendezvous, ServersAreNamedByPlacesAndFolders) {
  const ServerNames names = ParseServerNames("node7:7117, dir:/scratch/servers ,/run/socket,file:/scratch/server").value();
  ASSERT_EQ(names.places.size(), 2u);
  EXPECT_EQ(names.places[1].text(), "/run/socket");
  EXPECT_THAT(names.folders, testing::ElementsAre("/scratch/servers"));
  EXPECT_THAT(names.files, testing::ElementsAre("/scratch/server"));
  for (const char* bad : {"", ",", "dir:", "dir:relative", "file:", "file:relative", "node7", "node7:7117,"}) EXPECT_FALSE(ParseServerNames(bad).ok()) << bad;
}

// ---- A file with places ----

class PlaceFile : public Rendezvous {
 protected:
  void Write(const std::string& text, unsigned mode = 0600) const {
    std::ofstream(path_) << text;
    fs::permissions(path_, fs::perms(mode));
  }
  std::string Problem() const { return ReadPlaceFile(path_).status().message(); }
  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> Places() const {
    std::vector<std::string> places;
    const auto read = ReadPlaceFile(path_);
    EXPECT_TRUE(read.ok() || read.status().code() == StatusCode::kUnavailable) << read.status().message();
    if (!read.ok()) return places;
    for (const SocketPlace& place : read.value()) places.push_back(place.text());
    return places;
  }
  static SocketPlace Place(const std::string& text) { return ParseSocketPlace(text).value(); }
};

// Somebody who listens, at a port of his own.
struct Listener {
  explicit Listener(const std::string& at = "127.0.0.1") : host(at) {}
  std::string host;
  SocketAddress bound;
  Descriptor socket = Listen(ParseSocketPlace(host + ":0").value(), &bound).value();
  std::string port() const { return std::to_string(bound.port()); }
  SocketPlace place() const { return ParseSocketPlace(host + ":" + port()).value(); }
};

// An address by which other hosts know this one; empty: it has none.
std::string AddressForOthers() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    SocketAddress address;
    std::memcpy(&address.storage, one->ifa_addr, sizeof(sockaddr_in));
    found = address.host();
  }
  freeifaddrs(all);
  return found;
}

TEST_F(PlaceFile, HasAPlaceALine) {
  Write("# ours\nnode7:7117\n\n  [::1]:80\t\r\n/run/socket");
  EXPECT_THAT(Places(), testing::ElementsAre("node7:7117", "[::1]:80", "/run/socket"));
}

// It was refused.
TEST_F(PlaceFile, HasCommentsBehindItsPlaces) {
  Write("  # ours\n node7:7117 # the old one\nnode8:7117\t#\r\n/run/a#b # a path may hold one\n");
  EXPECT_THAT(Places(), testing::ElementsAre("node7:7117", "node8:7117", "/run/a#b"));
  Write("node7:7117#7118\n");
  EXPECT_THAT(Problem(), HasSubstr("line 1")) << "no blank before it";
}

TEST_F(PlaceFile, IsNotBelievedWhereOthersMayWriteItOrItSaysSomethingElse) {
  EXPECT_EQ(ReadPlaceFile(path_).status().code(), StatusCode::kUnavailable) << "it may come";
  for (const unsigned mode : {0620u, 0602u}) {
    Write("node7:7117\n", mode);
    EXPECT_THAT(Problem(), HasSubstr("chmod 600"));
  }
  Write("node7:7117\nnode8\n");
  EXPECT_THAT(Problem(), HasSubstr("line 2"));
  Write(std::string(kPlaceFileBytesMax + 1, '\n'));
  EXPECT_THAT(Problem(), HasSubstr("more than 65536 bytes"));
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_THAT(Problem(), HasSubstr("write dir:" + path_.string()));
  EXPECT_FALSE(PlaceFilePost::Make(path_, ParseSocketPlace("node7:7117").value()).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(path_.parent_path()), fs::directory_iterator()), 1) << "nothing was left aside";
}

TEST_F(PlaceFile, NamesItsServersForAsLongAsTheyAreThere) {
  const Listener first, second;
  auto one = PlaceFilePost::Make(path_, first.place()).value();
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0600));
  auto two = PlaceFilePost::Make(path_, second.place()).value();
  EXPECT_THAT(Places(), testing::ElementsAre(first.place().text(), second.place().text()));
  one.reset();
  EXPECT_THAT(Places(), testing::ElementsAre(second.place().text()));
  two.reset();
  EXPECT_EQ(std::distance(fs::directory_iterator(path_.parent_path()), fs::directory_iterator()), 0) << "nothing was left, and nothing aside";
}

// Lines of servers that were killed go when a server comes.
TEST_F(PlaceFile, NamesNobodyForEver) {
  const std::string host = AddressForOthers();
  if (host.empty()) GTEST_SKIP() << "this host has no address but loopback";
  const Listener live(host), fresh(host);
  std::optional<Listener> killed(std::in_place, host);
  const std::string gone = killed->place().text();
  killed.reset();
  Write(gone + "\n" + live.place().text() + "\n");
  const auto post = PlaceFilePost::Make(path_, fresh.place()).value();
  EXPECT_THAT(Places(), testing::ElementsAre(live.place().text(), fresh.place().text()));
}

// Servers of two hosts took each other's lines away, again and again: those of places that other hosts cannot judge.
TEST_F(PlaceFile, KeepsWhatMeansSomethingOnItsOwnHostOnly) {
  std::optional<Listener> killed(std::in_place);
  const std::string port = killed->port();
  killed.reset();
  const std::string of_others = "@ramspan-of-another-host\n/no/such/socket\n127.0.0.1:" + port + "\nlocalhost:" + port + "\n[::1]:" + port + "\n";
  const Listener server;
  Write(of_others);
  {
    const auto post = PlaceFilePost::Make(path_, server.place()).value();
    EXPECT_EQ(Text(), of_others + server.place().text() + "\n");
  }
  EXPECT_EQ(Text(), of_others);
}

// Each put a file with its own line in the place of the others'.
TEST_F(PlaceFile, NamesAllServersThatStartAndEndAtOnce) {
  constexpr size_t kServers = 6;
  const std::array<Listener, kServers> servers;
  for (int round = 0; round < 10; ++round) {
    std::array<std::unique_ptr<PlaceFilePost>, kServers> posts;
    const auto all = [&](const auto& what) {
      std::vector<std::thread> threads;
      for (size_t i = 0; i < kServers; ++i) threads.emplace_back([&, i] { what(i); });
      for (std::thread& thread : threads) thread.join();
    };
    all([&](size_t i) {
      auto post = PlaceFilePost::Make(path_, servers[i].place());
      EXPECT_TRUE(post.ok()) << post.status().message();
      if (post.ok()) posts[i] = std::move(post).value();
    });
    std::vector<std::string> expected;
    for (const Listener& one : servers) expected.push_back(one.place().text());
    ASSERT_THAT(Places(), testing::UnorderedElementsAreArray(expected)) << "round " << round;
    all([&](size_t i) { if (i != 0) posts[i].reset(); });
    EXPECT_THAT(Places(), testing::ElementsAre(servers[0].place().text()));
    posts[0].reset();
    EXPECT_FALSE(fs::exists(path_));
  }
}

// It refused itself: another server, of that name, answered.
TEST_F(PlaceFile, ThatCallsAServerByAnotherNameIsGoodAsItIs) {
  const Listener server;
  for (const std::string& text : {"localhost:" + server.port() + "\n", "# ours\nlocalhost:" + server.port() + " # here\nnode8:1\n"}) {
    Write(text, 0644);
    {
      const auto post = PlaceFilePost::Make(path_, server.place());
      EXPECT_TRUE(post.ok()) << post.status().message();
      EXPECT_EQ(Text(), text);
    }
    EXPECT_EQ(Text(), text);
  }
}

TEST_F(PlaceFile, IsWrittenAgainWhenSomebodyHasDeletedIt) {
  const Listener first, second;
  const auto one = PlaceFilePost::Make(path_, first.place(), std::chrono::milliseconds(5)).value();
  const auto two = PlaceFilePost::Make(path_, second.place(), std::chrono::milliseconds(5)).value();
  fs::remove(path_);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Places().size() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(Places(), testing::UnorderedElementsAre(first.place().text(), second.place().text()));
}

// It was refused, because a server does not write there; but there is nothing to write.
TEST_F(PlaceFile, ThatNamesAServerNeedNotBeWritable) {
  const Listener server;
  const fs::path target = path_.string() + ".target";
  std::ofstream(target) << "# ours\nlocalhost:" << server.port() << "\n";
  fs::permissions(target, fs::perms(0444));
  fs::create_symlink(target, path_);
  testing::internal::CaptureStderr();
  {
    const auto post = PlaceFilePost::Make(path_, server.place());
    EXPECT_TRUE(post.ok()) << post.status().message();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "nor at the end";
}

// Its server locked the file, and knocked at all others, at each look.
TEST_F(PlaceFile, ThatCallsAServerByAnotherNameIsOnlyReadAgain) {
  const std::string host = AddressForOthers();
  const Listener server, other(host.empty() ? "127.0.0.1" : host);
  Write(other.place().text() + "\nlocalhost:" + server.port() + "\n");
  const Descriptor events(inotify_init1(IN_CLOEXEC));
  ASSERT_GE(inotify_add_watch(events.number(), path_.c_str(), IN_CLOSE_WRITE | IN_CLOSE_NOWRITE), 0) << std::strerror(errno);
  const auto post = PlaceFilePost::Make(path_, server.place(), std::chrono::milliseconds(5)).value();
  for (int reads = 0; reads < 5;) {
    alignas(inotify_event) char buffer[4096];
    const ssize_t length = read(events.number(), buffer, sizeof buffer);
    ASSERT_GT(length, 0);
    for (ssize_t at = 0; at < length;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
      ASSERT_EQ(event->mask & IN_CLOSE_WRITE, 0u) << "it was opened to be locked";
      ++reads;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
  EXPECT_FALSE(Accept(other.socket)) << "nobody comes";
}

// It became 0600, so that others of the user's group did not find the servers any more; and what a server that was killed had left stayed.
TEST_F(PlaceFile, KeepsItsModeAndNothingBesideIt) {
  const Listener first, second;
  Write(first.place().text() + "\n", 0644);
  std::ofstream(path_.string() + ".ramspan-new") << "127.0.0.1:";
  const auto post = PlaceFilePost::Make(path_, second.place()).value();
  EXPECT_THAT(Places(), testing::ElementsAre(first.place().text(), second.place().text()));
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0644));
  EXPECT_EQ(std::distance(fs::directory_iterator(path_.parent_path()), fs::directory_iterator()), 1);
}

// Its end took a minute: 30 s of its look's wait for the lock, and 30 s of its own (the next test's).
TEST_F(PlaceFile, ThatSomebodyKeepsLockedDoesNotKeepAServerThatLooksFromItsEnd) {
  const Listener first, second;
  auto post = PlaceFilePost::Make(path_, first.place(), std::chrono::milliseconds(1)).value();
  const std::string aside = path_.string() + ".aside";
  const std::string text = second.place().text() + "\n";
  const Descriptor locked(open(aside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(write(locked.number(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ASSERT_EQ(flock(locked.number(), LOCK_EX | LOCK_NB), 0);
  const Descriptor events(inotify_init1(IN_CLOEXEC));
  ASSERT_GE(inotify_add_watch(events.number(), aside.c_str(), IN_CLOSE_WRITE), 0) << std::strerror(errno);
  fs::rename(aside, path_);
  char event[4096];
  ASSERT_GT(read(events.number(), event, sizeof event), 0) << "it tries to lock it, to write its line again";
  const auto begin = std::chrono::steady_clock::now();
  post.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(Text(), text);
}

TEST_F(PlaceFile, ThatSomebodyKeepsLockedDoesNotKeepAServerFromItsEnd) {
  const Listener server;
  auto post = PlaceFilePost::Make(path_, server.place()).value();
  const Descriptor locked(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(locked.number(), LOCK_EX | LOCK_NB), 0) << "who may only read it can do that";
  const auto begin = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  post.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("it may still name the memory server " + server.place().text()));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// It served nobody for 30 s, heard no signal meanwhile, and ended then.
TEST_F(PlaceFile, ThatSomebodyKeepsLockedDoesNotKeepAServerFromServing) {
  const Listener server;
  Write("");
  Descriptor locked(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(locked.number(), LOCK_EX | LOCK_NB), 0);
  const auto begin = std::chrono::steady_clock::now();
  testing::internal::CaptureStderr();
  const auto post = PlaceFilePost::Make(path_, server.place());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("other processes keep it locked"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  ASSERT_TRUE(post.ok()) << post.status().message();
  locked = Descriptor();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Text().empty() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_THAT(Places(), testing::ElementsAre(server.place().text()));
}

// It ended by std::terminate then, and left its other files, too.
TEST_F(PlaceFile, IsLeftAsItIsByAServerThatEndsWithoutHeap) {
  const Listener server;
  bool refused = true;
  for (int given = 0; refused; ++given) {
    auto post = PlaceFilePost::Make(path_, server.place()).value();
    {
      const EndingHeap ending(given);
      post.reset();
    }
    refused = EndingHeap::refused();
    EXPECT_TRUE(!fs::exists(path_) || Text() == server.place().text() + "\n");
  }
  EXPECT_FALSE(fs::exists(path_));
}

// It replaced, and took away in the end, whatever was there: lists made by hand, data, /dev/null.
TEST_F(PlaceFile, OfSomebodyElseStaysAsItIs) {
  const SocketPlace place = ParseSocketPlace("127.0.0.1:1").value();
  for (const char* text : {"results of a year\n", "# ours\n127.0.0.1:9\n", "127.0.0.1:9 # mine\n", "127.0.0.1:9", "\n"}) {
    Write(text, 0644);
    EXPECT_FALSE(PlaceFilePost::Make(path_, place).ok()) << text;
    EXPECT_EQ(Text(), text);
  }
  Write("");
  EXPECT_TRUE(PlaceFilePost::Make(path_, place).ok()) << "as mktemp makes it";
  const fs::path target = path_.string() + ".target";
  std::ofstream(target) << "";
  fs::create_symlink(target, path_);
  EXPECT_FALSE(PlaceFilePost::Make(path_, place).ok());
  EXPECT_TRUE(fs::is_symlink(path_));
  fs::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(PlaceFilePost::Make(path_, place).status().message(), HasSubstr("no ordinary file"));
  EXPECT_TRUE(fs::is_fifo(path_));
  EXPECT_THAT(PlaceFilePost::Make(target.string() + "/below", place).status().message(), HasSubstr("Not a directory"));
}

TEST_F(PlaceFile, IsFollowedAndKeptInMindWhenItHasGone) {
  OfiPlaces places;
  places.Use(OfiPlaces::Parse("file:" + path_.string() + ",node1:1").value());
  EXPECT_TRUE(places.has_folders()) << "it is looked at again";
  EXPECT_THAT(PlacesOf(places.Look()), testing::ElementsAre("node1:1"));
  Write("node7:7117\nnode8:7117\n");
  EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node1:1", "node7:7117", "node8:7117"));
  Write("# ours\nnode8:7117\n");
  EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node1:1", "node8:7117")) << "what somebody takes out of a list of his own is left";
  Write("");
  EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node1:1", "node8:7117"));
  fs::remove(path_);
  for (int look = 0; look < 2; ++look) EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node1:1", "node8:7117"));
}

// Somebody has deleted the servers' file, and one of them has already written its line again: the others were left, with all that was in their memory.
TEST_F(PlaceFile, OfServersThatMissesSomeGivesThemTimeToWriteTheirLinesAgain) {
  OfiPlaces places;
  places.Use(OfiPlaces::Parse("file:" + path_.string()).value());
  for (int round = 0; round < 3; ++round) {
    Write("node8:7117\nnode7:7117\n");
    EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node7:7117", "node8:7117"));
    Write("node8:7117\n");
    for (unsigned look = 1; look < OfiPlaces::kLooksMissed; ++look) EXPECT_THAT(PlacesOf(places.Look()), testing::UnorderedElementsAre("node7:7117", "node8:7117"));
  }
  EXPECT_THAT(PlacesOf(places.Look()), testing::ElementsAre("node8:7117")) << "it has ended";
}

}  // namespace
}  // namespace ramspan
