#include "bench/contention_tiers.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <string>

#include "common/check.h"

namespace ramspan::bench {

Result<SlotRef> NothingTier::Reserve(size_t) {
  const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  if (number >= words_.size()) return Status(StatusCode::kResourceExhausted, StaticText("the benchmark has numbered too few slots"));
  return slot_bits::FromGranule(0, number);
}

void NothingTier::Move(std::span<IoRequest* const> batch, bool is_write) {
  for (IoRequest* io : batch) {
    uint64_t& word = words_[slot_bits::GranuleOf(io->slot)];
    is_write ? std::memcpy(&word, io->buffer, sizeof word) : std::memcpy(io->buffer, &word, sizeof word);
    io->is_write = is_write;
    io->result = StatusCode::kOk;
    io->bytes_done = io->bytes;
    io->checksum = 0;
    Push(io, io);
  }
}

void NothingTier::Push(IoRequest* first, IoRequest* last) {
  last->next = done_.load(std::memory_order_relaxed);
  while (!done_.compare_exchange_weak(last->next, first, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

size_t NothingTier::Poll(std::span<IoRequest*> done, std::chrono::microseconds) {
  if (done_.load(std::memory_order_relaxed) == nullptr) return 0;
  IoRequest* first = done_.exchange(nullptr, std::memory_order_acquire);
  size_t n = 0;
  for (; n < done.size() && first != nullptr; first = first->next) done[n++] = first;
  if (first == nullptr) return n;
  IoRequest* last = first;
  while (last->next != nullptr) last = last->next;
  Push(first, last);
  return n;
}

void ServersHere::Unmapped::operator()(std::byte* pool) const { munmap(pool, bytes); }

ServersHere::ServersHere(uint32_t servers, uint64_t pool_bytes) : pool_bytes_(pool_bytes) {
  for (uint32_t i = 0; i < servers; ++i) {
    void* const pool = mmap(nullptr, pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) throw std::bad_alloc();
    servers_.push_back({std::make_unique<MemServer>(MemServerOptions{.pool_bytes = pool_bytes, .clients = 1}),
                        {static_cast<std::byte*>(pool), Unmapped{pool_bytes}}});
  }
}

ServerTransport::Server ServersHere::server(uint32_t number) const {
  return {.label = "number " + std::to_string(number), .distance = 1, .capacity_bytes = pool_bytes_, .mapped = servers_[number].pool.get()};
}

void ServersHere::Start(std::span<const Transfer>) { RS_CHECK(false, "a transfer to a server that is mapped"); }

void ServersHere::Send(uint32_t server, const WireMessage& message) {
  const std::lock_guard lock(mutex_);
  const std::optional<WireMessage> answer = servers_[server].server->Handle(0, Encode(message), MemServer::Clock::time_point{});
  if (answer) answers_.push_back({server, Encode(*answer)});
}

std::optional<ServerTransport::Control> ServersHere::Receive() {
  const std::lock_guard lock(mutex_);
  if (answers_.empty()) return std::nullopt;
  const Control answer = answers_.front();
  answers_.pop_front();
  return answer;
}

}  // namespace ramspan::bench
