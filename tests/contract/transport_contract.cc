#include "tests/contract/transport_contract.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "client/swap/remote_swap.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using Completion = ServerTransport::Completion;
using steady_clock = std::chrono::steady_clock;

constexpr auto kTransferDeadline = std::chrono::seconds(30);

std::vector<char> Pattern(size_t bytes, uint64_t seed) {
  std::vector<char> pattern(bytes);
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>(random());
  return pattern;
}

// A lease as any client gets one; given back with the object.
class Leased {
 public:
  Leased(TransportBed& bed, uint32_t server, uint64_t bytes) : transport_(bed.transport()), server_(server) {
    static std::atomic<uint32_t> sequence{1'000'000};
    const uint32_t mine = ++sequence;
    const WireMessage request{.type = WireType::kLeaseRequest, .sequence = mine, .bytes = bytes, .minimum_bytes = bytes};
    transport_.Send(server, request);
    int looks = 0;
    for (const auto end = steady_clock::now() + kTransferDeadline; steady_clock::now() < end; std::this_thread::yield()) {
      if (bed.LooksForAnAnswer() > 0 && ++looks % bed.LooksForAnAnswer() == 0) transport_.Send(server, request);
      const std::optional<ServerTransport::Control> control = transport_.Receive();
      if (!control || control->server != server) continue;
      const Result<WireMessage> answer = Decode(control->record);
      EXPECT_TRUE(answer.ok()) << answer.status().message();
      if (!answer.ok() || answer.value().sequence != mine) continue;  // to somebody before
      if (answer.value().type == WireType::kLeaseGrant) grant_ = answer.value();
      return;
    }
    ADD_FAILURE() << "server " << server << " does not answer";
  }
  ~Leased() {
    if (*this) transport_.Send(server_, {.type = WireType::kLeaseReturn, .lease = grant_.lease});
  }
  Leased(const Leased&) = delete;
  Leased& operator=(const Leased&) = delete;

  explicit operator bool() const { return grant_.lease != 0; }
  uint64_t offset() const { return grant_.offset; }
  uint64_t bytes() const { return grant_.bytes; }

 private:
  ServerTransport& transport_;
  const uint32_t server_;
  WireMessage grant_;
};

// Collects until `count` transfers have ended; by cookie, with how often each came.
std::map<void*, std::vector<StatusCode>> CollectAll(ServerTransport& transport, size_t count) {
  std::map<void*, std::vector<StatusCode>> results;
  std::vector<Completion> done;
  size_t ended = 0;
  for (const auto end = steady_clock::now() + kTransferDeadline; ended < count && steady_clock::now() < end;) {
    done.clear();
    transport.Collect(&done);
    for (const Completion& completion : done) results[completion.cookie].push_back(completion.result);
    ended += done.size();
  }
  EXPECT_EQ(ended, count) << "transfers do not end";
  return results;
}

StatusCode TransferOne(ServerTransport& transport, ServerTransport::Transfer transfer) {
  int cookie = 0;
  transfer.cookie = &cookie;
  transport.Start({&transfer, 1});
  const auto results = CollectAll(transport, 1);
  const auto found = results.find(&cookie);
  return found == results.end() ? StatusCode::kAborted : found->second.front();
}

TEST_P(TransportContract, EachServerSaysWhatItIsAndGoesOnSayingIt) {
  ASSERT_GT(transport().servers(), 0u);
  for (uint32_t i = 0; i < transport().servers(); ++i) {
    const ServerTransport::Server server = transport().server(i);
    EXPECT_GE(server.capacity_bytes, kMiB);
    EXPECT_TRUE(server.distance >= 0 && server.distance <= 2);
    EXPECT_EQ(transport().state(i), ServerTransport::ServerState::kAlive);
    const ServerTransport::Server again = transport().server(i);
    EXPECT_EQ(again.label, server.label);
    EXPECT_EQ(again.mapped, server.mapped);
    EXPECT_EQ(again.capacity_bytes, server.capacity_bytes);
  }
  EXPECT_NE(std::string(transport().capabilities().name), "");
}

