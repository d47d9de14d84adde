// ramspan-bench-fabric: the roofline of servers outside of a job. The same endpoint as theirs (common/fabric.h), and nothing else.
// A program of its own, so that ramspan-bench does not load libfabric.
//   ramspan-bench-fabric serve ADDRESS BYTES              lends memory until its stdin ends; prints how it is reached
//   ramspan-bench-fabric measure CHUNK FRAMES DEPTH PEER...   each PEER as `serve` prints it
#include <poll.h>
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/raw.h"
#include "common/fabric.h"

namespace ramspan::bench {
namespace {

template <class T>
T Value(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

// As leases are: huge pages where the system grants them, all there before they are used.
std::span<std::byte> Memory(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  void* pages = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::runtime_error("no memory for " + std::to_string(bytes) + " bytes");
  const auto begin = (reinterpret_cast<uintptr_t>(pages) + kHugePage - 1) / kHugePage * kHugePage;
  auto* memory = reinterpret_cast<std::byte*>(begin);
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 1, bytes);
  return {memory, bytes};
}

// Where a region is: "protocol,version,format,key,address,bytes,HEX".
struct Peer {
  FabricAddress address;
  uint64_t key = 0, begin = 0, bytes = 0;

  std::string text() const {
    char numbers[160];
    std::snprintf(numbers, sizeof numbers, "%u,%u,%u,%llu,%llu,%llu,", address.protocol, address.protocol_version, address.format,
                  static_cast<unsigned long long>(key), static_cast<unsigned long long>(begin), static_cast<unsigned long long>(bytes));
    std::string all = numbers;
    for (const std::byte byte : address.bytes) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(byte));
      all += digits;
    }
    return all;
  }

  static Peer From(const std::string& text) {
    Peer peer;
    unsigned long long key = 0, begin = 0, bytes = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%u,%u,%u,%llu,%llu,%llu,%n", &peer.address.protocol, &peer.address.protocol_version, &peer.address.format,
                    &key, &begin, &bytes, &used) != 6 || used == 0) {
      throw std::runtime_error("not what `serve` prints: " + text);
    }
    peer.key = key, peer.begin = begin, peer.bytes = bytes;
    for (size_t at = static_cast<size_t>(used); at + 1 < text.size(); at += 2) {
      peer.address.bytes.push_back(static_cast<std::byte>(std::stoul(text.substr(at, 2), nullptr, 16)));
    }
    return peer;
  }
};

// Spins while something comes and for a millisecond after it, then sleeps, as a memory server does.
int ServeMemory(const std::string& address, size_t bytes) {
  const std::shared_ptr<FabricDomain> domain = Value(FabricDomain::OpenAt(address, {}));
  const std::unique_ptr<FabricEndpoint> endpoint = Value(FabricEndpoint::Open(domain));
  const std::span<std::byte> memory = Memory(bytes);
  const FabricRegion region = Value(FabricRegion::ForPeer(*endpoint, memory));
  std::printf("%s\n", Peer{endpoint->address(), region.key(), region.address(), bytes}.text().c_str());
  std::fflush(stdout);
  std::array<FabricCompletion, 16> done;
  auto busy_until = std::chrono::steady_clock::now();
  for (;;) {
    bool broken = false;
    for (int i = 0; i < 16; ++i) endpoint->Poll(done, &broken);
    std::array<pollfd, 2> polled = {{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}, {.fd = endpoint->wait_descriptor(), .events = POLLIN, .revents = 0}}};
    const bool rests = std::chrono::steady_clock::now() > busy_until && endpoint->MayWait();
    poll(polled.data(), polled.size(), rests ? 1000 : 0);
    if (polled[0].revents != 0) return 0;
    if (polled[1].revents != 0) busy_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
  }
}

