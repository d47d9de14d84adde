#include "client/transport/mpi_rma.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <utility>

#include "common/log.h"
#include "common/own_thread.h"
#include "common/wire.h"

namespace ramspan {
namespace {

// MPI counts are ints; the transport below cuts messages by itself, and smaller parts only cost (1 MiB over TCP: 0.22 ms
// in one piece, 0.26 in 256K parts, 0.36 in 64K parts).
constexpr size_t kPartBytesMax = size_t{64} << 20;
// A fifth of the time for which a server believes it (memserver/server.cc).
constexpr int64_t kAnnounceEveryMs = 5;
constexpr uint64_t kLongBytes = uint64_t{16} << 20;  // more than 20 ms of a wire with 0.8 GB/s
constexpr uint64_t kSlowestWireBytesPerMs = 10'000;

int64_t NowMs() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// The calling thread is about to enter MPI, where a server that does not answer could hold it.
class MpiRma::InsideMpi {
 public:
  InsideMpi(ServerQueue& queue, uint64_t bytes) : queue_(queue), bytes_(bytes) {
    queue_.inside_since_ms.store(NowMs(), std::memory_order_relaxed);
    queue_.inside_bytes.fetch_add(bytes_, std::memory_order_relaxed);
    queue_.inside.fetch_add(1, std::memory_order_relaxed);
  }
  ~InsideMpi() {
    queue_.inside_since_ms.store(NowMs(), std::memory_order_relaxed);  // it answers
    queue_.inside_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
    queue_.inside.fetch_sub(1, std::memory_order_relaxed);
    queue_.warned.store(false, std::memory_order_relaxed);
  }
  InsideMpi(const InsideMpi&) = delete;
  InsideMpi& operator=(const InsideMpi&) = delete;