TEST_P(TransportContract, WithNothingStartedThereIsNothingToCollect) {
  std::vector<Completion> done;
  EXPECT_FALSE(transport().Collect(&done));
  EXPECT_TRUE(done.empty());
  transport().Start({});
  EXPECT_FALSE(transport().Collect(&done));
}

TEST_P(TransportContract, BytesOfAnyLengthAndPlaceComeBackAsWritten) {
  for (uint32_t server = 0; server < transport().servers(); ++server) {
    const Leased lease(*bed_, server, 2 * kMiB);
    ASSERT_TRUE(lease);
    for (const auto& [at, bytes] : {std::pair<uint64_t, size_t>{0, 1}, {4095, 2}, {4096, 4096}, {65537, 100'003}, {0, 2 * kMiB}}) {
      std::vector<char> out = Pattern(bytes, at + bytes), back(bytes);
      ASSERT_EQ(TransferOne(transport(), {.server = server, .is_write = true, .buffer = out.data(), .offset = lease.offset() + at, .bytes = bytes}),
                StatusCode::kOk);
      ASSERT_EQ(TransferOne(transport(), {.server = server, .buffer = back.data(), .offset = lease.offset() + at, .bytes = bytes}), StatusCode::kOk);
      EXPECT_EQ(out, back) << bytes << " bytes at " << at;
    }
  }
}

TEST_P(TransportContract, AMappedPoolIsThePoolThatTransfersReach) {
  for (uint32_t server = 0; server < transport().servers(); ++server) {
    std::byte* mapped = transport().server(server).mapped;
    if (mapped == nullptr) continue;  // reached by transfers only
    const Leased lease(*bed_, server, kLeaseGranule);
    ASSERT_TRUE(lease);
    transport().Prepare(server, lease.offset(), lease.bytes());
    std::vector<char> out = Pattern(5000, server), back(5000);
    std::memcpy(mapped + lease.offset() + 77, out.data(), out.size());
    EXPECT_EQ(TransferOne(transport(), {.server = server, .buffer = back.data(), .offset = lease.offset() + 77, .bytes = 5000}), StatusCode::kOk);
    EXPECT_EQ(out, back);
  }
}

TEST_P(TransportContract, OneBatchMayScatterABufferOverServersAndGatherItAgain) {
  constexpr size_t kPart = 10'007, kParts = 24;
  std::vector<std::unique_ptr<Leased>> leases;
  for (uint32_t server = 0; server < transport().servers(); ++server) {
    leases.push_back(std::make_unique<Leased>(*bed_, server, kMiB));
    ASSERT_TRUE(*leases.back());
  }
  std::vector<char> out = Pattern(kPart * kParts, 5), back(kPart * kParts);
  const auto batch = [&](std::vector<char>& buffer, bool is_write) {
    std::vector<ServerTransport::Transfer> transfers;
    for (size_t i = 0; i < kParts; ++i) {
      const auto server = static_cast<uint32_t>(i * 7 % leases.size());
      transfers.push_back({.server = server, .is_write = is_write, .buffer = buffer.data() + i * kPart,
                           .offset = leases[server]->offset() + (kParts - 1 - i) * kPart, .bytes = kPart, .cookie = &buffer});
    }
    return transfers;
  };
  for (const bool is_write : {true, false}) {
    transport().Start(batch(is_write ? out : back, is_write));
    const auto results = CollectAll(transport(), kParts);
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results.begin()->second, std::vector<StatusCode>(kParts, StatusCode::kOk)) << "one completion for each transfer";
  }
  EXPECT_EQ(out, back);
}

TEST_P(TransportContract, EachOfManyTransfersEndsOnceWithItsCookie) {
  const Leased lease(*bed_, transport().servers() - 1, 2 * kMiB);
  ASSERT_TRUE(lease);
  constexpr size_t kCount = 200, kBytes = 8000;
  std::vector<std::vector<char>> buffers;
  std::vector<ServerTransport::Transfer> transfers;
  for (size_t i = 0; i < kCount; ++i) {
    buffers.push_back(Pattern(kBytes, i));
    transfers.push_back({.server = transport().servers() - 1, .is_write = true, .buffer = buffers[i].data(),
                         .offset = lease.offset() + i * kBytes, .bytes = kBytes});
  }
  for (size_t i = 0; i < kCount; ++i) transfers[i].cookie = buffers[i].data();
  for (size_t at = 0; at < kCount; at += 50) transport().Start(std::span(transfers).subspan(at, 50));
  const auto results = CollectAll(transport(), kCount);
  EXPECT_EQ(results.size(), kCount);
  for (const auto& [cookie, codes] : results) EXPECT_EQ(codes, std::vector{StatusCode::kOk});
  std::vector<char> back(kCount * kBytes);
  ASSERT_EQ(TransferOne(transport(), {.server = transport().servers() - 1, .buffer = back.data(), .offset = lease.offset(), .bytes = back.size()}),
            StatusCode::kOk);
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(std::memcmp(back.data() + i * kBytes, buffers[i].data(), kBytes), 0) << i;
}

// One thread's part of the test below: its completions may come to another, who counts them for it.
struct Shared {
  explicit Shared(ServerTransport& the_transport) : transport(the_transport) {}
  ServerTransport& transport;
  std::atomic<int> wrong{0};
};

void WriteAndReadBeside(Shared* shared, uint32_t server, uint64_t offset, uint64_t seed) {
  std::atomic<int> ended{0};
  const auto run = [&](std::vector<char>& buffer, bool is_write) {
    ended = 0;
    const ServerTransport::Transfer transfer{.server = server, .is_write = is_write, .buffer = buffer.data(), .offset = offset, .bytes = buffer.size(), .cookie = &ended};
    shared->transport.Start({&transfer, 1});
    std::vector<Completion> done;
    for (const auto end = steady_clock::now() + kTransferDeadline; ended == 0; done.clear()) {
      if (steady_clock::now() > end) return void(++shared->wrong);
      if (!shared->transport.Collect(&done)) std::this_thread::yield();
      for (const Completion& completion : done) {
        if (completion.result != StatusCode::kOk) ++shared->wrong;
        ++*static_cast<std::atomic<int>*>(completion.cookie);
      }
    }
  };
  for (uint64_t round = 0; round < 30 && shared->wrong == 0; ++round) {
    std::vector<char> out = Pattern(20'000, seed + round), back(20'000);
    run(out, true);
    run(back, false);
    if (out != back) ++shared->wrong;
  }
}

TEST_P(TransportContract, ThreadsStartAndCollectAtOnce) {
  const Leased lease(*bed_, 0, kMiB);
  ASSERT_TRUE(lease);
  Shared shared(transport());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) threads.emplace_back(WriteAndReadBeside, &shared, 0u, lease.offset() + t * 20'000, t * 1000);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.wrong, 0);
}

TEST_P(TransportContract, RecordsToOneServerArriveInOrder) {
  // Each lease is there again before the next request, or the pool would be used up.
  for (int i = 0; i < 100; ++i) {
    const Leased lease(*bed_, 0, kMiB);
    ASSERT_TRUE(lease) << i;
  }
}

TEST_P(TransportContract, ReceiveDoesNotWait) {
  const auto begin = steady_clock::now();
  for (int i = 0; i < 100; ++i) transport().Receive();
  EXPECT_LT(steady_clock::now() - begin, kTransferDeadline);
}

TEST_P(TransportContract, MemoryWhosePagesHaveGoneIsTransferredFromItsNewPages) {
  const Leased lease(*bed_, 0, kMiB);
  ASSERT_TRUE(lease);
  void* const pages = mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  std::vector<char> read(kMiB);
  for (const char letter : {'a', 'b', 'c'}) {
    std::memset(pages, letter, kMiB);
    EXPECT_EQ(TransferOne(transport(), {.is_write = true, .buffer = pages, .offset = lease.offset(), .bytes = kMiB}), StatusCode::kOk);
    EXPECT_EQ(TransferOne(transport(), {.buffer = read.data(), .offset = lease.offset(), .bytes = kMiB}), StatusCode::kOk);
    EXPECT_TRUE(read == std::vector<char>(kMiB, letter)) << letter;
    const uint64_t before = transport().registered().bytes;
    transport().ForgetMemory({static_cast<std::byte*>(pages), kMiB});
    EXPECT_EQ(transport().registered().bytes, before > 0 ? before - kMiB : 0);
    transport().Upkeep();
    ASSERT_EQ(madvise(pages, kMiB, MADV_DONTNEED), 0);
  }
  munmap(pages, kMiB);
}

constexpr char kOtherDeaths[] = "servers of a job stay dead: tests/mpi/server_death_test.cc";

TEST_P(TransportContract, ADeadServersTransfersFailAndTheOthersGoOn) {
  if (transport().servers() < 2) GTEST_SKIP() << "for two servers";
  const Leased dead(*bed_, 0, kLeaseGranule), alive(*bed_, 1, kLeaseGranule);
  ASSERT_TRUE(dead && alive);
  if (!bed_->Kill(0)) GTEST_SKIP() << kOtherDeaths;
  EXPECT_EQ(transport().state(0), ServerTransport::ServerState::kDead);
  EXPECT_EQ(transport().state(1), ServerTransport::ServerState::kAlive);
  std::vector<char> buffer(1000);
  EXPECT_EQ(TransferOne(transport(), {.server = 0, .buffer = buffer.data(), .offset = dead.offset(), .bytes = 1000}), StatusCode::kUnavailable);
  EXPECT_EQ(TransferOne(transport(), {.server = 1, .buffer = buffer.data(), .offset = alive.offset(), .bytes = 1000}), StatusCode::kOk);
  transport().Send(0, {.type = WireType::kActivity});  // harmless
}

TEST_P(TransportContract, TransfersInFlightEndWhenTheirServerDies) {
  const Leased lease(*bed_, 0, kLeaseGranule);
  ASSERT_TRUE(lease);
  if (!bed_->Freeze(0, true)) GTEST_SKIP() << kOtherDeaths;
  std::vector<char> buffer(1000);
  const ServerTransport::Transfer transfer{.server = 0, .buffer = buffer.data(), .offset = lease.offset(), .bytes = 1000, .cookie = &buffer};
  transport().Start({&transfer, 1});
  std::vector<Completion> done;
  for (int i = 0; i < 50; ++i) transport().Collect(&done);
  if (transport().server(0).mapped != nullptr && !done.empty()) {
    // Such a transport may copy by itself, without the server; then nothing was in flight.
    EXPECT_EQ(done.front().result, StatusCode::kOk);
    bed_->Kill(0);
    return;
  }
  EXPECT_TRUE(done.empty());
  bed_->Kill(0);
  const auto results = CollectAll(transport(), 1);
  EXPECT_EQ(results.at(&buffer).front(), StatusCode::kUnavailable);
}

// A lost answer must cost nobody memory: the same request gets the same lease again.
TEST_P(TransportContract, ARequestThatIsSentAgainTakesNoMore) {
  const uint64_t pool = transport().server(0).capacity_bytes;
  for (uint64_t taken = 0; taken < 4 * pool; taken += kMiB) {
    const Leased lease(*bed_, 0, kMiB);
    ASSERT_TRUE(lease) << taken << " bytes were asked for and given back so far";
  }
}

// Places of one lease, each with what was written there last, as far as that is known.
struct Place {
  uint32_t server;
  uint64_t offset;
  bool known = false;  // a write that failed may have left anything
  std::vector<char> holds;
};

// Everything at once, from a seed: batches over all servers, and servers that die while their transfers are under way. Each transfer ends
// once; what comes back as moved is what was written last; a transfer fails only where its server is dead.
TEST_P(TransportContract, NoWrongByteComesBackAsRightWhateverIsLateLostOrDead) {
  constexpr size_t kBytes = 3001, kPlaces = 16;
  std::mt19937 random(7);
  const uint32_t servers = transport().servers();
  std::vector<std::unique_ptr<Leased>> leases;
  std::vector<Place> places;
  for (uint32_t server = 0; server < servers; ++server) {
    leases.push_back(std::make_unique<Leased>(*bed_, server, kLeaseGranule));
    ASSERT_TRUE(*leases.back());
    for (size_t i = 0; i < kPlaces; ++i) places.push_back({server, leases.back()->offset() + i * kBytes, false, {}});
  }
  uint32_t dead = 0;  // the first so many
  for (int round = 0; round < 120; ++round) {
    std::shuffle(places.begin(), places.end(), random);
    const size_t count = 1 + random() % 12;
    std::vector<std::vector<char>> buffers;
    std::vector<ServerTransport::Transfer> batch;
    for (size_t i = 0; i < count; ++i) {
      const bool write = random() % 2 == 0;
      buffers.push_back(write ? Pattern(kBytes, random()) : std::vector<char>(kBytes));
      batch.push_back({.server = places[i].server, .is_write = write, .buffer = buffers[i].data(), .offset = places[i].offset, .bytes = kBytes});
    }
    for (size_t i = 0; i < count; ++i) batch[i].cookie = &places[i];
    transport().Start(batch);
    if (round % 40 == 39 && dead + 1 < servers && bed_->Kill(dead)) ++dead;
    const auto results = CollectAll(transport(), count);
    ASSERT_EQ(results.size(), count) << "each ends once";
    for (size_t i = 0; i < count; ++i) {
      Place& place = places[i];
      const StatusCode code = results.at(&place).front();
      const bool is_dead = transport().state(place.server) == ServerTransport::ServerState::kDead;
      EXPECT_TRUE(code == StatusCode::kOk || (code == StatusCode::kUnavailable && is_dead)) << StatusCodeName(code) << " of server " << place.server;
      EXPECT_EQ(is_dead, place.server < dead);
      if (batch[i].is_write) {
        place.known = code == StatusCode::kOk;
        place.holds = buffers[i];
      } else if (code == StatusCode::kOk && place.known) {
        EXPECT_TRUE(buffers[i] == place.holds) << "round " << round << ", server " << place.server;
      }
    }
  }
}

// One of two tiers below, and the one chunk that it keeps.
class TierBesideAnother {
 public:
  TierBesideAnother(ServerTransport& transport, uint64_t seed)
      : tier_(transport, {.first_lease_bytes = kLeaseGranule, .lease_bytes_max = kLeaseGranule, .answer_timeout = std::chrono::milliseconds(5), .idle_lease = {}}),
        kept_(Pattern(kBytes, seed)), seed_(seed) {}
  ~TierBesideAnother() {
    if (slot_) tier_.Free(slot_, kBytes);
  }

  RemoteSwap& tier() { return tier_; }
  SlotRef slot() const { return slot_; }

  // Makes and frees chunks, and leases with them; the last one stays.
  void Work() {
    for (uint64_t round = 1; round <= kRounds && ok_; ++round) {
      if (slot_) tier_.Free(std::exchange(slot_, SlotRef{}), kBytes);
      tier_.Upkeep();
      kept_ = Pattern(kBytes, seed_ + round);
      slot_ = Reserve();
      ok_ = ok_ && slot_ && Move(kept_, true) == StatusCode::kOk && ReadsWhatItKeeps();
    }
  }
  bool ok() const { return ok_; }
  bool ReadsWhatItKeeps() { return BeginReading(), EndReading(); }
  void BeginReading() { Begin(back_.data(), false); }
  bool EndReading() { return End() == StatusCode::kOk && std::equal(kept_.begin(), kept_.end(), back_.begin()); }

  static constexpr size_t kBytes = 300'000;
  static constexpr uint64_t kRounds = 10;

 private:
  // Answers may be lost, and servers count as full then for a while.
  SlotRef Reserve() {
    for (const auto end = steady_clock::now() + kTransferDeadline; steady_clock::now() < end; std::this_thread::yield()) {
      if (const Result<SlotRef> slot = tier_.Reserve(kBytes); slot.ok()) return slot.value();
    }
    return {};
  }
  StatusCode Move(std::vector<char>& buffer, bool is_write) {
    buffer.resize(RoundUpToGranule(kBytes));
    Begin(buffer.data(), is_write);
    const StatusCode result = End();
    buffer.resize(kBytes);
    return result;
  }
  void Begin(void* buffer, bool is_write) {
    request_ = {.slot = slot_, .buffer = buffer, .bytes = kBytes};
    IoRequest* batch[] = {&request_};
    is_write ? tier_.SubmitWrite(batch) : tier_.SubmitRead(batch);
  }
  StatusCode End() {
    IoRequest* done[1] = {};
    for (const auto end = steady_clock::now() + kTransferDeadline; done[0] == nullptr && steady_clock::now() < end;) tier_.Poll(done, std::chrono::milliseconds(1));
    return done[0] == &request_ ? request_.result : StatusCode::kAborted;
  }

  RemoteSwap tier_;
  std::vector<char> kept_;
  const uint64_t seed_;
  SlotRef slot_;
  IoRequest request_;
  std::vector<char> back_ = std::vector<char>(RoundUpToGranule(kBytes));
  bool ok_ = true;
};

// What a mirror is made of: neither tier gets the other one's grants, completions or servers, and a server that dies takes one copy.
TEST_P(TransportContract, TwoTiersWithServersOfTheirOwnWorkBesideEachOther) {
  if (transport().servers() < 2) GTEST_SKIP() << "for two servers";
  if (GetParam().name.rfind("GroupOf", 0) == 0) GTEST_SKIP() << "a group is not divided again: their locks have one rank";
  ServerGroups groups(transport(), 2, [](uint32_t number, const ServerTransport::Server&) { return number % 2; });
  {
    TierBesideAnother first(groups.group(0), 1000), second(groups.group(1), 2000);
    std::thread beside([&] { second.Work(); });
    first.Work();
    beside.join();
    ASSERT_TRUE(first.ok() && second.ok());
    for (int i = 0; i < 10; ++i) {  // whoever looks first sees what has ended of both
      first.BeginReading();
      second.BeginReading();
      ASSERT_TRUE(first.EndReading() && second.EndReading());
    }
    uint32_t seen = 0;
    for (TierBesideAnother* one : {&first, &second}) {
      const std::vector<ServerStats> servers = one->tier().servers();
      uint64_t written = 0;
      for (uint32_t i = 0; i < servers.size(); ++i, ++seen) {
        EXPECT_EQ(servers[i].name, transport().server(2 * i + (one == &second ? 1 : 0)).label);
        written += servers[i].bytes_written;
      }
      EXPECT_EQ(written, one->kRounds * one->kBytes);
    }
    EXPECT_EQ(seen, transport().servers());
    if (transport().servers() == 2 && bed_->Kill(0)) {
      EXPECT_EQ(first.tier().IsLost(first.slot(), first.kBytes), slot_bits::IsFar(first.slot()));
      EXPECT_FALSE(second.tier().IsLost(second.slot(), second.kBytes));
      EXPECT_TRUE(second.ReadsWhatItKeeps());
    }
  }
}

}  // namespace
}  // namespace ramspan
