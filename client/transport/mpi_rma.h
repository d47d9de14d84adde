// MpiRma: the far half of MpiTransport. Moves bytes between local buffers and the pools of servers by MPI_Put and MPI_Get
// in the world's window. Knows offsets and cookies, no chunk.
//
// Start issues transfers and returns; Collect flushes and reports what is done. A flush, not MPI_Rput/Rget: with the
// request-based calls MPICH 4.0 ends the process (an assertion in its completion callback) when the server dies, while
// put, get and flush return an error; and only a flush says that the bytes of a put are in the server. One thread at a
// time flushes one server, so that an error is seen by everybody whose transfers it may have hit. What is left: when a
// server dies while gets are in flight, UCX 1.13 now and then aborts this process by itself (an assertion on its count
// of flushes); the launcher then ends the job.
//
// Thread-safety: every call from any thread. Ownership: borrows the world, the watchdog, cookies and buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/transport/mpi_watchdog.h"
#include "client/transport/transport.h"
#include "common/mpi_world.h"
#include "common/mutex.h"

namespace ramspan {

class MpiRma {
 public:
  MpiRma(MpiWorld& world, MpiWatchdog& watchdog);

  // As ServerTransport says. A failed put, get or flush marks the server dead.
  void Start(std::span<const ServerTransport::Transfer> batch);
  bool Collect(std::vector<ServerTransport::Completion>* done);

 private:
  struct ServerQueue {
    Mutex mutex{LockRank::kTransport};
    std::vector<void*> pending RS_GUARDED_BY(mutex);  // cookies: issued, not flushed
    size_t promised RS_GUARDED_BY(mutex) = 0;         // are being issued; there is room for them in `pending`
    std::vector<void*> flushing;                      // the flushing thread's own
    bool busy RS_GUARDED_BY(mutex) = false;           // somebody flushes
    uint64_t pending_bytes RS_GUARDED_BY(mutex) = 0;
    std::atomic<int64_t> announced_ms{0};  // of the steady clock; any order will do
  };

  void StartRun(uint32_t server, std::span<const ServerTransport::Transfer> run);
  void Issue(const ServerTransport::Transfer& transfer);
  bool Flush(uint32_t server, uint64_t bytes);
  void Announce(uint32_t server);
  bool AnnounceLong(uint32_t server, uint64_t bytes);
  void SendActivity(uint32_t server, uint64_t bytes);

  MpiWorld& world_;
  MpiWatchdog& watchdog_;
  const std::unique_ptr<ServerQueue[]> queues_;
};

}  // namespace ramspan