 private:
  ServerQueue& queue_;
  const uint64_t bytes_;
};

MpiRma::MpiRma(MpiWorld& world) : world_(world), queues_(new ServerQueue[world.servers().size()]) {}

MpiRma::~MpiRma() {
  if (!watchdog_.joinable()) return;
  {
    MutexLock lock(watchdog_mutex_);
    watchdog_ends_ = true;
    watchdog_wake_.NotifyAll();
  }
  watchdog_.join();
}

void MpiRma::StartWatchdog(std::chrono::seconds warn_after, std::chrono::seconds give_up_after) {
  watchdog_ = std::thread([this, warn_after, give_up_after] {
    BlockSignals();
    SetDefaultFpEnvironment();
    MutexLock lock(watchdog_mutex_);
    while (!watchdog_ends_) {
      watchdog_wake_.WaitFor(watchdog_mutex_, std::chrono::milliseconds(500));
      CheckProgress(warn_after, give_up_after);
    }
  });
}

// Keeps the server polling: it sleeps between polls unless a client says that RMA is under way.
void MpiRma::Announce(uint32_t server) {
  if (world_.IsDead(server)) return;
  ServerQueue& queue = queues_[server];
  const int64_t now = NowMs();
  int64_t last = queue.announced_ms.load(std::memory_order_relaxed);
  if (now - last < kAnnounceEveryMs) return;
  if (queue.announced_ms.compare_exchange_strong(last, now, std::memory_order_relaxed)) SendActivity(server, 0);
}

// The same for a put or flush that may take so long that no announcement could follow in time: MPICH 4.0 keeps its lock
// inside, so other threads cannot send one either. True: it has; SendActivity(server, 0) ends it.
bool MpiRma::AnnounceLong(uint32_t server, uint64_t bytes) {
  if (bytes < kLongBytes || world_.IsDead(server)) return false;
  SendActivity(server, bytes);
  return true;
}

void MpiRma::SendActivity(uint32_t server, uint64_t bytes) {
  // Records for powers of two (and 0) that never change: nobody needs to know when one has been sent.
  static const auto* const messages = [] {
    auto* all = new std::array<WireRecord, 48>;
    for (size_t i = 0; i < all->size(); ++i) {
      (*all)[i] = Encode({.type = WireType::kActivity, .bytes = i == 0 ? 0 : uint64_t{1} << (i - 1)});
    }
    return all;
  }();
  const size_t index = bytes == 0 ? 0 : static_cast<size_t>(std::bit_width(std::min(bytes, kPoolBytesMax) - 1)) + 1;
  const WireRecord& message = (*messages)[index];
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(message.data(), kWireBytes, MPI_BYTE, world_.servers()[server].world_rank, 0, world_.control(),
                &request) != MPI_SUCCESS) {
    world_.MarkDead(server);
    return;
  }
  MPI_Request_free(&request);
}

void MpiRma::Start(uint32_t server, const std::vector<Transfer>& transfers) {
  const int rank = world_.servers()[server].world_rank;
  uint64_t bytes = 0;
  for (const Transfer& t : transfers) bytes += t.bytes;
  ServerQueue& queue = queues_[server];
  const InsideMpi inside(queue, bytes);  // a put may already wait for the server
  if (!AnnounceLong(server, bytes)) Announce(server);
  for (const Transfer& t : transfers) {
    for (size_t at = 0; at < t.bytes && !world_.IsDead(server); at += kPartBytesMax) {
      const int n = static_cast<int>(std::min(kPartBytesMax, t.bytes - at));
      char* buffer = static_cast<char*>(t.buffer) + at;
      const auto offset = static_cast<MPI_Aint>(t.offset + at);
      const int error = t.is_write ? MPI_Put(buffer, n, MPI_BYTE, rank, offset, n, MPI_BYTE, world_.window())
                                   : MPI_Get(buffer, n, MPI_BYTE, rank, offset, n, MPI_BYTE, world_.window());
      if (error != MPI_SUCCESS) world_.MarkDead(server);
    }
  }
  MutexLock lock(queue.mutex);
  queue.pending.push_back(transfers.front().request);
  queue.pending_bytes += bytes;
}

bool MpiRma::Collect(std::vector<Completion>* done) {
  bool any = false;
  for (uint32_t server = 0; server < world_.servers().size(); ++server) {
    ServerQueue& queue = queues_[server];
    uint64_t bytes;
    {
      MutexLock lock(queue.mutex);
      if (queue.busy || queue.pending.empty()) continue;
      queue.busy = true;
      std::swap(queue.pending, queue.flushing);
      bytes = std::exchange(queue.pending_bytes, 0);
    }
    any = true;
    bool ok;
    {
      const InsideMpi inside(queue, bytes);
      const bool announced_long = AnnounceLong(server, bytes);
      if (!announced_long) Announce(server);
      // Also after a death: nothing may be left in flight on a buffer that goes back to its owner.
      if (MPI_Win_flush(world_.servers()[server].world_rank, world_.window()) != MPI_SUCCESS) world_.MarkDead(server);
      ok = !world_.IsDead(server);
      if (ok && announced_long) SendActivity(server, 0);
    }
    for (IoRequest* request : queue.flushing) done->push_back({request, ok});
    queue.flushing.clear();
    MutexLock lock(queue.mutex);
    queue.busy = false;
  }
  return any;
}

void MpiRma::CheckProgress(std::chrono::seconds warn_after, std::chrono::seconds give_up_after) {
  for (uint32_t server = 0; server < world_.servers().size(); ++server) {
    ServerQueue& queue = queues_[server];
    if (queue.inside.load(std::memory_order_relaxed) == 0) continue;
    const std::chrono::milliseconds waited(NowMs() - queue.inside_since_ms.load(std::memory_order_relaxed));
    const std::chrono::milliseconds wire(queue.inside_bytes.load(std::memory_order_relaxed) / kSlowestWireBytesPerMs);
    const int rank = world_.servers()[server].world_rank;
    if (waited > give_up_after + wire) {
      std::fprintf(stderr, "ramspan: memory server rank %d has not answered for %lld s; ending the job. Remedy: see "
                   "whether its host is overloaded or its process stopped, or run without that host\n",
                   rank, static_cast<long long>(waited.count() / 1000));
      std::fflush(nullptr);
      _exit(1);
    }
    if (waited > warn_after + wire && !queue.warned.exchange(true, std::memory_order_relaxed)) {
      LogWarning("memory server rank %d has not answered for %lld s; still waiting", rank,
                 static_cast<long long>(waited.count() / 1000));
    }
  }
}

}  // namespace ramspan