class FabricNetwork final : public RawNetwork {
 public:
  FabricNetwork(const std::vector<Peer>& peers, const RawOptions& options)
      : chunk_(options.chunk), memory_(Memory(options.frames)), transfers_(static_cast<size_t>(options.depth) + 2) {
    for (const Peer& peer : peers) {
      const std::shared_ptr<FabricDomain> domain = lanes_.empty() ? Value(FabricDomain::OpenTowards(peer.address, {})) : lanes_[0].domain;
      std::unique_ptr<FabricEndpoint> endpoint = Value(FabricEndpoint::Open(domain));
      const uint64_t address = Value(endpoint->AddPeer(peer.address));
      lanes_.push_back({peer, domain, std::move(endpoint), address});
    }
    if (lanes_[0].domain->needs_local_registration()) region_ = Value(FabricRegion::ForLocal(lanes_[0].domain, memory_));
    for (Under& one : transfers_) free_.push_back(&one);
  }

  uint32_t servers() const override { return static_cast<uint32_t>(lanes_.size()); }
  std::byte* frames() override { return memory_.data(); }

  void Start(bool is_write, uint32_t server, size_t frame_offset, size_t window_offset) override {
    Lane& lane = lanes_[server];
    Under* under = free_.back();
    free_.pop_back();
    under->is_write = is_write;
    const std::span<std::byte> local(memory_.data() + frame_offset, chunk_);
    const FabricTransfer transfer{.is_write = is_write,
                                  .local = local,
                                  .descriptor = region_.descriptor(),
                                  .peer = lane.address,
                                  .address = lane.peer.begin + window_offset,
                                  .key = lane.peer.key,
                                  .context = under};
    for (;;) {
      const FabricEndpoint::Posted posted = lane.endpoint->Post(transfer);
      if (posted == FabricEndpoint::Posted::kYes) return;
      if (posted == FabricEndpoint::Posted::kFailed) throw std::runtime_error("the raw peer cannot be reached");
      ended_early_ += Poll();
    }
  }

  int Wait(int* reads) override {
    int ended = std::exchange(ended_early_, 0);
    while (ended == 0) ended = Poll();
    *reads += std::exchange(reads_, 0);
    return ended;
  }

 private:
  struct Under {
    std::array<std::byte, kFabricContextBytes> context;
    bool is_write = false;
  };
  struct Lane {
    Peer peer;
    std::shared_ptr<FabricDomain> domain;
    std::unique_ptr<FabricEndpoint> endpoint;
    uint64_t address = 0;
  };

  int Poll() {
    std::array<FabricCompletion, 16> done;
    int ended = 0;
    for (Lane& lane : lanes_) {
      bool broken = false;
      const size_t n = lane.endpoint->Poll(done, &broken);
      for (size_t i = 0; i < n; ++i) {
        if (!done[i].ok) throw std::runtime_error("a raw transfer failed");
        free_.push_back(static_cast<Under*>(done[i].context));
        reads_ += free_.back()->is_write ? 0 : 1;
      }
      if (broken) throw std::runtime_error("the raw endpoint failed");
      ended += static_cast<int>(n);
    }
    return ended;
  }

  const size_t chunk_;
  const std::span<std::byte> memory_;
  std::vector<Under> transfers_;
  std::vector<Under*> free_;
  std::vector<Lane> lanes_;
  FabricRegion region_;  // where the network wants local memory registered
  int ended_early_ = 0, reads_ = 0;
};

int MeasurePeers(int argc, char** argv) {
  RawOptions options{.chunk = std::stoull(argv[2]), .frames = std::stoull(argv[3]), .depth = std::atoi(argv[4])};
  std::vector<Peer> peers;
  for (int i = 5; i < argc; ++i) peers.push_back(Peer::From(argv[i]));
  options.window = peers.at(0).bytes;
  FabricNetwork network(peers, options);
  PrintRaw(MeasureRaw(&network, options));
  return 0;
}

}  // namespace
}  // namespace ramspan::bench

int main(int argc, char** argv) {
  try {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "serve" && argc == 4) return ramspan::bench::ServeMemory(argv[2], std::stoull(argv[3]));
    if (what == "measure" && argc > 5) return ramspan::bench::MeasurePeers(argc, argv);
    std::fprintf(stderr, "usage: %s serve ADDRESS BYTES | measure CHUNK FRAMES DEPTH PEER...\n`ramspan bench stream --transport ofi` runs it.\n", argv[0]);
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ramspan-bench-fabric: %s\n", e.what());
    return 1;
  }
}
