// RemoteSwap against real servers. The same tests run with near servers (load/store) and with far ones (RMA over TCP:
// MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self); RAMSPAN_TEST_PATH=near|far says what to expect.
#include "client/swap/remote_swap.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/transport/mpi_entry.h"
#include "common/checksum.h"
#include "tests/support/send_signal.h"
#include "tests/support/sizes.h"

namespace ramspan {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

MpiWorld& World() { return *EnsureJoined().value(); }
ServerTransport& Servers() { return *JobTransport().value(); }

bool PathIsFar() {
  const char* path = std::getenv("RAMSPAN_TEST_PATH");
  return path != nullptr && std::string(path) == "far";
}

int ComputeRank() {
  int rank = 0;
  MPI_Comm_rank(World().compute(), &rank);
  return rank;
}

int ComputeSize() {
  int size = 0;
  MPI_Comm_size(World().compute(), &size);
  return size;
}

void Barrier() { MPI_Barrier(World().compute()); }

// A chunk in memory, with the alignment and the tail that a tier may rely on.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_(bytes), mapped_(RoundUpToGranule(bytes)) {
    data_ = static_cast<char*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Buffer() { munmap(data_, mapped_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Bytes that depend on the seed and on their place; Holds tells whether they are still these.
  void Fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < bytes_; i += 8) {
      const uint64_t word = random();
      std::memcpy(data_ + i, &word, std::min<size_t>(8, bytes_ - i));
    }
  }
  bool Holds(uint64_t seed) const {
    Buffer expected(bytes_);
    expected.Fill(seed);
    return std::memcmp(data_, expected.data_, bytes_) == 0;
  }
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  size_t mapped_;
  char* data_;
};

IoRequest Transfer(RemoteSwap* tier, SlotRef slot, const Buffer& buffer, bool write) {
  IoRequest request{.slot = slot, .buffer = buffer.data(), .bytes = buffer.bytes()};
  IoRequest* batch[] = {&request};
  write ? tier->SubmitWrite(batch) : tier->SubmitRead(batch);
  IoRequest* done[1] = {};
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
  while (tier->Poll(done, milliseconds(100)) == 0 && Clock::now() < deadline) {
  }
  EXPECT_EQ(done[0], &request);
  return request;
}

bool Write(RemoteSwap* tier, SlotRef slot, const Buffer& buffer) {
  const IoRequest done = Transfer(tier, slot, buffer, true);
  return done.result == StatusCode::kOk && done.bytes_done == buffer.bytes();
}

bool ReadHolds(RemoteSwap* tier, SlotRef slot, size_t bytes, uint64_t seed) {
  Buffer buffer(bytes);
  const IoRequest done = Transfer(tier, slot, buffer, false);
  if (done.result != StatusCode::kOk || done.bytes_done != bytes) return false;
  if (tier->CapabilitiesOf(slot).checksums && done.checksum != Checksum(buffer.data(), bytes)) return false;
  return buffer.Holds(seed);
}

// All the slots of `bytes` that are to be had now.
std::vector<SlotRef> ReserveAll(RemoteSwap* tier, size_t bytes, Status* end) {
  std::vector<SlotRef> slots;
  for (;;) {
    Result<SlotRef> slot = tier->Reserve(bytes);
    if (!slot.ok()) {
      *end = slot.status();
      return slots;
    }
    slots.push_back(slot.value());
  }
}

TEST(RemoteSwap, TheExpectedPathToTheServersIsTaken) {
  RemoteSwap tier(Servers());
  EXPECT_EQ(tier.capabilities().synchronous, !PathIsFar());
  const Result<SlotRef> slot = tier.Reserve(100);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  EXPECT_EQ(tier.CapabilitiesOf(slot.value()).synchronous, !PathIsFar());
  for (const MpiWorld::Server& server : World().servers()) EXPECT_EQ(server.shared == nullptr, PathIsFar());
}

TEST(RemoteSwap, ChunksOfAllSizesComeBackAsWritten) {
  RemoteSwap tier(Servers());
  std::vector<SlotRef> slots;
  const std::vector<size_t> sizes = {1, 7, 4095, 4096, 4097, 64 * kKiB, 100001, kMiB, kMiB + 1, 5 * kMiB - 3};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Result<SlotRef> slot = tier.Reserve(sizes[i]);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    Buffer buffer(sizes[i]);
    buffer.Fill(i);
    ASSERT_TRUE(Write(&tier, slot.value(), buffer)) << sizes[i];
    slots.push_back(slot.value());
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(ReadHolds(&tier, slots[i], sizes[i], i)) << sizes[i];
    tier.Free(slots[i], sizes[i]);
  }
  EXPECT_EQ(tier.stats().slot_bytes_used, 0u);
}

TEST(RemoteSwap, SeveralClientsNeverSeeEachOthersBytes) {
  Barrier();
  RemoteSwap tier(Servers(), {.first_lease_bytes = 128 * kKiB, .lease_bytes_max = 512 * kKiB});
  const size_t bytes = 40 * kKiB;
  std::vector<SlotRef> slots;
  for (uint64_t i = 0; i < 60; ++i) {
    const Result<SlotRef> slot = tier.Reserve(bytes);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    slots.push_back(slot.value());
    Buffer buffer(bytes);
    buffer.Fill(static_cast<uint64_t>(ComputeRank()) * 1000 + i);
    ASSERT_TRUE(Write(&tier, slots.back(), buffer));
  }
  Barrier();
  for (uint64_t i = 0; i < slots.size(); ++i) {
    EXPECT_TRUE(ReadHolds(&tier, slots[i], bytes, static_cast<uint64_t>(ComputeRank()) * 1000 + i)) << i;
  }
  Barrier();
}

