// Stands in for an MPI application and, under the name ramspan-memserver, for a memory server: ends in the ways that
// the launcher must cope with. usage: standin MODE [RANK]
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

int my_rank = -1;

void WriteFile(const char* folder_variable, const std::string& name) {
  const char* folder = std::getenv(folder_variable);
  if (folder == nullptr) return;
  // Renamed into place, so that whoever sees the file sees the whole of it.
  const std::string path = std::string(folder) + "/" + name;
  std::ofstream(path + ".new") << getpid() << '\n';
  std::rename((path + ".new").c_str(), path.c_str());
}

[[noreturn]] void Sleep() {
  WriteFile("RAMSPAN_TEST_READY", "rank-" + std::to_string(my_rank));
  for (;;) pause();
}

// MPI_Barrier without the whole core that MPICH takes for it: a memory server's stand-in is there for as long as its ranks sleep.
void WaitForAll() {
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), done == 0;) usleep(1000);
}

void EndAs(const std::string& mode) {
  if (mode == "segv") {
    std::signal(SIGSEGV, SIG_DFL);  // without UCX's backtrace
    std::raise(SIGSEGV);
  }
  if (mode == "kill") std::raise(SIGKILL);
  if (mode == "exit7") _exit(7);
  if (mode == "exit0") _exit(0);
  if (mode == "abort9") MPI_Abort(MPI_COMM_WORLD, 9);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argv[0];
  const bool server = name.size() > 9 && name.substr(name.size() - 9) == "memserver";
  const char* server_mode = std::getenv("RAMSPAN_TEST_SERVER");
  const std::string mode = server ? (server_mode == nullptr ? "ok" : server_mode) : argc > 1 ? argv[1] : "ok";
  const int who = argc > 2 ? std::atoi(argv[2]) : -1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  if (mode == "stubborn") {
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_IGN);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (who < 0 || who == my_rank) EndAs(mode);
  if (mode == "sleep" || mode == "stubborn" || mode == "kill" || mode == "segv" || mode == "exit0") Sleep();
  WaitForAll();
  MPI_Finalize();
  return mode == "late7" && who == my_rank ? 7 : 0;
}
