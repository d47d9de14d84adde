// entry_program MODE: one way in which a program may meet and leave its memory servers. Each prints "fine" or ends with
// the error that the test expects (CMakeLists.txt).
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "client/swap/lease_client.h"
#include "client/transport/mpi_entry.h"
#include "common/wire.h"
#include "ramspan/errors.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/runtime.h"
#define RAMSPAN_NO_MPI_MACROS  // the modes call both MPI's own functions and ours
#include "ramspan/mpi.h"
#include "tests/support/send_signal.h"

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

// MPICH takes SIGUSR1 in MPI_Init, and the statistics came no more.
std::atomic<bool> reported{false};
int ReportBesideMpi(int argc, char** argv) {
  ramspan::detail::MpiInit(&argc, &argv);
  CheckComputeComm();
  { const ramspan::managedPtr<int> first(10); }
  ramspan::SetSignalReport(SIGUSR1, [] { reported = true; });
  raise(SIGUSR1);
  for (int i = 0; !reported; ++i) {
    if (i == 1000) Fail("no report for SIGUSR1");
    usleep(10'000);
  }
  return ramspan::detail::MpiFinalize() == MPI_SUCCESS ? 0 : 9;
}

// The last MPI_T_finalize of a process takes MPICH's tables away: it must not be Ramspan's.
int ToolsInterface(int argc, char** argv) {
  ramspan::detail::MpiInit(&argc, &argv);
  { const ramspan::managedPtr<int> first(10); }
  for (int round = 0; round < 2; ++round) {
    int provided = 0, variables = 0, index = -1, count = 0, tries = 0;
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS || MPI_T_cvar_get_num(&variables) != MPI_SUCCESS || variables == 0) Fail("no control variables");
    if (MPI_T_cvar_get_index("MPIR_CVAR_SHM_SYMHEAP_RETRY", &index) == MPI_SUCCESS) {
      if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS || MPI_T_cvar_read(handle, &tries) != MPI_SUCCESS) Fail("a control variable cannot be read");
      MPI_T_cvar_handle_free(&handle);
      if (tries == 0) Fail("a control variable is not as it was");
    }
    MPI_T_finalize();
  }
  CheckComputeComm();
  return ramspan::detail::MpiFinalize() == MPI_SUCCESS ? 0 : 9;
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
    ramspan::LeaseClient leases(*ramspan::JobTransport().value());
    for (uint32_t server = 0; server < world.servers().size(); ++server) {
      for (int i = 0; i < 5; ++i) leases.Ask(server, ramspan::kLeaseGranule, ramspan::kLeaseGranule);
    }
  }
  CheckComputeComm();
  return ramspan::detail::MpiFinalize() == MPI_SUCCESS ? 0 : 9;
}

// A server that is stopped, but not dead, when the job ends: no call of MPI that waits for it ever returns.
int StoppedServerAtEnd(int argc, char** argv) {
  int provided = -1;
  ramspan::detail::MpiInitThread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  CheckComputeComm();
  int rank = 0;
  MPI_Comm_rank(computeComm(), &rank);
  const pid_t server = static_cast<pid_t>(ramspan::EnsureJoined().value()->servers()[0].pid);
  if (rank == 0) SendSignal(server, SIGSTOP);
  MPI_Barrier(computeComm());
  const int ended = ramspan::detail::MpiFinalize();
  if (rank == 0) SendSignal(server, SIGCONT);
  return ended == MPI_SUCCESS ? 0 : 9;
}

// A message of a wrong length was received whole into fresh pages, and one of more than INT_MAX bytes ended the server
// and so the job.
int HugeMessage(int argc, char** argv) {
  int provided = -1;
  ramspan::detail::MpiInitThread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  ramspan::MpiWorld& world = *ramspan::EnsureJoined().value();
  constexpr int kParts = 2100;  // of 1 MiB: more than an int can count
  constexpr size_t kPart = size_t{1} << 20;
  void* zeros = mmap(nullptr, kParts * kPart, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zeros == MAP_FAILED) Fail("no address space for the message");
  MPI_Datatype part = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(static_cast<int>(kPart), MPI_BYTE, &part);
  MPI_Type_commit(&part);
  MPI_Send(zeros, kParts, part, world.servers()[0].world_rank, 0, world.control());
  MPI_Type_free(&part);
  munmap(zeros, kParts * kPart);
  CheckComputeComm();
  return ramspan::detail::MpiFinalize() == MPI_SUCCESS ? 0 : 9;
}

// One client says that somebody is dead, which is not true. The servers went, and the others waited for them for ever.
int FalseBye(int argc, char** argv) {
  int provided = -1;
  ramspan::detail::MpiInitThread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  CheckComputeComm();
  ramspan::MpiWorld& world = *ramspan::EnsureJoined().value();
  int rank = 0;
  MPI_Comm_rank(computeComm(), &rank);
  if (rank != 0) return ramspan::detail::MpiFinalize() == MPI_SUCCESS ? 0 : 9;
  world.AllClientsAgree(true);
  const ramspan::WireRecord bye = ramspan::Encode({.type = ramspan::WireType::kBye});
  for (const auto& server : world.servers()) {
    MPI_Send(bye.data(), ramspan::kWireBytes, MPI_BYTE, server.world_rank, 0, world.control());
  }
  for (;;) pause();
}

