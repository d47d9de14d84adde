// MpiEndpoint between two processes, without the server's loop: `endpoint_program server` waits for arrivals, far longer than
// the loop would, so that one that is not seen is noticed. `endpoint_program client` sends records and transfers.
// Prints "fine" when arrivals ended the waits.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/mpi_control.h"
#include "common/mpi_world.h"
#include "memserver/mpi_endpoint.h"

namespace ramspan {
namespace {

using std::chrono::seconds;

constexpr int kRounds = 50;
constexpr int kBytes = 1 << 20;
constexpr seconds kTooLong{1};  // a wait; nothing here takes as long on the busiest machine
// Waits that may end by time. MPI_Iprobe of MPICH looks first and makes progress then: of a record that the last poll before a
// wait took in, no descriptor tells. It was 1 in 1300 on an idle machine; where waits hear nothing it is each.
constexpr int kUnheardMax = 5;
constexpr int kPollsBetweenWaits = 64;  // as the server's loop

[[noreturn]] void Fail(const char* what) {
  std::printf("FAILED: %s\n", what);
  std::fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void Check(bool holds, const char* what) {
  if (!holds) Fail(what);
}

// Polls until a record of the client has come, and says which. Between polls it waits for arrivals; `unheard` counts the waits
// that ended by time.
WireType NextRecord(MpiEndpoint* endpoint, int* unheard) {
  std::optional<Endpoint::Message> message;
  for (int polls = 1;; ++polls) {
    Check(endpoint->Poll(&message).ok(), "poll");
    if (message) break;
    if (polls % kPollsBetweenWaits != 0) continue;
    const Endpoint::Arrival arrival = endpoint->Wait(kTooLong);
    Check(arrival != Endpoint::Arrival::kUnknown, "nothing to wait for");
    *unheard += arrival == Endpoint::Arrival::kNone;
    Check(*unheard <= kUnheardMax, "arrivals do not end waits");
  }
  const Result<WireMessage> decoded = Decode(message->record);
  Check(decoded.ok(), "a record of the client");
  return decoded.value().type;
}

// Each record and all transfers have to end a wait; the client goes on when it has the answer.
void ServeFar(MpiEndpoint* endpoint) {
  int unheard = 0;
  while (NextRecord(endpoint, &unheard) != WireType::kBye) {
    Check(endpoint->Answer(0, {.type = WireType::kFull}), "answer");
  }
}

void ServeNear(MpiEndpoint* endpoint) {
  Check(endpoint->Wait(kTooLong) == Endpoint::Arrival::kUnknown, "a server with near clients only waits for no network");
  std::optional<Endpoint::Message> message;
  for (WireType type{}; type != WireType::kBye;) {
    Check(endpoint->Poll(&message).ok(), "poll");
    if (!message) continue;
    type = Decode(message->record).value().type;
    if (type != WireType::kBye) Check(endpoint->Answer(0, {.type = WireType::kFull}), "answer");
  }
}

void Transfer(MpiWorld& world, std::vector<char>* bytes, char letter) {
  const int server = world.servers()[0].world_rank;
  bytes->assign(kBytes, letter);
  MPI_Put(bytes->data(), kBytes, MPI_BYTE, server, 0, kBytes, MPI_BYTE, world.window());
  MPI_Win_flush(server, world.window());
  bytes->assign(kBytes, ' ');
  MPI_Get(bytes->data(), kBytes, MPI_BYTE, server, 0, kBytes, MPI_BYTE, world.window());
  MPI_Win_flush(server, world.window());
  Check(*bytes == std::vector<char>(kBytes, letter), "what was put is got");
}

void BeClient(MpiWorld& world) {
  ControlSender sender(world.control());
  std::vector<char> bytes;
  const int server = world.servers()[0].world_rank;
  for (int i = 0; i < kRounds; ++i) {
    Transfer(world, &bytes, static_cast<char>('a' + i % 26));
    Check(sender.Send(server, {.type = WireType::kActivity}).ok(), "send");
    ControlMessage answer;
    Check(WaitForControl(world.control(), server, &answer).ok(), "an answer");
  }
  Check(sender.Send(server, {.type = WireType::kBye}).ok(), "send");
  sender.Finish();
  std::printf("fine\n");
}

int Run(const std::string& role) {
  Check(InitMpiThreadMultiple(nullptr, nullptr).ok(), "MPI");
  Result<std::unique_ptr<MpiWorld>> joined = MpiWorld::Join(role == "server" ? Role::kServer : Role::kClient, kBytes);
  Check(joined.ok(), "join");
  MpiWorld& world = *joined.value();
  if (role == "server") {
    MpiEndpoint endpoint(world);
    endpoint.needs_polling() ? ServeFar(&endpoint) : ServeNear(&endpoint);
  } else {
    BeClient(world);
  }
  if (world.Leave()) MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace ramspan

int main(int argc, char** argv) { return ramspan::Run(argc > 1 ? argv[1] : ""); }
