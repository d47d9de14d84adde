// MpiRma: moves bytes between local buffers and the pools of servers on other nodes, by MPI_Put and MPI_Get in the
// world's window. Knows offsets and requests, no chunk.
//
// Start issues a transfer and returns; Collect flushes and reports what is done. A flush, not MPI_Rput/Rget: with the
// request-based calls MPICH 4.0 ends the process (an assertion in its completion callback) when the server dies, while
// put, get and flush return an error; and only a flush says that the bytes of a put are in the server. One thread at a
// time flushes one server, so that an error is seen by everybody whose transfers it may have hit. What is left: when a
// server dies while gets are in flight, UCX 1.13 now and then aborts this process by itself (an assertion on its count
// of flushes); the launcher then ends the job.
//
// Thread-safety: every call from any thread. Ownership: borrows the world, the watchdog, requests and
// buffers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/swap/swap_tier.h"
#include "client/transport/mpi_watchdog.h"
#include "common/mpi_world.h"
#include "common/mutex.h"

namespace ramspan {

class MpiRma {
 public:
  struct Transfer {
    IoRequest* request = nullptr;
    bool is_write = false;
    void* buffer = nullptr;
    uint64_t offset = 0;  // in the server's pool
    size_t bytes = 0;
  };
  // One request's transfers with one server.
  struct Completion {
    IoRequest* request = nullptr;
    bool ok = false;
  };

  MpiRma(MpiWorld& world, MpiWatchdog& watchdog);

  // Begins all of `transfers`, which belong to one request and one server. Collect returns one Completion for them
  // all; they may be issued in part when the server is found dead. Does not wait for bytes to move.
  void Start(uint32_t server, const std::vector<Transfer>& transfers);

  // Flushes the servers that have transfers pending and appends their completions; false when there was nothing that
  // another thread is not already flushing. Blocks while bytes move. A failed flush marks the server dead.
  bool Collect(std::vector<Completion>* done);

 private:
  struct ServerQueue {
    Mutex mutex{LockRank::kTransport};
    std::vector<IoRequest*> pending RS_GUARDED_BY(mutex);  // issued, not flushed
    std::vector<IoRequest*> flushing;                      // the flushing thread's own
    bool busy RS_GUARDED_BY(mutex) = false;                // somebody flushes
    uint64_t pending_bytes RS_GUARDED_BY(mutex) = 0;
    std::atomic<int64_t> announced_ms{0};  // of the steady clock; any order will do
  };

  void Announce(uint32_t server);
  bool AnnounceLong(uint32_t server, uint64_t bytes);
  void SendActivity(uint32_t server, uint64_t bytes);

  MpiWorld& world_;
  MpiWatchdog& watchdog_;
  const std::unique_ptr<ServerQueue[]> queues_;
};

}  // namespace ramspan