// System V segments of this process: others of the user's group could write them.
int SystemVSegments() {
  shm_info totals{};
  const int last = shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&totals));
  int count = 0;
  for (int index = 0; index <= last; ++index) {
    shmid_ds segment{};
    if (shmctl(index, SHM_STAT, &segment) >= 0) count += segment.shm_cpid == getpid();
  }
  return count;
}

// What a file does that includes <mpi.h> instead of <ramspan/mpi.h>. It stood there for ever, and nobody said why.
int RawWorld(const std::string& call, int argc, char** argv) {
  int provided = -1, rank = 0, sum = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (call == "raw-init" && SystemVSegments() > 0) Fail("MPI_Init of <mpi.h> made System V segments");
  if (call == "raw-init" && (std::getenv("UCX_TLS") != nullptr || std::getenv("UCX_TCP_TX_SEG_SIZE") != nullptr)) Fail("a setting of UCX was left in the program's environment");
  if (call == "raw-before-use") MPI_Barrier(MPI_COMM_WORLD);
  CheckComputeComm();
  MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 0, &sum, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (sum != 1 - rank) Fail("a message between compute ranks went wrong");  // the rank numbers are the same: no mistake
  if (call == "raw-collective") MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (call == "raw-peer") MPI_Recv(&rank, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Finalize();
  return 0;
}

// In the server that is a child of the same proxy as this process; 0 while there is none. What /proc says in the line that begins with `word`.
pid_t server_beside = 0;
uint64_t OfServerBeside(const char* word) {
  const std::string ours = "PPid:\t" + std::to_string(getppid()) + "\n";
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "status");
    const std::string status((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (status.rfind("Name:\tramspan-memserv\n", 0) != 0 || status.find(ours) == std::string::npos) continue;
    server_beside = std::stoi(entry.path().filename());
    const size_t at = status.find(word);
    return at == std::string::npos ? 0 : std::stoull(status.substr(at + std::strlen(word)), nullptr, 16);
  }
  return 0;
}

// A terminal hangs up while the server waits in MPI_Init for the others, and again when it serves.
int ServerSighup(int argc, char** argv) {
  for (int i = 0; (OfServerBeside("SigIgn:") >> (SIGHUP - 1) & 1) == 0; ++i) {
    if (i == 3000) Fail("a server that waits in MPI_Init does not ignore SIGHUP");
    usleep(10'000);
  }
  SendSignal(server_beside, SIGHUP);
  ramspan::detail::MpiInit(&argc, &argv);
  CheckComputeComm();
  if ((OfServerBeside("SigIgn:") >> (SIGHUP - 1) & 1) == 0) Fail("a server that serves does not ignore SIGHUP");
  SendSignal(server_beside, SIGHUP);
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
  if (mode.rfind("raw-", 0) == 0) return RawWorld(mode, argc, argv);
  if (mode == "untouched") return 0;
  if (mode == "real-init") return RealInit(argc, argv, MPI_THREAD_MULTIPLE);
  if (mode == "real-init-single") return RealInit(argc, argv, MPI_THREAD_SINGLE);
  if (mode == "report") return ReportBesideMpi(argc, argv);
  if (mode == "tools-interface") return ToolsInterface(argc, argv);
  if (mode == "early-use") return EarlyUse();
  if (mode == "joined-before-init") return JoinedBeforeInit(argc, argv);
  if (mode == "fork") return Fork();
  if (mode == "server-sighup") return ServerSighup(argc, argv);
  if (mode == "unanswered") return LeaveUnanswered(argc, argv);
  if (mode == "stopped-server") return StoppedServerAtEnd(argc, argv);
  if (mode == "huge-message") return HugeMessage(argc, argv);
  if (mode == "false-bye") return FalseBye(argc, argv);
  ramspan::detail::MpiInit(&argc, &argv);
  CheckComputeComm();
  int rank = 0;
  MPI_Comm_rank(computeComm(), &rank);
  if (mode == "exit-7" && rank == 0) std::exit(7);
  if (mode == "throw" && rank == 0) throw std::runtime_error("an exception of the program");
  if (mode == "throw" || mode == "exit-7") sleep(30);
  if (mode == "no-finalize") return 0;
  if (mode == "server-sigterm") {
    SendSignal(static_cast<pid_t>(ramspan::EnsureJoined().value()->servers()[0].pid), SIGTERM);
    sleep(30);
  }
  Fail("unknown mode");
}

}  // namespace

int main(int argc, char** argv) { return Run(argc > 1 ? argv[1] : "", argc, argv); }
