#include "client/swap/remote_swap.h"

#include <sched.h>

namespace ramspan {

RemoteSwap::RemoteSwap(ServerTransport& transport, const RemoteSwapOptions& options)
    : transport_(transport), room_(transport, options, [this](uint32_t server) { return io_.LookAt(server); }), io_(transport, [this](const IoRequest& request, std::vector<RemotePiece>* pieces) {
        room_.Locate(request.slot, request.bytes, pieces);
      }) {}

SwapTier::Capabilities RemoteSwap::CapabilitiesOfSide(bool near) {
  return {.name = "remote", .synchronous = near, .checksums = near, .max_in_flight = RemoteIo::kInFlightMax};
}

Status RemoteSwap::MakeRoom(size_t bytes, Patience patience) {
  const Result<SlotRef> slot = room_.Reserve(bytes, patience);
  if (!slot.ok()) return slot.status();
  Free(slot.value(), bytes);
  return Status();
}

void RemoteSwap::Submit(std::span<IoRequest* const> batch, bool is_write) {
  for (IoRequest* request : batch) {
    request->is_write = is_write;
    request->result = StatusCode::kOk;
    request->bytes_done = 0;
    request->next = nullptr;
    io_.Submit(request);
  }
}

size_t RemoteSwap::Poll(std::span<IoRequest*> done, std::chrono::microseconds wait) {
  // Spinning first: a blocked wake-up costs 70 to 280 us, about what a transfer takes.
  constexpr std::chrono::microseconds kSpin{100}, kNap{200};
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    bool in_flight = false;
    const size_t n = io_.TakeDone(done, &in_flight);
    if (n > 0 || !in_flight) return n;
    switch (io_.Collect()) {
      case RemoteIo::Collected::kSome: continue;
      case RemoteIo::Collected::kFailed:
        // So that the user reads of the server before the program reads of the chunk; without heap Upkeep tells later.
        WithinHeap([this] { return room_.CloseDeadServers(), true; }, false);
        continue;
      case RemoteIo::Collected::kNothing: break;
    }
    // It takes longer, or another thread waits for it.
    const auto now = std::chrono::steady_clock::now();
    NoteWait(now.time_since_epoch().count());
    const auto waited = now - begin;
    if (waited >= wait) return 0;
    waited < kSpin ? static_cast<void>(sched_yield()) : io_.WaitForOthers(kNap);
  }
}

// Upkeep may not come: the program has no mover, or that waits here.
void RemoteSwap::NoteWait(int64_t now_ns) {
  constexpr int64_t kEveryNs = 5'000'000;
  if (now_ns - looked_ns_.load(std::memory_order_relaxed) < kEveryNs) return;
  looked_ns_.store(now_ns, std::memory_order_relaxed);
  room_.LookForSilence();
}

void RemoteSwap::Upkeep() {
  transport_.Upkeep();
  room_.Upkeep();
  constexpr int64_t kEveryNs = 1'000'000'000;
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t last = told_usage_ns_.load(std::memory_order_relaxed);
  if (now - last >= kEveryNs && told_usage_ns_.compare_exchange_strong(last, now, std::memory_order_relaxed)) io_.TellUsage();
}

TierStats RemoteSwap::stats() const noexcept {
  TierStats stats = io_.stats();
  room_.AddTo(&stats);
  const ServerTransport::Registered registered = transport_.registered();
  stats.registered_buffers = registered.buffers;
  stats.registered_bytes = registered.bytes;
  stats.metadata_bytes = room_.metadata_bytes() + registered.metadata_bytes;
  return stats;
}

uint64_t RemoteSwap::metadata_bytes() const noexcept { return room_.metadata_bytes() + transport_.registered().metadata_bytes; }

std::vector<ServerStats> RemoteSwap::servers() const {
  std::vector<ServerStats> servers(transport_.servers());
  for (uint32_t i = 0; i < servers.size(); ++i) {
    const ServerTransport::Server server = transport_.server(i);
    const ServerTransport::ServerState state = transport_.state(i);
    servers[i].name = server.label;
    servers[i].near = server.mapped != nullptr;
    servers[i].state = state == ServerTransport::ServerState::kDead       ? "dead"
                       : state == ServerTransport::ServerState::kDraining ? "draining"
                                                                          : "alive";
  }
  room_.AddTo(servers);
  io_.AddTo(servers);
  return servers;
}

}  // namespace ramspan
