#include "memserver/server_loop.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "common/log.h"
#include "memserver/server.h"

namespace ramspan {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Answers that a client has not taken yet; one that asks faster than it listens gets no more of them.
constexpr size_t kUnsentMax = 16;
// After a message the loop spins this long: requests come in groups.
constexpr microseconds kSpinAfterMessage{200};
constexpr unsigned kPollsPerYield = 64;
constexpr microseconds kSleepMin{50}, kSleepMaxNear{4000}, kSleepMaxFar{1000};
// Fresh pages cost 2 to 3 us each: steps that keep nobody waiting for long.
constexpr uint64_t kPopulateStep = uint64_t{256} << 10;
// Made resident ahead: as much again as was ever leased, so that a job that needs little takes little.
constexpr uint64_t kPopulateAheadMin = uint64_t{16} << 20, kPopulateAheadMax = uint64_t{256} << 20;

class Loop {
 public:
  explicit Loop(MpiWorld& world)
      : world_(world), server_({.pool_bytes = world.pool_bytes(),
                                .clients = static_cast<uint32_t>(world.clients().size()),
                                .rank = world.rank(),
                                .populate = [this](uint64_t at, uint64_t bytes) { return Populate(at, bytes); }}) {
    for (uint32_t i = 0; i < world.clients().size(); ++i) {
      const size_t rank = static_cast<size_t>(world.clients()[i].world_rank);
      if (client_of_rank_.size() <= rank) client_of_rank_.resize(rank + 1, UINT32_MAX);
      client_of_rank_[rank] = i;
    }
    unsent_.resize(world.clients().size());
    const bool all_near = std::all_of(world.clients().begin(), world.clients().end(),
                                      [](const MpiWorld::Client& client) { return client.same_node; });
    sleep_max_ = all_near ? kSleepMaxNear : kSleepMaxFar;
  }

  Result<bool> Run() {
    auto last_message = MemServer::Clock::now();
    microseconds sleep = kSleepMin;
    unsigned polls = 0;
    while (!server_.Done()) {
      const auto now = MemServer::Clock::now();
      int received = 0;
      if (Status polled = PollOnce(now, &received); !polled.ok()) return polled;
      if (received != 0) {
        last_message = now;
        sleep = kSleepMin;
      } else if (server_.RmaIsActive(now) || now - last_message < kSpinAfterMessage) {
        // Not at each poll: where the cores are busy a yield costs a time slice, and a transfer needs many polls.
        if (++polls % kPollsPerYield == 0) sched_yield();
        sleep = kSleepMin;
      } else if (!PopulateAhead()) {
        std::this_thread::sleep_for(sleep);
        sleep = std::min(sleep * 2, sleep_max_);
      }
    }
    server_.Finish();
    return server_.LeaveTogether();
  }

 private:
  struct Unsent {
    WireRecord record;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  Status PollOnce(MemServer::Clock::time_point now, int* received) {
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.control(), received, &status) != MPI_SUCCESS) {
      return Unavailable("MPI_Iprobe failed");
    }
    if (*received == 0) return {};
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    if (bytes != static_cast<int>(kWireBytes)) return DrainOddMessage(status, bytes, now);
    WireRecord record;
    if (MPI_Recv(record.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, world_.control(),
                 MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return Unavailable("MPI_Recv failed");
    }
    Answer(status.MPI_SOURCE, record, now);
    return {};
  }

  // A message of a wrong length is received whole all the same: MPICH leaves a rendezvous that the receiver truncated
  // unfinished on both sides, which then hang in MPI_Finalize.
  Status DrainOddMessage(const MPI_Status& status, int bytes, MemServer::Clock::time_point now) {
    const size_t length = bytes > 0 ? static_cast<size_t>(bytes) : 1;
    void* sink = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sink == MAP_FAILED) return ResourceExhausted("no memory to receive a message of a wrong length");
    const int error = MPI_Recv(sink, std::max(bytes, 0), MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                               world_.control(), MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS) Answer(status.MPI_SOURCE, {static_cast<std::byte*>(sink), length}, now);
    munmap(sink, length);
    return error == MPI_SUCCESS ? Status() : Unavailable("MPI_Recv failed");
  }

