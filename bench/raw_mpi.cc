// The roofline of memory servers that are reached by one-sided MPI: the first ranks, as many as there are clients, put and get at the same
// time in the memory of all others, which stand in a receive (MPICH makes progress for others there). A job of its own, initialised as
// the library does.
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bench/network_job.h"
#include "bench/raw.h"
#include "bench/roofline.h"
#include "common/mpi_world.h"
#include "common/pmi.h"

namespace ramspan::bench {
namespace {

class MpiNetwork final : public RawNetwork {
 public:
  MpiNetwork(MPI_Win window, int first_server, int servers, const RawOptions& options)
      : window_(window), first_server_(first_server), servers_(servers), chunk_(options.chunk), memory_(options.frames, false) {}

  uint32_t servers() const override { return static_cast<uint32_t>(servers_); }
  std::byte* frames() override { return reinterpret_cast<std::byte*>(memory_.data()); }

  void Start(bool is_write, uint32_t server, size_t frame_offset, size_t window_offset) override {
    const int rank = first_server_ + static_cast<int>(server), n = static_cast<int>(chunk_);
    const auto place = static_cast<MPI_Aint>(window_offset);
    std::byte* const local = frames() + frame_offset;
    is_write ? MPI_Put(local, n, MPI_BYTE, rank, place, n, MPI_BYTE, window_) : MPI_Get(local, n, MPI_BYTE, rank, place, n, MPI_BYTE, window_);
    ++under_way_;
    reads_ += is_write ? 0 : 1;
  }

  int Wait(int* reads) override {
    MPI_Win_flush_all(window_);
    *reads += std::exchange(reads_, 0);
    return std::exchange(under_way_, 0);
  }

 private:
  const MPI_Win window_;
  const int first_server_, servers_;
  const size_t chunk_;
  Pages memory_;
  int under_way_ = 0, reads_ = 0;
};

// What the clients had together; their reads, on the mean. Who has finished leaves the cores to the others.
RawRates OfAll(const RawRates& mine, MPI_Comm clients) {
  int count = 0;
  MPI_Comm_size(clients, &count);
  const std::array<double, 7> one = {mine.read_gb_s, mine.write_gb_s, mine.both_gb_s, mine.read_and_work_gb_s, mine.both_and_work_gb_s, mine.read_us / count, mine.random_ops_s};
  std::array<double, 7> sum{};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(one.data(), sum.data(), static_cast<int>(one.size()), MPI_DOUBLE, MPI_SUM, clients, &request);
  for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {.read_gb_s = sum[0], .write_gb_s = sum[1], .both_gb_s = sum[2], .read_and_work_gb_s = sum[3], .both_and_work_gb_s = sum[4], .read_us = sum[5], .random_ops_s = sum[6]};
}

}  // namespace

int RunRawMpi(const BenchOptions& o) {
  if (const Status started = InitMpiThreadMultiple(nullptr, nullptr); !started.ok()) throw std::runtime_error(started.message());
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size <= o.clients) throw std::runtime_error("the raw roofline needs a rank more than clients");
  const bool is_client = rank < o.clients;
  const RawOptions options = RawOptionsOf(o);
  const Pages lent(is_client ? 4096 : options.window, false);
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_create(lent.data(), static_cast<MPI_Aint>(lent.bytes()), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Comm peers = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, is_client ? 1 : 0, rank, &peers);
  if (is_client) {
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MpiNetwork network(window, o.clients, size - o.clients, options);
    MPI_Barrier(peers);
    const RawRates rates = OfAll(MeasureRaw(&network, options), peers);
    MPI_Win_unlock_all(window);
    if (rank == 0) {
      for (int server = o.clients; server < size; ++server) MPI_Send(nullptr, 0, MPI_BYTE, server, 0, MPI_COMM_WORLD);
      PrintRaw(rates);
    }
  } else {
    MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // MPI_Finalize over UCX's tcp waits for ever now and then (common/pmi.h).
  const auto progress = [] {
    int arrived = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
  };
  if (CanSayPmiGoodbye()) _exit(SayPmiGoodbye(progress).ok() ? 0 : 1);
  MPI_Comm_free(&peers);
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}

}  // namespace ramspan::bench
