// What is below the engine while threads contend for it: swap that costs nothing, so that the engine is all that is seen; and memory
// servers within this process, which are reached by load and store as those of the same node are.
//
// Thread-safety: as their ports say. Nobody's threads: a server answers within Send.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/swap/remote_swap.h"
#include "client/swap/swap_tier.h"
#include "client/transport/transport.h"
#include "memserver/server.h"

namespace ramspan::bench {

// Keeps the first eight bytes of each chunk, so that wrong data would be found, and says that it keeps all. Takes no lock.
class NothingTier final : public PlainTier {
 public:
  explicit NothingTier(uint64_t slots_max) : words_(slots_max) {}

  Capabilities capabilities() const noexcept override { return {.name = "nothing", .synchronous = true, .checksums = true}; }
  Result<SlotRef> Reserve(size_t bytes) override;
  void Free(SlotRef, size_t) noexcept override {}  // numbers are not used again
  void SubmitWrite(std::span<IoRequest* const> batch) noexcept override { Move(batch, true); }
  void SubmitRead(std::span<IoRequest* const> batch) noexcept override { Move(batch, false); }
  size_t Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) override;
  TierStats stats() const noexcept override { return {}; }

 private:
  void Move(std::span<IoRequest* const> batch, bool is_write);
  void Push(IoRequest* first, IoRequest* last);

  std::vector<uint64_t> words_;
  std::atomic<uint64_t> next_{0};
  // A list that grows at its head, and is taken as a whole: no element of it can come back between a look and an exchange. Release on
  // growth, acquire on taking: who takes a request sees what was moved for it.
  std::atomic<IoRequest*> done_{nullptr};
};

class ServersHere final : public PlainTransport {
 public:
  ServersHere(uint32_t servers, uint64_t pool_bytes);

  Capabilities capabilities() const override { return {.name = "here", .survives_server_death = true}; }
  uint32_t self() const override { return 0; }
  uint32_t servers() const override { return static_cast<uint32_t>(servers_.size()); }
  Server server(uint32_t number) const override;
  ServerState state(uint32_t) const override { return ServerState::kAlive; }
  void Start(std::span<const Transfer> batch) override;
  bool Collect(std::vector<Completion>*) override { return false; }
  void Send(uint32_t server, const WireMessage& message) override;
  std::optional<Control> Receive() override;

 private:
  struct Unmapped {
    uint64_t bytes;
    void operator()(std::byte* pool) const;
  };
  struct One {
    std::unique_ptr<MemServer> server;
    std::unique_ptr<std::byte, Unmapped> pool;
  };
  const uint64_t pool_bytes_;
  std::vector<One> servers_;
  std::mutex mutex_;
  std::deque<Control> answers_;
};

}  // namespace ramspan::bench
