// ramspan-memserver: a rank that lends its memory to the compute ranks of its job. Started by `ramspan run`.
// RAMSPAN_SERVER_MEMORY: bytes to lend; RAMSPAN_RUN_DIR: where to write server-RANK.pid for the launcher.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>

#include "common/descriptor.h"
#include "common/log.h"
#include "common/mpi_world.h"
#include "common/units.h"
#include "memserver/join_watch.h"
#include "memserver/mpi_endpoint.h"
#include "memserver/server_loop.h"

namespace ramspan {
namespace {

constexpr char kHelp[] =
    "usage: ramspan-memserver\n\n"
    "A memory server: one rank of an MPI job whose memory the compute ranks use. It is started by the launcher,\n"
    "  ramspan run -n RANKS -s SERVERS [--server-memory SIZE] -- APP ARGS\n"
    "or by hand with RAMSPAN_SERVERS set to the number of servers for all ranks:\n"
    "  RAMSPAN_SERVERS=1 mpiexec -n 2 ./app : -n 1 ramspan-memserver\n\n"
    "environment: RAMSPAN_SERVER_MEMORY  what each server lends, like 4GiB (default: half of what the host has\n"
    "                                    available, divided by its servers)\n"
    "             RAMSPAN_RUN_DIR        where to write server-RANK.pid\n";

// Made before the handler can run; a signal handler can format nothing.
char end_message[96];

extern "C" void EndAtOnce(int signal_number) {
  if (write(STDERR_FILENO, end_message, std::strlen(end_message)) < 0) _exit(1);
  _exit(128 + signal_number);
}

Result<uint64_t> MemoryToLend() {
  const char* text = std::getenv("RAMSPAN_SERVER_MEMORY");
  if (text == nullptr || *text == '\0') return uint64_t{0};
  Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return InvalidArgument("RAMSPAN_SERVER_MEMORY: " + bytes.status().message());
  if (bytes.value() == 0) return InvalidArgument("RAMSPAN_SERVER_MEMORY is 0: a server must lend something");
  return bytes;
}

void WritePidFile(int rank) {
  const char* directory = std::getenv("RAMSPAN_RUN_DIR");
  if (directory == nullptr || *directory == '\0') return;
  const std::string path = std::string(directory) + "/server-" + std::to_string(rank) + ".pid";
  std::ofstream file(path);
  file << getpid() << '\n';
  if (!file.flush()) LogWarning("cannot write %s", path.c_str());
}

// The launcher ends the job of a terminal that hangs up, if the user has not said nohup. UCX takes this signal, from when it is loaded, for
// the wish to fill standard output with its debugging messages. SIGUSR1 and SIGUSR2 ask programs for reports, and hydra sends the first to the
// survivors when a rank dies (with -disable-auto-cleanup).
void IgnoreSignals() {
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2}) std::signal(number, SIG_IGN);
}

void CatchSignals() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::snprintf(end_message, sizeof end_message, "ramspan-memserver: rank %d (pid %d) ended by a signal\n", rank,
                getpid());
  std::signal(SIGTERM, EndAtOnce);
  std::signal(SIGINT, EndAtOnce);
  IgnoreSignals();
}

// Ranks join within milliseconds, and within seconds where a machine has many times as many ranks as cores. RAMSPAN_TEST_JOIN_PATIENCE (seconds): for
// tests only, whose ranks spin meanwhile.
std::chrono::seconds JoinPatience() {
  const char* const seconds = std::getenv("RAMSPAN_TEST_JOIN_PATIENCE");
  return std::chrono::seconds(seconds == nullptr ? 10 : std::atoi(seconds));
}

// By the first of the servers; null: it is another one's affair.
std::unique_ptr<JoinWatch> WatchRanksJoin(int servers) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != ranks - servers) return nullptr;
  return std::make_unique<JoinWatch>(JoinPatience(), [rank, ranks] {
    LogWarning("the program has initialised MPI, but its ranks do not come to the memory servers (ranks %d to %d). They do so with MPI_Init "
               "where <ramspan/mpi.h> is included, else when Ramspan is first used. If the program includes <mpi.h> alone it has %d ranks in MPI_COMM_WORLD, servers among "
               "them, and its first collective call waits for these for ever. Remedy: ramspan run --transport ofi, or include <ramspan/mpi.h> instead of <mpi.h> and link ramspan::mpi",
               rank, ranks - 1, ranks);
  });
}

Status ServeJob() {
  IgnoreSignals();  // MPI_Init may wait long for other ranks
  // Then at once this, because hydra does not notice a rank that ends before: the others would wait for it in MPI_Init.
  if (Status initialised = InitMpiThreadMultiple(nullptr, nullptr); !initialised.ok()) return initialised;
  CatchSignals();  // after MPI has set its own handlers
  const Result<uint64_t> lend = MemoryToLend();
  if (!lend.ok()) return lend.status();
  const Result<int> announced = AnnouncedServers();
  if (announced.ok() && announced.value() == 0) {
    return InvalidArgument("RAMSPAN_SERVERS is not set: `ramspan run -s N` starts servers");
  }
  std::unique_ptr<JoinWatch> watch = WatchRanksJoin(announced.ok() ? announced.value() : 1);
  Result<std::unique_ptr<MpiWorld>> world = MpiWorld::Join(Role::kServer, lend.value());
  watch.reset();
  if (!world.ok()) return world.status();
  WritePidFile(world.value()->rank());
  Result<bool> together = false;
  {
    MpiEndpoint endpoint(*world.value());
    together = Serve(endpoint);
  }
  if (!together.ok()) return together.status();
  if (together.value()) {
    if (world.value()->Leave()) MPI_Finalize();
    return {};
  }
  // Another server died. This one did its work, and MPI_Finalize would wait for the dead rank for ever.
  LogWarning("memory server rank %d: another server died; ended without MPI_Finalize", world.value()->rank());
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) {
  ramspan::FillStandardStreams();
  if (argc > 1) {
    const bool help = std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h";
    std::fputs(ramspan::kHelp, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  const ramspan::Status served = ramspan::ServeJob();
  if (served.ok()) return 0;
  std::fprintf(stderr, "ramspan-memserver: %s\n", served.message().c_str());
  // Not MPI_Finalize, which would wait for ranks that may be gone; the status tells the launcher to end the job.
  std::fflush(nullptr);
  _exit(1);
}
