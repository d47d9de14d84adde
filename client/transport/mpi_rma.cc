#include "client/transport/mpi_rma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <utility>

#include "common/wire.h"

namespace ramspan {
namespace {

// MPI counts are ints; the transport below cuts messages by itself, and smaller parts only cost (1 MiB over TCP: 0.22 ms
// in one piece, 0.26 in 256K parts, 0.36 in 64K parts).
constexpr size_t kPartBytesMax = size_t{64} << 20;
// A fifth of the time for which a server believes it (memserver/server.cc).
constexpr int64_t kAnnounceEveryMs = 5;
constexpr uint64_t kLongBytes = uint64_t{16} << 20;  // more than 20 ms of a wire with 0.8 GB/s

// Records for powers of two (and 0) that never change: nobody needs to know when one has been sent.
const std::array<WireRecord, 48>& ActivityRecords() {
  static const auto* const records = [] {
    auto* all = new std::array<WireRecord, 48>;
    for (size_t i = 0; i < all->size(); ++i) {
      (*all)[i] = Encode({.type = WireType::kActivity, .bytes = i == 0 ? 0 : uint64_t{1} << (i - 1)});
    }
    return all;
  }();
  return *records;
}

int64_t NowMs() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

MpiRma::MpiRma(MpiWorld& world, MpiWatchdog& watchdog)
    : world_(world), watchdog_(watchdog), queues_(new ServerQueue[world.servers().size()]) {
  ActivityRecords();  // while nothing is begun: later the heap may have no more
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
  const size_t index = bytes == 0 ? 0 : static_cast<size_t>(std::bit_width(std::min(bytes, kPoolBytesMax) - 1)) + 1;
  const WireRecord& message = ActivityRecords()[index];
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(message.data(), kWireBytes, MPI_BYTE, world_.servers()[server].world_rank, 0, world_.control(),
                &request) != MPI_SUCCESS) {
    world_.MarkDead(server);
    return;
  }
  MPI_Request_free(&request);
}

void MpiRma::Start(std::span<const ServerTransport::Transfer> batch) {
  // Neighbours with one server share an announcement and a queue.
  for (size_t begin = 0; begin < batch.size();) {
    size_t end = begin + 1;
    while (end < batch.size() && batch[end].server == batch[begin].server) ++end;
    StartRun(batch[begin].server, batch.subspan(begin, end - begin));
    begin = end;
  }
}

void MpiRma::StartRun(uint32_t server, std::span<const ServerTransport::Transfer> run) {
  uint64_t bytes = 0;
  for (const ServerTransport::Transfer& transfer : run) bytes += transfer.bytes;
  ServerQueue& queue = queues_[server];
  {
    // While nothing is issued yet: what is, has to be found by a flush.
    MutexLock lock(queue.mutex);
    const size_t places = queue.pending.size() + queue.promised + run.size();
    if (places > queue.pending.capacity()) queue.pending.reserve(std::max(places, 2 * queue.pending.capacity()));
    queue.promised += run.size();
  }
  {
    const MpiWatchdog::Inside inside(watchdog_, server, bytes);  // a put may already wait for the server
    if (!AnnounceLong(server, bytes)) Announce(server);
    for (const ServerTransport::Transfer& transfer : run) Issue(transfer);
  }
  MutexLock lock(queue.mutex);
  for (const ServerTransport::Transfer& transfer : run) queue.pending.push_back(transfer.cookie);
  queue.promised -= run.size();
  queue.pending_bytes += bytes;
}

// In part, where the server is found dead; the flush then fails.
void MpiRma::Issue(const ServerTransport::Transfer& t) {
  const int rank = world_.servers()[t.server].world_rank;
  for (size_t at = 0; at < t.bytes && !world_.IsDead(t.server); at += kPartBytesMax) {
    const int n = static_cast<int>(std::min(kPartBytesMax, t.bytes - at));
    char* buffer = static_cast<char*>(t.buffer) + at;
    const auto offset = static_cast<MPI_Aint>(t.offset + at);
    const int error = t.is_write ? MPI_Put(buffer, n, MPI_BYTE, rank, offset, n, MPI_BYTE, world_.window())
                                 : MPI_Get(buffer, n, MPI_BYTE, rank, offset, n, MPI_BYTE, world_.window());
    if (error != MPI_SUCCESS) world_.MarkDead(t.server);
  }
}

bool MpiRma::Collect(std::vector<ServerTransport::Completion>* done) {
  bool any = false;
  for (uint32_t server = 0; server < world_.servers().size(); ++server) {
    ServerQueue& queue = queues_[server];
    uint64_t bytes;
    {
      MutexLock lock(queue.mutex);
      if (queue.busy || queue.pending.empty()) continue;
      // Before anything is taken: room for what ends, and in the other list for what is being issued.
      done->reserve(done->size() + queue.pending.size());
      if (queue.promised > queue.flushing.capacity()) queue.flushing.reserve(queue.promised);
      queue.busy = true;
      std::swap(queue.pending, queue.flushing);
      bytes = std::exchange(queue.pending_bytes, 0);
    }
    any = true;
    const StatusCode result = Flush(server, bytes) ? StatusCode::kOk : StatusCode::kUnavailable;
    for (void* cookie : queue.flushing) done->push_back({cookie, server, result});
    queue.flushing.clear();
    MutexLock lock(queue.mutex);
    queue.busy = false;
  }
  return any;
}

bool MpiRma::Flush(uint32_t server, uint64_t bytes) {
  const MpiWatchdog::Inside inside(watchdog_, server, bytes);
  const bool announced_long = AnnounceLong(server, bytes);
  if (!announced_long) Announce(server);
  // Also after a death: nothing may be left in flight on a buffer that goes back to its owner.
  if (MPI_Win_flush(world_.servers()[server].world_rank, world_.window()) != MPI_SUCCESS) world_.MarkDead(server);
  const bool ok = !world_.IsDead(server);
  if (ok && announced_long) SendActivity(server, 0);
  return ok;
}

}  // namespace ramspan
