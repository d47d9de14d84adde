// MpiWorld: one job of compute ranks (clients) and memory-server ranks that met over MPI. Both sides call Join and
// Leave, and both make the same collective calls in the same order, which is why they live in this one place.
//
// Thread-safety: Join and Leave from one thread; everything else is constant in between, or synchronises itself.
// Ownership: the world owns its communicators, its window and a server's pool; they die with Leave.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/announced_servers.h"
#include "common/default_variable.h"
#include "common/status.h"
#include "common/topology.h"

namespace ramspan {

// While MPI is initialised: what MPICH, and UCX beneath it, are told where the user has not said anything else by the same variable. The
// environment is the program's: it is as before when MPI has read it.
// UCX_TLS=^sysv: no System V segments, which the user's whole group can write (0660). POSIX ones, as fast, are the user's only.
// UCX_TCP_TX_SEG_SIZE=64k: over tcp between two network namespaces a get of 1 MiB took 250 us with it and 780 us without.
class MpiSettings {
  const DefaultVariable transports_{"UCX_TLS", "^sysv"}, segment_{"UCX_TCP_TX_SEG_SIZE", "64k"};
};

// Initialises MPI with MPI_THREAD_MULTIPLE (argc, argv may be null). kFailedPrecondition, and MPI stays initialised,
// where the library cannot give that level.
Status InitMpiThreadMultiple(int* argc, char*** argv);

enum class Role : uint32_t { kClient = 1, kServer = 2 };

// How much of a server's pool may be used: what it says that it has, and where it is mapped here no more than that, because a store
// beyond the mapping would hit somebody else's memory. `mapped_bytes`: MPI's word; 0 or less: it is not mapped.
inline uint64_t UsablePoolBytes(uint64_t said_bytes, int64_t mapped_bytes) {
  return mapped_bytes > 0 ? std::min(said_bytes, static_cast<uint64_t>(mapped_bytes)) : said_bytes;
}

class MpiWorld {
 public:
  struct Server {
    int world_rank = 0;
    uint64_t pool_bytes = 0;      // no more than is mapped here, whatever the server says
    int distance = 2;             // common/topology.h; 2 for every server that is reached by RMA
    std::byte* shared = nullptr;  // the pool mapped here, for load/store; null where only RMA gets there
    long pid = 0;                 // meaningful where `shared` is not null; 0: in another PID namespace, not visible here
  };
  struct Client {
    int world_rank = 0;
    bool same_node = false;  // reaches this server by load/store; servers only
  };

  // Collective over all ranks of the job. `pool_bytes` is what a server lends; 0: half of this host's available
  // memory, shared between its servers. Clients pass 0. Verdicts are common: either every rank gets a world or every
  // rank gets the same error (no server, not as many servers as announced, no client, no room for the pool), which
  // names the remedy and has been printed once for the job.
  static Result<std::unique_ptr<MpiWorld>> Join(Role role, uint64_t pool_bytes);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  Role role() const { return role_; }
  int rank() const { return rank_; }
  MPI_Comm compute() const { return compute_; }  // the clients in world order; MPI_COMM_NULL on a server
  MPI_Comm control() const { return control_; }  // all ranks, world order; errors return; for control messages only
  MPI_Win window() const { return window_; }     // all pools, offsets in bytes; clients hold lock_all; errors return
  const std::vector<Server>& servers() const { return servers_; }
  const std::vector<Client>& clients() const { return clients_; }
  std::byte* pool() const { return pool_; }  // a server's own
  uint64_t pool_bytes() const { return pool_bytes_; }

  // A server's death is for ever. Any thread.
  void MarkDead(size_t server) { dead_[server].store(true, std::memory_order_relaxed); }
  bool IsDead(size_t server) const { return dead_[server].load(std::memory_order_relaxed); }

  // Clients: whether the server is there; marks it dead if not. Of a far one it waits for an answer, for ever if the
  // server is stopped: let the watchdog know. A near one that is stopped counts as there: it may go on.
  bool ServerAnswers(size_t server);
  // Clients: true on all clients when it is true on all. Collective over the clients; waits, sleeping, until all of them
  // are here (as MPI_Finalize does).
  bool AllClientsAgree(bool mine);

  // Collective over all ranks. True: all is freed, and MPI_Finalize can be called. False: this process has taken leave
  // of the job and must not call MPI again (jobs that span nodes, see common/pmi.h). Without this call the destructor
  // frees nothing of MPI's: in a job with a dead rank collective calls would wait for ever.
  [[nodiscard]] bool Leave();

 private:
  struct Hello;
  MpiWorld() = default;
  Status Meet(Role role, uint64_t pool_bytes);
  Status ReadHellos(const std::vector<Hello>& hellos);
  Status CheckPoolRoom() const;
  void ChoosePoolBytes(const std::vector<Hello>& hellos);
  Status MakePool();
  Status MapPools();
  void TakeLastAnswers();

  Role role_ = Role::kClient;
  int rank_ = 0;
  int size_ = 0;
  MPI_Comm control_ = MPI_COMM_NULL;
  MPI_Comm compute_ = MPI_COMM_NULL;
  MPI_Comm leave_ = MPI_COMM_NULL;  // the clients again, for our own collective calls
  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win shared_window_ = MPI_WIN_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<Server> servers_;
  std::vector<Client> clients_;
  std::unique_ptr<std::atomic<bool>[]> dead_;
  std::byte* pool_ = nullptr;
  uint64_t pool_bytes_ = 0;
  bool pool_is_mapped_here_ = false;  // by mmap, not by MPI
  bool leave_by_pmi_ = false;         // the same on all ranks
};

}  // namespace ramspan