TEST(RemoteSwap, WhoComesLateStillFindsAReserve) {
  Barrier();
  auto greedy = std::make_unique<RemoteSwap>(Servers());
  Status full;
  if (ComputeRank() == 0) ReserveAll(greedy.get(), 64 * kKiB, &full);
  Barrier();
  if (ComputeRank() != 0) {
    const Result<SlotRef> slot = greedy->Reserve(64 * kKiB);
    EXPECT_TRUE(slot.ok()) << slot.status().message();
  }
  Barrier();
}

TEST(RemoteSwap, ThreadsSubmitAndPollAtOnceAndEachRequestComesBackOnce) {
  Barrier();
  RemoteSwap tier(Servers());
  constexpr int kThreads = 4, kChunks = 8, kRounds = 20;
  static constexpr size_t kBytes = 48 * kKiB + 5;
  std::atomic<int> completions = 0, wrong = 0;
  // Requests of all threads in one place, because any thread's Poll may return them.
  struct Chunk {
    std::unique_ptr<Buffer> buffer = std::make_unique<Buffer>(kBytes);
    IoRequest request;
    std::atomic<bool> done = false;
  };
  std::vector<Chunk> chunks(kThreads * kChunks);
  auto run = [&](int thread) {
    const auto complete = [&](bool write) {
      std::vector<IoRequest*> batch;
      for (int i = 0; i < kChunks; ++i) {
        Chunk& chunk = chunks[static_cast<size_t>(thread * kChunks + i)];
        chunk.done = false;
        batch.push_back(&chunk.request);
      }
      write ? tier.SubmitWrite(batch) : tier.SubmitRead(batch);
      for (IoRequest* mine : batch) {
        while (!static_cast<Chunk*>(mine->cookie)->done) {
          IoRequest* done[3];
          const size_t n = tier.Poll(done, microseconds(500));
          for (size_t i = 0; i < n; ++i) {
            if (done[i]->result != StatusCode::kOk || done[i]->bytes_done != kBytes) ++wrong;
            ++completions;
            if (static_cast<Chunk*>(done[i]->cookie)->done.exchange(true)) ++wrong;
          }
        }
      }
    };
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kChunks; ++i) {
        chunks[static_cast<size_t>(thread * kChunks + i)].buffer->Fill(static_cast<uint64_t>(thread * 100 + i + round));
      }
      complete(true);
      for (int i = 0; i < kChunks; ++i) {
        std::memset(chunks[static_cast<size_t>(thread * kChunks + i)].buffer->data(), 0, kBytes);
      }
      complete(false);
      for (int i = 0; i < kChunks; ++i) {
        const Chunk& chunk = chunks[static_cast<size_t>(thread * kChunks + i)];
        if (!chunk.buffer->Holds(static_cast<uint64_t>(thread * 100 + i + round))) ++wrong;
      }
    }
  };
  for (Chunk& chunk : chunks) {
    const Result<SlotRef> slot = tier.Reserve(kBytes);
    ASSERT_TRUE(slot.ok()) << slot.status().message();
    chunk.request = {.slot = slot.value(), .buffer = chunk.buffer->data(), .bytes = kBytes, .cookie = &chunk};
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(run, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(completions, 2 * kThreads * kChunks * kRounds);
  Barrier();
}

TEST(MemServer, GarbageOnTheControlChannelDoesNotStopIt) {
  Barrier();
  std::mt19937 random(static_cast<unsigned>(ComputeRank()));
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, 100 * kKiB, 4 * kMiB}) {
    std::vector<char> garbage(bytes);
    for (char& c : garbage) c = static_cast<char>(random());
    for (const MpiWorld::Server& server : World().servers()) {
      MPI_Send(garbage.data(), static_cast<int>(bytes), MPI_BYTE, server.world_rank, static_cast<int>(random() % 100),
               World().control());
    }
  }
  RemoteSwap tier(Servers());
  const Result<SlotRef> slot = tier.Reserve(5000);
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  Buffer buffer(5000);
  buffer.Fill(3);
  ASSERT_TRUE(Write(&tier, slot.value(), buffer));
  EXPECT_TRUE(ReadHolds(&tier, slot.value(), 5000, 3));
  Barrier();
}

// A chunk of 2 GiB needs 65 leases. On a loaded machine they took more than answer_timeout together, and the chunk went
// to a file, although each of them was answered in time.
TEST(RemoteSwap, ServersThatAnswerSlowlyButAllTheTimeAreNotFull) {
  Barrier();
  if (!PathIsFar() && ComputeSize() == 1) {
    const RemoteSwapOptions options{
        .first_lease_bytes = kLeaseGranule, .lease_bytes_max = kLeaseGranule, .answer_timeout = milliseconds(2000)};
    RemoteSwap tier(Servers(), options);
    const auto signal_all = [](int number) {
      for (const MpiWorld::Server& server : World().servers()) SendSignal(static_cast<pid_t>(server.pid), number);
    };
    std::atomic<bool> ended = false;
    // Between two stops some server gives at least one lease.
    std::thread slower([&] {
      for (int round = 0; round < 12 && !ended; ++round) {
        const uint64_t capacity = tier.stats().slot_bytes_capacity;
        signal_all(SIGSTOP);
        std::this_thread::sleep_for(milliseconds(200));
        signal_all(SIGCONT);
        while (tier.stats().slot_bytes_capacity == capacity && !ended) std::this_thread::yield();
      }
    });
    const Result<SlotRef> slot = tier.Reserve(30 * kMiB);
    ended = true;
    slower.join();
    EXPECT_TRUE(slot.ok()) << slot.status().message();
  }
  Barrier();
}

}  // namespace
}  // namespace ramspan
