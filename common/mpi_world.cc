#include "common/mpi_world.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <type_traits>
#include <vector>

#include "common/log.h"
#include "common/mpi_control.h"
#include "common/pmi.h"
#include "common/process_life.h"
#include "common/units.h"
#include "common/wire.h"

namespace ramspan {
namespace {

constexpr uint64_t kPoolBytesMin = uint64_t{1} << 20;

Status MpiStatus(int error, const char* what) {
  if (error == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  return Unavailable(std::string(what) + " failed: " + text);
}

// Collective. Every rank learns the first rank's error, if any has one; so all go on or all stop.
Status Agree(MPI_Comm comm, int rank, int size, const Status& mine) {
  struct Word {
    int code;
    char text[600];
  } word{static_cast<int>(mine.code()), {}};
  std::snprintf(word.text, sizeof word.text, "%s", mine.message().c_str());
  int failed = mine.ok() ? size : rank;
  if (Status s = MpiStatus(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce"); !s.ok()) {
    return s;
  }
  if (failed == size) return {};
  if (Status s = MpiStatus(MPI_Bcast(&word, sizeof word, MPI_BYTE, failed, comm), "MPI_Bcast"); !s.ok()) return s;
  return {static_cast<StatusCode>(word.code), word.text};
}

// While it lives MPICH may put a window of shared memory at different addresses in its ranks. To find one that is free in all of them it
// asks the kernel for each page, one after the other: the servers' memory took 0.23 s for each GiB, at each start of a job. Ranks that
// share a window look together, so all must be told alike: by MPI_T, in the call that they make together, not by an environment that
// some MPI may have read too early. Where there is no such variable nothing is changed. MPI_T stays initialised: the last MPI_T_finalize of a
// process takes MPICH's tables away for good, and the program's own use of them would crash.
class AnyAddressOfWindows {
 public:
  AnyAddressOfWindows() {
    static const bool is_open = [] {
      int provided = 0;
      return MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS;
    }();
    int index = -1, count = 0;
    if (!is_open) return;
    if (MPI_T_cvar_get_index("MPIR_CVAR_SHM_SYMHEAP_RETRY", &index) != MPI_SUCCESS &&
        MPI_T_cvar_get_index("MPIR_CVAR_CH4_SHM_SYMHEAP_RETRY", &index) != MPI_SUCCESS) return;
    if (MPI_T_cvar_handle_alloc(index, nullptr, &tries_, &count) != MPI_SUCCESS) return;
    const int none = 0;
    is_set_ = MPI_T_cvar_read(tries_, &before_) == MPI_SUCCESS && MPI_T_cvar_write(tries_, &none) == MPI_SUCCESS;
  }
  ~AnyAddressOfWindows() {
    if (is_set_) MPI_T_cvar_write(tries_, &before_);
    if (tries_ != MPI_T_CVAR_HANDLE_NULL) MPI_T_cvar_handle_free(&tries_);
  }
  AnyAddressOfWindows(const AnyAddressOfWindows&) = delete;
  AnyAddressOfWindows& operator=(const AnyAddressOfWindows&) = delete;

 private:
  MPI_T_cvar_handle tries_ = MPI_T_CVAR_HANDLE_NULL;
  int before_ = 0;
  bool is_set_ = false;
};

}  // namespace

// What the ranks tell each other first; the same bytes reach all, so verdicts made from them alone are common.
struct MpiWorld::Hello {
  uint32_t wire_version = kWireVersion;
  uint32_t role = 0;
  int32_t announced_servers = 0;  // -1: RAMSPAN_SERVERS is not a number
  int32_t node_leader = 0;        // the lowest rank with which this one shares memory
  uint32_t can_leave_by_pmi = 0;
  uint64_t pool_bytes = 0;
  int64_t pid = 0;
  uint64_t pid_namespace = 0;
  Location location{};
};

Status InitMpiThreadMultiple(int* argc, char*** argv) {
  const MpiSettings while_mpi_starts;
  int provided = MPI_THREAD_SINGLE;
  if (PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) {
    return Unavailable("MPI could not be initialised");
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    return FailedPrecondition(
        "this MPI library does not support MPI_THREAD_MULTIPLE, which memory servers need: use an MPICH built with "
        "threads, or run with --transport none");
  }
  return {};
}

Result<std::unique_ptr<MpiWorld>> MpiWorld::Join(Role role, uint64_t pool_bytes) {
  std::unique_ptr<MpiWorld> world(new MpiWorld);
  const Status met = world->Meet(role, pool_bytes);
  if (met.ok()) return world;
  if (world->rank_ == 0) {
    // Whoever goes first ends the job, and mpiexec then drops what it has not yet passed on of the others' output.
    std::fprintf(stderr, "ramspan: %s\n", met.message().c_str());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  if (world->control_ != MPI_COMM_NULL) MPI_Barrier(world->control_);
  return met;
}

Status MpiWorld::Meet(Role role, uint64_t pool_bytes) {
  role_ = role;
  // PMPI: a program's collective call on this communicator is refused (client/transport/mpi_world_guard.cc).
  if (Status s = MpiStatus(PMPI_Comm_dup(MPI_COMM_WORLD, &control_), "MPI_Comm_dup"); !s.ok()) return s;
  MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(control_, &rank_);
  MPI_Comm_size(control_, &size_);
  if (Status s = MpiStatus(MPI_Comm_split_type(control_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_),
                           "MPI_Comm_split_type");
      !s.ok()) {
    return s;
  }
  Hello mine;
  const Result<int> announced = AnnouncedServers();
  mine.role = static_cast<uint32_t>(role);
  mine.announced_servers = announced.ok() ? announced.value() : -1;
  mine.node_leader = rank_;
  mine.can_leave_by_pmi = CanSayPmiGoodbye() ? 1 : 0;
  mine.pool_bytes = pool_bytes;
  mine.pid = getpid();
  mine.pid_namespace = PidNamespace();
  mine.location = MyLocation();
  MPI_Bcast(&mine.node_leader, 1, MPI_INT32_T, 0, node_);
  static_assert(std::is_trivially_copyable_v<Hello>);
  std::vector<Hello> hellos(static_cast<size_t>(size_));
  if (Status s = MpiStatus(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, hellos.data(), sizeof mine, MPI_BYTE, control_),
                           "MPI_Allgather");
      !s.ok()) {
    return s;
  }
  if (Status s = ReadHellos(hellos); !s.ok()) return s;
  if (role == Role::kServer) ChoosePoolBytes(hellos);
  if (Status s = Agree(control_, rank_, size_, CheckPoolRoom()); !s.ok()) return s;
  if (Status s = Agree(control_, rank_, size_, MakePool()); !s.ok()) return s;
  return Agree(control_, rank_, size_, MapPools());
}

Status MpiWorld::ReadHellos(const std::vector<Hello>& hellos) {
  const Hello& mine = hellos[static_cast<size_t>(rank_)];
  for (int r = 0; r < size_; ++r) {
    const Hello& hello = hellos[static_cast<size_t>(r)];
    if (hello.wire_version != hellos[0].wire_version) {
      return FailedPrecondition("rank " + std::to_string(r) + " runs another version of Ramspan than rank 0");
    }
    const bool same_node = hello.node_leader == mine.node_leader;
    if (hello.role == static_cast<uint32_t>(Role::kServer)) {
      servers_.push_back({.world_rank = r,
                          .pool_bytes = hello.pool_bytes,
                          .distance = same_node ? Distance(mine.location, hello.location) : 2,
                          .pid = hello.pid_namespace == mine.pid_namespace ? static_cast<long>(hello.pid) : 0});
    } else {
      clients_.push_back({.world_rank = r, .same_node = same_node});
    }
  }
  for (int r = 0; r < size_; ++r) {
    const int announced = hellos[static_cast<size_t>(r)].announced_servers;
    if (announced == static_cast<int>(servers_.size()) && announced > 0) continue;
    if (announced < 0) {
      return InvalidArgument("RAMSPAN_SERVERS of rank " + std::to_string(r) +
                             " is not a number of memory servers; `ramspan run -s N` sets it");
    }
    return InvalidArgument("RAMSPAN_SERVERS announces " + std::to_string(announced) + " memory servers to rank " +
                           std::to_string(r) + ", but " +
                           std::to_string(servers_.size()) + " of the job's " + std::to_string(size_) +
                           " ranks are ramspan-memserver: start the job with `ramspan run -n RANKS -s SERVERS -- APP`");
  }
  if (clients_.empty()) {
    return InvalidArgument("all ranks of this job are memory servers: start it with `ramspan run -n RANKS ...`");
  }
  dead_ = std::make_unique<std::atomic<bool>[]>(servers_.size());
  const auto on_one_node = [&](const Hello& h) { return h.node_leader == hellos[0].node_leader; };
  leave_by_pmi_ = !std::all_of(hellos.begin(), hellos.end(), on_one_node) &&
                  std::all_of(hellos.begin(), hellos.end(), [](const Hello& h) { return h.can_leave_by_pmi != 0; });
  return {};
}

void MpiWorld::ChoosePoolBytes(const std::vector<Hello>& hellos) {
  const Hello& mine = hellos[static_cast<size_t>(rank_)];
  pool_bytes_ = mine.pool_bytes;
  if (pool_bytes_ == 0) {
    const auto servers_here = static_cast<uint64_t>(std::count_if(hellos.begin(), hellos.end(), [&](const Hello& h) {
      return h.role == mine.role && std::strncmp(h.location.host, mine.location.host, sizeof h.location.host) == 0;
    }));
    pool_bytes_ = AvailableMemory() / 2 / servers_here;
    // A tenth stays for others, and the size is rounded down, so that what is chosen here fits below.
    const uint64_t room = SharedMemoryRoom(SharedMemoryFree(), 0);
    if (room > 0) pool_bytes_ = std::min(pool_bytes_, room / 10 * 9 / servers_here / kLeaseGranule * kLeaseGranule);
  }
  pool_bytes_ = (pool_bytes_ + kLeaseGranule - 1) / kLeaseGranule * kLeaseGranule;
}

// A pool that outgrows /dev/shm would be found out by a SIGBUS in the middle of the run.
Status MpiWorld::CheckPoolRoom() const {
  uint64_t pools_here = pool_bytes_;
  MPI_Allreduce(MPI_IN_PLACE, &pools_here, 1, MPI_UINT64_T, MPI_SUM, node_);
  if (role_ != Role::kServer) return {};
  if (pool_bytes_ < kPoolBytesMin || pool_bytes_ > kPoolBytesMax) {
    return InvalidArgument("a memory server cannot lend " + FormatBytes(pool_bytes_) +
                           ": --server-memory (RAMSPAN_SERVER_MEMORY) goes from 1 MiB to 64 TiB");
  }
  int ranks_here = 0;
  MPI_Comm_size(node_, &ranks_here);
  const uint64_t room = SharedMemoryRoom(SharedMemoryFree(), 0);
  if (ranks_here == 1 || pools_here <= room) return {};
  return ResourceExhausted("the memory servers of this host want to lend " + FormatBytes(pools_here) +
                           ", but /dev/shm has room for " + FormatBytes(room) +
                           " in all: lower --server-memory, or enlarge it (mount -o remount,size=SIZE /dev/shm; in a "
                           "container: --shm-size)");
}

Status MpiWorld::MakePool() {
  const AnyAddressOfWindows any_address;
  int ranks_here = 0;
  MPI_Comm_size(node_, &ranks_here);
  if (ranks_here > 1) {
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", "true");  // each pool on its own pages, so that it can be bound
    MPI_Comm_set_errhandler(node_, MPI_ERRORS_RETURN);
    const int error = MPI_Win_allocate_shared(static_cast<MPI_Aint>(pool_bytes_), 1, info, node_, &pool_,
                                              &shared_window_);
    MPI_Info_free(&info);
    if (Status s = MpiStatus(error, "MPI_Win_allocate_shared"); !s.ok()) return s;
  } else if (role_ == Role::kServer) {
    void* pool = mmap(nullptr, pool_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) {
      return ResourceExhausted("a memory server cannot map " + FormatBytes(pool_bytes_) + ": lower --server-memory");
    }
    pool_ = static_cast<std::byte*>(pool);
    pool_is_mapped_here_ = true;
  }
  if (role_ == Role::kServer) {
    // Both are wishes: one NUMA node, and kernels without huge pages for shared memory, are fine as they are.
    BindMemoryToLocalNode(pool_, pool_bytes_);
    if (madvise(pool_, pool_bytes_, MADV_HUGEPAGE) != 0) errno = 0;
  }
  return {};
}

Status MpiWorld::MapPools() {
  std::vector<uint64_t> pools(static_cast<size_t>(size_));
  MPI_Allgather(&pool_bytes_, 1, MPI_UINT64_T, pools.data(), 1, MPI_UINT64_T, control_);
  MPI_Group all = MPI_GROUP_NULL, here = MPI_GROUP_NULL;
  MPI_Comm_group(control_, &all);
  MPI_Comm_group(node_, &here);
  for (Server& server : servers_) {
    server.pool_bytes = pools[static_cast<size_t>(server.world_rank)];
    int rank_here = MPI_UNDEFINED;
    MPI_Group_translate_ranks(all, 1, &server.world_rank, here, &rank_here);
    // Only ranks of the node communicator may be asked: for others the query succeeds with a null pointer.
    if (rank_here == MPI_UNDEFINED || shared_window_ == MPI_WIN_NULL) continue;
    MPI_Aint bytes = 0;
    int unit = 0;
    std::byte* base = nullptr;
    if (MPI_Win_shared_query(shared_window_, rank_here, &bytes, &unit, &base) != MPI_SUCCESS || bytes <= 0) continue;
    server.pool_bytes = UsablePoolBytes(server.pool_bytes, bytes);
    server.shared = base;
  }
  MPI_Group_free(&all);
  MPI_Group_free(&here);

  // Over the same memory: RMA on the shared window itself is slow (1 GB/s).
  if (Status s = MpiStatus(MPI_Win_create(pool_, static_cast<MPI_Aint>(pool_bytes_), 1, MPI_INFO_NULL, control_,
                                          &window_),
                           "MPI_Win_create");
      !s.ok()) {
    return s;
  }
  MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
  if (role_ == Role::kClient) MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  // Two splits of one order: the program's communicator, on which errors are fatal as on MPI_COMM_WORLD, and ours.
  const int color = role_ == Role::kClient ? 0 : MPI_UNDEFINED;
  MPI_Comm_split(control_, color, rank_, &compute_);
  MPI_Comm_split(control_, color, rank_, &leave_);
  if (compute_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(compute_, MPI_ERRORS_ARE_FATAL);
  return {};
}

bool MpiWorld::ServerAnswers(size_t server) {
  if (IsDead(server)) return false;
  const Server& s = servers_[server];
  char byte = 0;
  const bool there = s.shared != nullptr
                         ? LifeOfProcess(s.pid) != ProcessLife::kGone
                         : MPI_Get(&byte, 1, MPI_BYTE, s.world_rank, 0, 1, MPI_BYTE, window_) == MPI_SUCCESS &&
                               MPI_Win_flush(s.world_rank, window_) == MPI_SUCCESS;
  if (!there) MarkDead(server);
  return there;
}

bool MpiWorld::AllClientsAgree(bool mine) {
  int all = mine ? 1 : 0;
  MPI_Request request = MPI_REQUEST_NULL;
  int done = MPI_Iallreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, leave_, &request) != MPI_SUCCESS;
  if (done != 0) return false;
  // The others may compute for hours yet: no spinning on their cores. As MPI_Finalize, this has no deadline of its own.
  while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return done != 0 && all != 0;
}

bool MpiWorld::Leave() {
  // The barrier first: nobody's pool or connection goes while another rank may still use it.
  MPI_Barrier(control_);
  if (leave_by_pmi_) {
    const Status said = SayPmiGoodbye([this] {
      int arrived = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, control_, &arrived, MPI_STATUS_IGNORE);
    });
    if (!said.ok()) LogWarning("rank %d: %s; the job may end with an error", rank_, said.message().c_str());
    return false;
  }
  TakeLastAnswers();
  if (role_ == Role::kClient) MPI_Win_unlock_all(window_);
  MPI_Win_free(&window_);
  if (shared_window_ != MPI_WIN_NULL) MPI_Win_free(&shared_window_);
  if (pool_is_mapped_here_) munmap(pool_, pool_bytes_);
  pool_ = nullptr;
  for (MPI_Comm* comm : {&leave_, &compute_, &node_, &control_}) {
    if (*comm != MPI_COMM_NULL) MPI_Comm_free(comm);
  }
  return true;
}

// An answer that nobody waits for any more, because its server was slow, is received all the same: UCX complains on the
// program's standard output about messages that are left at MPI_Finalize. Behind the last one comes an empty one.
void MpiWorld::TakeLastAnswers() {
  constexpr int kNoMoreTag = 1;  // answers have tag 0
  for (const Client& client : clients_) {
    if (role_ == Role::kServer) MPI_Send(nullptr, 0, MPI_BYTE, client.world_rank, kNoMoreTag, control_);
  }
  for (const Server& server : servers_) {
    if (role_ != Role::kClient) break;
    ControlMessage message;
    while (message.tag != kNoMoreTag && WaitForControl(control_, server.world_rank, &message).ok()) {
    }
  }
}

MpiWorld::~MpiWorld() = default;

}  // namespace ramspan
