#include "client/transport/mpi_entry.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "client/transport/mpi_transport.h"
#include "common/close_on_exec.h"
#include "common/log.h"
#include "common/raise.h"
#include "common/wire.h"
#include "ramspan/errors.h"
#define RAMSPAN_NO_MPI_MACROS
#include "ramspan/mpi.h"

namespace ramspan {
namespace {

// Everything here is without a destructor: it is used while the process exits.
constinit std::once_flag join_once;
constinit std::atomic<Result<MpiWorld*>*> joined = nullptr;  // set once, by the thread that joins; never freed
constinit std::atomic<void (*)()> before_leave = nullptr;
constinit std::atomic<bool> left = false;
constinit std::vector<int>* event_queues = nullptr;  // of an MPI that we initialised; set before the job is joined
const pid_t process_id = getpid();
constinit std::atomic<bool> program_owns_mpi = true;  // false: we initialised MPI, so we finalise it at exit

bool MpiIs(int (*query)(int*)) {
  int flag = 0;
  return query(&flag) == MPI_SUCCESS && flag != 0;
}

// One a process, and never destroyed.
MpiTransport& TransportOf(MpiWorld& world) {
  static MpiTransport* const transport = [&] {
    auto* const made = new MpiTransport(world);
    if (event_queues != nullptr) made->WatchEventQueues(std::move(*event_queues));
    return made;
  }();
  return *transport;
}

// Each client asks each server, because one may see a death that another does not.
bool AllServersAnswer(MpiWorld& world, MpiWatchdog& watchdog) {
  bool all = true;
  for (size_t i = 0; i < world.servers().size(); ++i) {
    const MpiWatchdog::Inside inside(watchdog, i, 0);
    all = world.ServerAnswers(i) && all;
  }
  return all;
}

// kMpiIsOver: MPI must not be called any more, because a server is dead and collective calls would wait for it for ever, or because
// the job was left in another way than MPI_Finalize.
enum class AfterLeaving { kFinalize, kMpiIsOver };

// Says good-bye to the servers, once.
AfterLeaving LeaveServers() {
  Result<MpiWorld*>* world_or = joined.load(std::memory_order_acquire);
  if (world_or == nullptr || !world_or->ok() || world_or->value() == nullptr || left.exchange(true)) return AfterLeaving::kFinalize;
  if (auto* hook = before_leave.load()) hook();
  MpiWorld& world = *world_or->value();
  MpiTransport& transport = TransportOf(world);
  MpiWatchdog& watchdog = transport.watchdog();
  watchdog.Start();
  const bool together = world.AllClientsAgree(AllServersAnswer(world, watchdog));
  const MpiWatchdog::Ending ending(watchdog);
  transport.EndSending();
  const WireRecord bye = Encode({.type = WireType::kBye, .flags = together ? kByeTogether : 0});
  for (size_t i = 0; i < world.servers().size(); ++i) {
    if (world.IsDead(i)) continue;
    MPI_Send(bye.data(), kWireBytes, MPI_BYTE, world.servers()[i].world_rank, 0, world.control());
  }
  if (!together) LogWarning("a memory server died during this job; MPI is left without MPI_Finalize");
  return together && world.Leave() ? AfterLeaving::kFinalize : AfterLeaving::kMpiIsOver;
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else, so this finds the program's own
// MPI_Finalize as well as ours.
int LeaveAtFinalize(MPI_Comm, int, void*, void*) {
  LeaveServers();
  return MPI_SUCCESS;
}

void AtExit(int status, void*);

Result<MpiWorld*> JoinNow() {
  // A number that makes no sense goes on to Join: only there can the other ranks, which wait for this one, hear of it.
  const Result<int> servers = AnnouncedServers();
  if (servers.ok() && servers.value() == 0) return nullptr;
  if (MpiIs(MPI_Finalized)) return FailedPrecondition("MPI has been finalised; memory servers are gone");
  // What MPI opens for a program that calls MPI itself is that program's: without Ramspan it would be open, too.
  std::optional<CloseOnExecOfACall> closing;
  if (!MpiIs(MPI_Initialized)) {
    closing.emplace();
    if (Status s = InitMpiThreadMultiple(nullptr, nullptr); !s.ok()) return s;
    program_owns_mpi = false;
    event_queues = new std::vector<int>(closing->EventQueues());  // before others wait for this rank: it may find no heap
  }
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) {
    return FailedPrecondition(
        "memory servers that are ranks of the job need MPI_THREAD_MULTIPLE, and this program initialised MPI without it: start it by "
        "`ramspan run --transport ofi`, whose servers are no ranks, or include <ramspan/mpi.h> instead of <mpi.h> in every file (or call "
        "MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...) and use ramspan::computeComm() wherever MPI_COMM_WORLD stands, because the servers "
        "are in that one, too)");
  }
  Result<std::unique_ptr<MpiWorld>> world = MpiWorld::Join(Role::kClient, 0);
  if (!world.ok()) return world.status();
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, LeaveAtFinalize, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
  if (on_exit(AtExit, nullptr) != 0) LogWarning("on_exit failed; memory servers may miss the end of this process");
  return std::move(world).value().release();
}

[[noreturn]] void EndJob(const Status& why) {
  std::fprintf(stderr, "%s%s\n", LogPrefix(), why.message().c_str());
  PMPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

constinit std::atomic<bool> exit_handled = false;

// The end of a process that has joined, or never did: the servers wait for every rank. Forked children do not count.
void MeetEnd(int status) {
  if (exit_handled.exchange(true) || left.load() || process_id != getpid()) return;
  if (status != 0) return;  // the launcher ends the job; waiting for others here could only hang
  const bool started_as_rank = std::getenv("PMI_RANK") != nullptr || std::getenv("PMI_FD") != nullptr;
  const Result<int> servers = AnnouncedServers();
  if (!started_as_rank || (servers.ok() && servers.value() == 0)) return;
  const bool was_finalized = MpiIs(MPI_Finalized);
  if (was_finalized && joined.load() == nullptr) {
    std::fprintf(stderr, "%sthis MPI program finished without meeting its memory servers, which still wait: start it by `ramspan run "
                         "--transport ofi`, whose servers are no ranks, or include <ramspan/mpi.h> instead of <mpi.h>, or run it without -s\n",
                 LogPrefix());
    _exit(1);
  }
  if (was_finalized || (MpiIs(MPI_Initialized) && program_owns_mpi)) return;
  if (!EnsureJoined().ok()) _exit(1);
  if (LeaveServers() == AfterLeaving::kFinalize) PMPI_Finalize();
}

// Registered when the job is joined, hence called before the destructors of MPI's own libraries (UCX crashes in
// MPI_Finalize after its own) and after those of static objects that were made later.
void AtExit(int status, void*) { MeetEnd(status); }

// A program that never touched Ramspan meets and leaves the servers here: this library's destructors run before those of
// the libraries it needs. The exit status is not known here.
[[gnu::destructor]] void AtUnload() { MeetEnd(0); }

}  // namespace

Result<MpiWorld*> EnsureJoined() {
  std::call_once(join_once, [] { joined.store(new Result<MpiWorld*>(JoinNow()), std::memory_order_release); });
  const Result<MpiWorld*>& world = *joined.load(std::memory_order_acquire);
  if (world.ok() && world.value() != nullptr && left.load()) {
    return FailedPrecondition("MPI has been finalised; memory servers are gone");
  }
  return world;
}

Result<ServerTransport*> MpiJobTransport(bool linked) {
  const bool has_joined = joined.load(std::memory_order_acquire) != nullptr;
  if (!linked && !has_joined && MpiIs(MPI_Initialized) && !MpiIs(MPI_Finalized)) {
    return FailedPrecondition(
        "this program calls MPI and is not linked with Ramspan's library for MPI, and there are memory servers in its MPI_COMM_WORLD: start it by "
        "`ramspan run --transport ofi`, whose servers are no ranks, or include <ramspan/mpi.h> instead of <mpi.h> in every file, and link by "
        "`pkg-config ramspan-mpi` or CMake's ramspan::mpi");
  }
  const Result<MpiWorld*> world = EnsureJoined();
  if (!world.ok()) return world.status();
  return world.value() == nullptr ? nullptr : &TransportOf(*world.value());
}

void SetMpiBeforeLeaveHook(void (*hook)()) { before_leave = hook; }

int MpiWorldRank() {
  if (!MpiIs(MPI_Initialized) || MpiIs(MPI_Finalized)) return AnnouncedRank();
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void MeetEndOfProcess(int status) { MeetEnd(status); }

bool IsServerInWorld(int world_rank) {
  const Result<MpiWorld*>* const world = joined.load(std::memory_order_acquire);
  if (world == nullptr || !world->ok() || world->value() == nullptr) return false;
  const std::vector<MpiWorld::Server>& servers = world->value()->servers();
  return std::any_of(servers.begin(), servers.end(), [&](const auto& one) { return one.world_rank == world_rank; });
}

MPI_Comm computeComm() {
  if (joined.load(std::memory_order_acquire) == nullptr && !MpiIs(MPI_Initialized)) {
    const Result<int> servers = AnnouncedServers();
    if (servers.ok() && servers.value() == 0) return MPI_COMM_WORLD;
    Raise(ConfigError("MPI_COMM_WORLD (ramspan::computeComm()) was used before MPI_Init, in a job with memory servers"));
  }
  const Result<MpiWorld*> world = EnsureJoined();
  if (!world.ok()) Raise(ConfigError(world.status().message()));
  return world.value() == nullptr ? MPI_COMM_WORLD : world.value()->compute();
}

namespace detail {

int MpiInit(int* argc, char*** argv) { return MpiInitThread(argc, argv, MPI_THREAD_MULTIPLE, nullptr); }

int MpiInitThread(int* argc, char*** argv, int required, int* provided) {
  const Result<int> servers = AnnouncedServers();
  const bool alone = servers.ok() && servers.value() == 0;
  if (MpiIs(MPI_Initialized) && !program_owns_mpi) {
    program_owns_mpi = true;  // a managedPtr made before main() needed MPI already; from here on it is the program's
  } else if (Status s = InitMpiThreadMultiple(argc, argv); !s.ok() && !alone) {
    EndJob(s);
  }
  if (provided != nullptr) MPI_Query_thread(provided);
  static_cast<void>(required);  // MPI allows to provide more than was asked for
  if (const Result<MpiWorld*> world = EnsureJoined(); !world.ok()) {
    PMPI_Abort(MPI_COMM_WORLD, 1);
  }
  return MPI_SUCCESS;
}

int MpiFinalize() {
  return LeaveServers() == AfterLeaving::kFinalize ? PMPI_Finalize() : MPI_SUCCESS;
}

}  // namespace detail

}  // namespace ramspan
