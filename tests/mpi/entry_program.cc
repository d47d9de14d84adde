// entry_program MODE: one way in which a program may meet and leave its memory servers. Each prints "fine" or ends with
// the error that the test expects (CMakeLists.txt).
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "client/swap/lease_client.h"
#include "client/transport/mpi_entry.h"
#include "ramspan/errors.h"
#define RAMSPAN_NO_MPI_MACROS  // the modes call both MPI's own functions and ours
#include "ramspan/mpi.h"

namespace {

using ramspan::computeComm;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "entry_program: %s\n", what);
  std::exit(9);
}

// The program sees its own ranks only, in order, and can compute with them.
void CheckComputeComm() {
  int rank = -1, size = 0, sum = 0;
  MPI_Comm_rank(computeComm(), &rank);
  MPI_Comm_size(computeComm(), &size);
  const int expected = std::atoi(std::getenv("RAMSPAN_TEST_CLIENTS"));
  if (size != expected) Fail("the compute communicator has servers in it");
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, computeComm());
  if (sum != size * (size - 1) / 2) Fail("a collective call went wrong");
  int world_rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  if (ramspan::WorldRank() != world_rank) Fail("WorldRank is not the rank in the job");
  std::printf("fine\n");
  std::fflush(stdout);
}

int WithMacros(int argc, char** argv) {
  int provided = -1;
  ramspan::detail::MpiInitThread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
  if (provided != MPI_THREAD_MULTIPLE) Fail("MPI_THREAD_MULTIPLE was not obtained");
  CheckComputeComm();
  return ramspan::detail::MpiFinalize() == MPI_SUCCESS ? 0 : 9;
}

bool hook_ran = false;

int PlainProgram() {
  ramspan::SetBeforeLeaveHook([] { hook_ran = true; });
  if (!ramspan::EnsureJoined().ok()) Fail("not joined");
  CheckComputeComm();
  std::atexit([] {
    if (hook_ran) std::fprintf(stderr, "the servers were left before the program's own exit handlers\n");
  });
  return 0;
}

int RealInit(int argc, char** argv, int level) {
  int provided = -1;
  MPI_Init_thread(&argc, &argv, level, &provided);
  const ramspan::Result<ramspan::MpiWorld*> world = ramspan::EnsureJoined();
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().message().c_str());
    return 3;
  }
  CheckComputeComm();
  MPI_Finalize();
  return 0;
}

int EarlyUse() {
  try {
    computeComm();
  } catch (const ramspan::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}

int JoinedBeforeInit(int argc, char** argv) {
  if (!ramspan::EnsureJoined().ok()) Fail("not joined");  // as a global managedPtr would
  return WithMacros(argc, argv);
}

// Leaves without waiting for what it asked for, as a tier does after a while when a server is slow.
int LeaveUnanswered(int argc, char** argv) {
  int provided = -1;
  ramspan::detail::MpiInitThread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  ramspan::MpiWorld& world = *ramspan::EnsureJoined().value();
  {
    ramspan::LeaseClient leases(world);
    for (uint32_t server = 0; server < world.servers().size(); ++server) {
      for (int i = 0; i < 5; ++i) leases.Ask(server, ramspan::kLeaseGranule, ramspan::kLeaseGranule);
    }
  }
  CheckComputeComm();
  return ramspan::detail::MpiFinalize() == MPI_SUCCESS ? 0 : 9;
}

int Fork() {
  if (!ramspan::EnsureJoined().ok()) Fail("not joined");
  const pid_t child = fork();
  if (child == 0) std::exit(0);  // runs the exit handlers in the child
  waitpid(child, nullptr, 0);
  CheckComputeComm();
  return 0;
}

int Run(const std::string& mode, int argc, char** argv) {
  if (mode == "macros") return WithMacros(argc, argv);
  if (mode == "plain") return PlainProgram();
  if (mode == "untouched") return 0;
  if (mode == "real-init") return RealInit(argc, argv, MPI_THREAD_MULTIPLE);
  if (mode == "real-init-single") return RealInit(argc, argv, MPI_THREAD_SINGLE);
  if (mode == "early-use") return EarlyUse();
  if (mode == "joined-before-init") return JoinedBeforeInit(argc, argv);
  if (mode == "fork") return Fork();
  if (mode == "unanswered") return LeaveUnanswered(argc, argv);
  ramspan::detail::MpiInit(&argc, &argv);
  CheckComputeComm();
  int rank = 0;
  MPI_Comm_rank(computeComm(), &rank);
  if (mode == "exit-7" && rank == 0) std::exit(7);
  if (mode == "throw" && rank == 0) throw std::runtime_error("an exception of the program");
  if (mode == "throw" || mode == "exit-7") sleep(30);
  if (mode == "no-finalize") return 0;
  if (mode == "server-sigterm") {
    kill(static_cast<pid_t>(ramspan::EnsureJoined().value()->servers()[0].pid), SIGTERM);
    sleep(30);
  }
  Fail("unknown mode");
}

}  // namespace

int main(int argc, char** argv) { return Run(argc > 1 ? argv[1] : "", argc, argv); }
