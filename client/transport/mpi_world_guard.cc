// Calls of the program's that can never be completed by all: collective ones on the real MPI_COMM_WORLD in a job with memory
// servers, which are in that communicator and take part in nothing, and messages to and from a server there. That is what a
// program does with one file that includes <mpi.h> instead of <ramspan/mpi.h>; sooner or later some rank stood there for ever
// without a word. Such a call ends the job with a message that names the file's mistake. The servers themselves never make
// these calls (mpi_world.cc uses PMPI_Comm_dup), so no program that is ended here could have worked. Rare ones are left out
// (Alltoallw, neighbourhood and persistent collectives, graphs, intercommunicators, buffered and ready sends).
//
// And MPI_Init of <mpi.h> gets the settings that ours has, for a job started by a plain mpiexec.
//
// This is MPI's profiling interface: the program's MPI_Barrier is found here, because it links Ramspan before MPI, and
// goes on to the next one, which is MPI's or that of a profiling tool. Where MPI comes first (`-lmpich -lramspan`), or a
// tool is preloaded, nobody notices the mistake, as before. Cost: one comparison a call. Thread-safety: as MPI's.
#include <dlfcn.h>
#include <mpi.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "client/transport/mpi_entry.h"

namespace ramspan {
namespace {

[[noreturn, gnu::format(printf, 1, 2)]] void EndJob(const char* format, ...) {
  char text[200];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::fprintf(stderr,
               "ramspan: rank %d calls %s, and would wait there for ever. Remedy: include <ramspan/mpi.h> instead of "
               "<mpi.h> in every file (or compile all of them with -include ramspan/mpi.h), or use "
               "ramspan::computeComm() where MPI_COMM_WORLD stands\n", MpiWorldRank(), text);
  // mpiexec drops what it has not passed on when the first rank aborts; half a second is enough for it on a machine under load.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  PMPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

// A count that makes no sense is an error elsewhere, where all ranks hear of it.
bool JobHasServers() {
  static const bool has_servers = [] {
    const Result<int> servers = AnnouncedServers();
    return servers.ok() && servers.value() > 0;
  }();
  return has_servers;
}

void CheckCollective(const char* name, MPI_Comm comm) {
  if (comm != MPI_COMM_WORLD || !JobHasServers()) return;
  EndJob("%s on the MPI_COMM_WORLD of <mpi.h>, in which the memory servers are, too", name);
}

void CheckPeer(const char* name, int peer, MPI_Comm comm) {
  if (comm != MPI_COMM_WORLD || !IsServerInWorld(peer)) return;
  EndJob("%s with rank %d of the MPI_COMM_WORLD of <mpi.h>, which is a memory server", name, peer);
}

template <typename Function>
Function* Next(const char* name, Function* own_of_mpi) {
  void* const next = dlsym(RTLD_NEXT, name);
  return next != nullptr ? reinterpret_cast<Function*>(next) : own_of_mpi;
}

}  // namespace
}  // namespace ramspan

// One function of MPI's: its name, its parameters and arguments, and what is looked at before it is called.
#define RAMSPAN_GUARD(name, parameters, arguments, check)            \
  extern "C" int name parameters {                                   \
    check;                                                           \
    static auto* const next = ramspan::Next(#name, &P##name);        \
    return next arguments;                                           \
  }
#define RAMSPAN_GUARD_ALL(name, parameters, arguments) \
  RAMSPAN_GUARD(name, parameters, arguments, ramspan::CheckCollective(#name, comm))
#define RAMSPAN_GUARD_PEER(name, parameters, arguments) \
  RAMSPAN_GUARD(name, parameters, arguments, ramspan::CheckPeer(#name, peer, comm))

// A program that initialises MPI by itself: without servers everything about MPI is its own affair.
#define RAMSPAN_GUARD_INIT(name, parameters, arguments)                    \
  extern "C" int name parameters {                                         \
    std::optional<ramspan::MpiSettings> while_mpi_starts;              \
    if (ramspan::JobHasServers()) while_mpi_starts.emplace();              \
    return ramspan::Next(#name, &P##name) arguments;                       \
  }

RAMSPAN_GUARD_INIT(MPI_Init, (int* argc, char*** argv), (argc, argv))
RAMSPAN_GUARD_INIT(MPI_Init_thread, (int* argc, char*** argv, int required, int* provided), (argc, argv, required, provided))

using In = const void*;
using Out = void*;
using Type = MPI_Datatype;
using Ints = const int*;

RAMSPAN_GUARD_ALL(MPI_Barrier, (MPI_Comm comm), (comm))
RAMSPAN_GUARD_ALL(MPI_Bcast, (Out b, int n, Type t, int root, MPI_Comm comm), (b, n, t, root, comm))
RAMSPAN_GUARD_ALL(MPI_Gather, (In s, int n, Type t, Out r, int m, Type u, int root, MPI_Comm comm), (s, n, t, r, m, u, root, comm))
RAMSPAN_GUARD_ALL(MPI_Gatherv, (In s, int n, Type t, Out r, Ints m, Ints at, Type u, int root, MPI_Comm comm),
                  (s, n, t, r, m, at, u, root, comm))
RAMSPAN_GUARD_ALL(MPI_Scatter, (In s, int n, Type t, Out r, int m, Type u, int root, MPI_Comm comm), (s, n, t, r, m, u, root, comm))
RAMSPAN_GUARD_ALL(MPI_Scatterv, (In s, Ints n, Ints at, Type t, Out r, int m, Type u, int root, MPI_Comm comm),
                  (s, n, at, t, r, m, u, root, comm))
RAMSPAN_GUARD_ALL(MPI_Allgather, (In s, int n, Type t, Out r, int m, Type u, MPI_Comm comm), (s, n, t, r, m, u, comm))
RAMSPAN_GUARD_ALL(MPI_Allgatherv, (In s, int n, Type t, Out r, Ints m, Ints at, Type u, MPI_Comm comm), (s, n, t, r, m, at, u, comm))
RAMSPAN_GUARD_ALL(MPI_Alltoall, (In s, int n, Type t, Out r, int m, Type u, MPI_Comm comm), (s, n, t, r, m, u, comm))
RAMSPAN_GUARD_ALL(MPI_Alltoallv, (In s, Ints n, Ints from, Type t, Out r, Ints m, Ints at, Type u, MPI_Comm comm),
                  (s, n, from, t, r, m, at, u, comm))
RAMSPAN_GUARD_ALL(MPI_Reduce, (In s, Out r, int n, Type t, MPI_Op op, int root, MPI_Comm comm), (s, r, n, t, op, root, comm))
RAMSPAN_GUARD_ALL(MPI_Allreduce, (In s, Out r, int n, Type t, MPI_Op op, MPI_Comm comm), (s, r, n, t, op, comm))
RAMSPAN_GUARD_ALL(MPI_Reduce_scatter, (In s, Out r, Ints n, Type t, MPI_Op op, MPI_Comm comm), (s, r, n, t, op, comm))
RAMSPAN_GUARD_ALL(MPI_Reduce_scatter_block, (In s, Out r, int n, Type t, MPI_Op op, MPI_Comm comm), (s, r, n, t, op, comm))
RAMSPAN_GUARD_ALL(MPI_Scan, (In s, Out r, int n, Type t, MPI_Op op, MPI_Comm comm), (s, r, n, t, op, comm))
RAMSPAN_GUARD_ALL(MPI_Exscan, (In s, Out r, int n, Type t, MPI_Op op, MPI_Comm comm), (s, r, n, t, op, comm))
RAMSPAN_GUARD_ALL(MPI_Ibarrier, (MPI_Comm comm, MPI_Request* q), (comm, q))
RAMSPAN_GUARD_ALL(MPI_Ibcast, (Out b, int n, Type t, int root, MPI_Comm comm, MPI_Request* q), (b, n, t, root, comm, q))
RAMSPAN_GUARD_ALL(MPI_Iallreduce, (In s, Out r, int n, Type t, MPI_Op op, MPI_Comm comm, MPI_Request* q), (s, r, n, t, op, comm, q))
// The same, not waited for at once.
RAMSPAN_GUARD_ALL(MPI_Igather, (In s, int n, Type t, Out r, int m, Type u, int root, MPI_Comm comm, MPI_Request* q),
                  (s, n, t, r, m, u, root, comm, q))
RAMSPAN_GUARD_ALL(MPI_Igatherv, (In s, int n, Type t, Out r, Ints m, Ints at, Type u, int root, MPI_Comm comm, MPI_Request* q),
                  (s, n, t, r, m, at, u, root, comm, q))
RAMSPAN_GUARD_ALL(MPI_Iscatter, (In s, int n, Type t, Out r, int m, Type u, int root, MPI_Comm comm, MPI_Request* q),
                  (s, n, t, r, m, u, root, comm, q))
RAMSPAN_GUARD_ALL(MPI_Iscatterv, (In s, Ints n, Ints at, Type t, Out r, int m, Type u, int root, MPI_Comm comm, MPI_Request* q),
                  (s, n, at, t, r, m, u, root, comm, q))
RAMSPAN_GUARD_ALL(MPI_Iallgather, (In s, int n, Type t, Out r, int m, Type u, MPI_Comm comm, MPI_Request* q),
                  (s, n, t, r, m, u, comm, q))
RAMSPAN_GUARD_ALL(MPI_Iallgatherv, (In s, int n, Type t, Out r, Ints m, Ints at, Type u, MPI_Comm comm, MPI_Request* q),
                  (s, n, t, r, m, at, u, comm, q))
RAMSPAN_GUARD_ALL(MPI_Ialltoall, (In s, int n, Type t, Out r, int m, Type u, MPI_Comm comm, MPI_Request* q),
                  (s, n, t, r, m, u, comm, q))
RAMSPAN_GUARD_ALL(MPI_Ialltoallv, (In s, Ints n, Ints from, Type t, Out r, Ints m, Ints at, Type u, MPI_Comm comm, MPI_Request* q),
                  (s, n, from, t, r, m, at, u, comm, q))
RAMSPAN_GUARD_ALL(MPI_Ireduce, (In s, Out r, int n, Type t, MPI_Op op, int root, MPI_Comm comm, MPI_Request* q),
                  (s, r, n, t, op, root, comm, q))
RAMSPAN_GUARD_ALL(MPI_Ireduce_scatter_block, (In s, Out r, int n, Type t, MPI_Op op, MPI_Comm comm, MPI_Request* q),
                  (s, r, n, t, op, comm, q))
RAMSPAN_GUARD_ALL(MPI_Iscan, (In s, Out r, int n, Type t, MPI_Op op, MPI_Comm comm, MPI_Request* q), (s, r, n, t, op, comm, q))

// New communicators, windows and files.
RAMSPAN_GUARD_ALL(MPI_Comm_dup, (MPI_Comm comm, MPI_Comm* made), (comm, made))
RAMSPAN_GUARD_ALL(MPI_Comm_idup, (MPI_Comm comm, MPI_Comm* made, MPI_Request* q), (comm, made, q))
RAMSPAN_GUARD_ALL(MPI_Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm* made), (comm, info, made))
RAMSPAN_GUARD_ALL(MPI_Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm* made), (comm, color, key, made))
RAMSPAN_GUARD_ALL(MPI_Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made), (comm, type, key, info, made))
RAMSPAN_GUARD_ALL(MPI_Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm* made), (comm, group, made))
RAMSPAN_GUARD_ALL(MPI_Cart_create, (MPI_Comm comm, int n, Ints dims, Ints periodic, int reorder, MPI_Comm* made),
                  (comm, n, dims, periodic, reorder, made))
RAMSPAN_GUARD_ALL(MPI_Win_create, (Out base, MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, MPI_Win* made),
                  (base, size, unit, info, comm, made))
RAMSPAN_GUARD_ALL(MPI_Win_allocate, (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* made),
                  (size, unit, info, comm, base, made))
RAMSPAN_GUARD_ALL(MPI_Win_allocate_shared, (MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void* base, MPI_Win* made),
                  (size, unit, info, comm, base, made))
RAMSPAN_GUARD_ALL(MPI_Win_create_dynamic, (MPI_Info info, MPI_Comm comm, MPI_Win* made), (info, comm, made))
RAMSPAN_GUARD_ALL(MPI_File_open, (MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* file), (comm, name, mode, info, file))

RAMSPAN_GUARD_PEER(MPI_Send, (In b, int n, Type t, int peer, int tag, MPI_Comm comm), (b, n, t, peer, tag, comm))
RAMSPAN_GUARD_PEER(MPI_Ssend, (In b, int n, Type t, int peer, int tag, MPI_Comm comm), (b, n, t, peer, tag, comm))
RAMSPAN_GUARD_PEER(MPI_Isend, (In b, int n, Type t, int peer, int tag, MPI_Comm comm, MPI_Request* q), (b, n, t, peer, tag, comm, q))
RAMSPAN_GUARD_PEER(MPI_Recv, (Out b, int n, Type t, int peer, int tag, MPI_Comm comm, MPI_Status* status),
                   (b, n, t, peer, tag, comm, status))
RAMSPAN_GUARD_PEER(MPI_Irecv, (Out b, int n, Type t, int peer, int tag, MPI_Comm comm, MPI_Request* q), (b, n, t, peer, tag, comm, q))
RAMSPAN_GUARD_PEER(MPI_Issend, (In b, int n, Type t, int peer, int tag, MPI_Comm comm, MPI_Request* q), (b, n, t, peer, tag, comm, q))
RAMSPAN_GUARD_PEER(MPI_Probe, (int peer, int tag, MPI_Comm comm, MPI_Status* status), (peer, tag, comm, status))
RAMSPAN_GUARD_PEER(MPI_Mprobe, (int peer, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status),
                   (peer, tag, comm, message, status))
RAMSPAN_GUARD(MPI_Sendrecv_replace,
              (Out b, int n, Type t, int to, int tag, int from, int with, MPI_Comm comm, MPI_Status* status),
              (b, n, t, to, tag, from, with, comm, status),
              (ramspan::CheckPeer("MPI_Sendrecv_replace", to, comm), ramspan::CheckPeer("MPI_Sendrecv_replace", from, comm)))
RAMSPAN_GUARD(MPI_Sendrecv,
              (In s, int n, Type t, int to, int tag, Out r, int m, Type u, int from, int with, MPI_Comm comm, MPI_Status* status),
              (s, n, t, to, tag, r, m, u, from, with, comm, status),
              (ramspan::CheckPeer("MPI_Sendrecv", to, comm), ramspan::CheckPeer("MPI_Sendrecv", from, comm)))