  void Answer(int rank, std::span<const std::byte> record, MemServer::Clock::time_point now) {
    const uint32_t client =
        static_cast<size_t>(rank) < client_of_rank_.size() ? client_of_rank_[static_cast<size_t>(rank)] : UINT32_MAX;
    const std::optional<WireMessage> answer = server_.Handle(client, record, now);
    if (!answer) return;
    std::deque<Unsent>& unsent = unsent_[client];
    int sent = 1;
    while (!unsent.empty() && MPI_Test(&unsent.front().request, &sent, MPI_STATUS_IGNORE) == MPI_SUCCESS && sent != 0) {
      unsent.pop_front();
    }
    if (unsent.size() >= kUnsentMax) return;
    Unsent& message = unsent.emplace_back();
    message.record = Encode(*answer);
    // A client that cannot be reached any more is the launcher's business; it keeps its leases until then.
    if (MPI_Isend(message.record.data(), kWireBytes, MPI_BYTE, rank, 0, world_.control(), &message.request) !=
        MPI_SUCCESS) {
      unsent.pop_back();
    }
  }

  // Faults the pages in here: NUMA placement and the cgroup's charge are the server's, and a client's first store does
  // not pay for fresh pages. Leases are cut from the low end, so one mark tells what is resident.
  bool Populate(uint64_t offset, uint64_t bytes) {
    leased_end_ = std::max(leased_end_, offset + bytes);
    while (resident_end_ < leased_end_) {
      if (!PopulateStep()) {
        LogWarning("memory server rank %d: no memory for a lease of %llu MiB: lower --server-memory", world_.rank(),
                   static_cast<unsigned long long>(bytes >> 20));
        leased_end_ = std::min(leased_end_, offset);
        return false;
      }
    }
    return true;
  }

  // One step; false when there is nothing to do, or no memory for it.
  bool PopulateAhead() {
    const uint64_t ahead = std::clamp(leased_end_, kPopulateAheadMin, kPopulateAheadMax);
    const uint64_t wanted = std::min(world_.pool_bytes(), leased_end_ + ahead);
    return resident_end_ < wanted && PopulateStep();
  }

  bool PopulateStep() {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uint64_t step = std::min(kPopulateStep, world_.pool_bytes() - resident_end_);
    const auto begin = reinterpret_cast<uintptr_t>(world_.pool() + resident_end_) & ~(page - 1);
    const auto end = reinterpret_cast<uintptr_t>(world_.pool() + resident_end_ + step);
    // Kernels before 5.14 do not know the call: then the first store makes the page, as without all this.
    const auto started = MemServer::Clock::now();
    if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return false;
    resident_end_ += step;
    // RMA of other clients stands still meanwhile, and needs many polls to go on: half of the time is theirs.
    const auto ended = MemServer::Clock::now();
    int ignored = 0;
    do {
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_.control(), &ignored, MPI_STATUS_IGNORE);
    } while (server_.RmaIsActive(ended) && MemServer::Clock::now() - ended < ended - started);
    return true;
  }

  MpiWorld& world_;
  MemServer server_;
  std::vector<uint32_t> client_of_rank_;  // by world rank; UINT32_MAX for a server
  std::vector<std::deque<Unsent>> unsent_;  // a deque: a record in flight may not move
  microseconds sleep_max_{};
  uint64_t leased_end_ = 0;    // the highest end of a lease so far
  uint64_t resident_end_ = 0;  // [0, resident_end_) of the pool is in memory
};

}  // namespace

Result<bool> ServeUntilBye(MpiWorld& world) { return Loop(world).Run(); }

}  // namespace ramspan
