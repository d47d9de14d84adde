#include "bench/contention_bed.h"

#include <sys/resource.h>
#include <x86intrin.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <random>
#include <stdexcept>
#include <utility>

#include "bench/experiment.h"
#include "client/front/pin_registry.h"
#include "client/front/store_pin.h"
#include "client/policy/policy_factory.h"

namespace ramspan::bench {
namespace {

constexpr int kHot = 64;  // chunks that one thread keeps in memory

// A program's adhereTo, by hand: the front finds the one session of a process, and here there is an engine after the other.
class PinHere {
 public:
  PinHere(Engine* engine, Chunk* chunk, bool write, unsigned slot = 0) : table_(Table()), slot_(slot) {
    static const bool fence = PinRegistry::Get().pins_fence();
    if (detail::StorePinFenced(chunk, table_, slot, write, fence)) return;
    Status status = engine->Acquire(chunk, write);
    if (status.ok()) return;
    Release();
    throw std::runtime_error(status.message());
  }
  ~PinHere() { Release(); }
  PinHere(const PinHere&) = delete;
  PinHere& operator=(const PinHere&) = delete;

 private:
  static detail::PinTable* Table() { return detail::t_pins != nullptr ? detail::t_pins : PinRegistry::Get().Adopt(); }
  void Release() { table_->slots[slot_].store(nullptr, std::memory_order_release); }
  detail::PinTable* const table_;
  const unsigned slot_;
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Ticks of the processor's clock, singly up to kSingly, then the largest only.
class Ticks {
 public:
  void Note(uint64_t ticks) {
    ++counts_[std::min<uint64_t>(ticks, kSingly)];
    max_ = std::max(max_, ticks);
    ++sum_;
  }
  uint64_t sum() const { return sum_; }
  uint64_t max() const { return max_; }
  uint64_t Quantile(double share) const {
    auto left = static_cast<uint64_t>(share * static_cast<double>(sum_));
    for (uint64_t i = 0; i < kSingly; ++i) {
      if (counts_[i] > left) return i;
      left -= counts_[i];
    }
    return max_;
  }

 private:
  static constexpr uint64_t kSingly = 1 << 20;
  std::vector<uint64_t> counts_ = std::vector<uint64_t>(kSingly + 1);
  uint64_t sum_ = 0, max_ = 0;
};

}  // namespace

// What the library's own thread does.
class Bed::Mover {
 public:
  explicit Mover(Engine* engine) : engine_(engine), thread_([this] {
    while (!stop_.load(std::memory_order_relaxed)) {
      if (!engine_->MoverStep()) engine_->MoverWait(std::chrono::milliseconds(1));
    }
  }) {}
  ~Mover() {
    stop_.store(true, std::memory_order_relaxed);
    engine_->WakeMover();
    thread_.join();
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

 private:
  Engine* const engine_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Threads that miss, for as long as it lives.
class Bed::Crowd {
 public:
  Crowd(Bed* bed, int threads, uint64_t from_chunk) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, bed, i, from_chunk] {
        std::minstd_rand random(static_cast<unsigned>(i + 1));
        const uint64_t chunks = bed->options_.chunks - from_chunk;
        while (!stop_.load(std::memory_order_relaxed)) bed->Touch(from_chunk + random() % chunks, false);
      });
    }
  }
  ~Crowd() {
    stop_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_) thread.join();
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

Bed::Bed(const BedOptions& options) : options_(options) {
  const uint64_t data = options.chunks * RoundUpToGranule(options.chunk_bytes);
  if (options.servers > 0) {
    servers_ = std::make_unique<ServersHere>(options.servers, data / options.servers * 2 + (uint64_t{64} << 20));
    tier_ = std::make_unique<RemoteSwap>(*servers_);
  } else {
    tier_ = std::make_unique<NothingTier>(options.chunks + 1024);
  }
  const EngineOptions engine{.budget = options.frames_bytes + options.chunks * 96 + (uint64_t{64} << 20)};
  engine_ = std::make_unique<Engine>(engine, tier_.get(), &PinRegistry::Get(),
                                     [](const ChunkTable* chunks) { return MakePolicy(PolicyNames()[0], chunks).value(); });
  chunks_.reserve(options.chunks);
  const double begin = Now();
  for (uint64_t i = 0; i < options.chunks; ++i) chunks_.push_back(Make(options.chunk_bytes));
  create_ns_ = (Now() - begin) * 1e9 / static_cast<double>(options.chunks);
  HoldFrames(options.frames_bytes);
  mover_ = std::make_unique<Mover>(engine_.get());
  Fill();
}

Bed::~Bed() {
  mover_.reset();
  engine_->Drain();
  if (!chunks_.empty()) DestroyAll();
  engine_.reset();
}

Chunk* Bed::Make(uint64_t bytes) {
  Result<Chunk*> chunk = engine_->Create(bytes);
  if (!chunk.ok()) throw std::runtime_error(chunk.status().message());
  return chunk.value();
}

// The limit is what frames may take and what descriptors and tables take besides, of which the engine keeps some free.
void Bed::HoldFrames(uint64_t bytes) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t frames = engine_->budget()->frames_limit();
    if (Status status = engine_->SetBudget(engine_->budget()->limit() + bytes - frames); !status.ok()) throw std::runtime_error(status.message());
  }
}

// Servers' pages are made by the first write to them, so each chunk leaves for them once.
void Bed::Fill() {
  for (uint64_t i = 0; i < options_.chunks; ++i) Touch(i, true);
  for (uint64_t i = 0; options_.servers > 0 && i < options_.chunks; ++i) Touch(i, false);
}

void Bed::Touch(uint64_t index, bool is_new) {
  Chunk* const chunk = chunks_[index];
  const PinHere pin(engine_.get(), chunk, true);
  auto* const words = static_cast<uint64_t*>(chunk->frame);
  if (is_new) {
    words[0] = index;
  } else if (words[0] != index) {
    right_.store(false, std::memory_order_relaxed);
  }
}

Bed::Misses Bed::MissAtRandom(int threads, double seconds, bool count_locks) {
  if (count_locks) {
    LockMeter::WatchNext();
    static_cast<void>(engine_->counters());  // takes the engine's mutex
    LockMeter::Start();
  }
  const EngineCounters before = engine_->counters();
  const double begin = Now(), cpu = CpuSeconds();
  {
    const Crowd crowd(this, threads, 0);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  Misses result{.seconds = Now() - begin, .cpu_seconds = CpuSeconds() - cpu};
  result.misses = engine_->counters().misses - before.misses;
  if (count_locks) result.locks = LockMeter::Stop();
  return result;
}

double Bed::PinAlone() {
  constexpr uint64_t kPins = 1'000'000;
  const double begin = Now();
  for (uint64_t i = 0; i < kPins; ++i) const PinHere pin(engine_.get(), chunks_[i % kHot], true);
  return (Now() - begin) * 1e9 / kPins;
}

Bed::Pins Bed::PinWhileOthersMiss(int threads, double seconds) {
  Engine* const engine = engine_.get();
  Ticks pins, clock;
  for (int i = 0; i < kHot; ++i) {
    if (Status status = engine->AcquireCounted(chunks_[static_cast<size_t>(i)], true); !status.ok()) throw std::runtime_error(status.message());
  }
  Pins result{.usual_ns = PinAlone()};
  const uint64_t evictions = engine->counters().evictions;
  unsigned cpu = 0;
  const double begin = Now();
  const uint64_t begin_ticks = __rdtscp(&cpu);
  {
    const Crowd crowd(this, threads, kHot);
    for (uint64_t i = 0; (i & 1023) != 0 || Now() - begin < seconds; ++i) {
      Chunk* const chunk = chunks_[i % kHot];
      const uint64_t from = __rdtscp(&cpu);
      { const PinHere pin(engine, chunk, true); }
      const uint64_t to = __rdtscp(&cpu);
      pins.Note(to - from);
      clock.Note(__rdtscp(&cpu) - to);
    }
  }
  const double ns_per_tick = (Now() - begin) * 1e9 / static_cast<double>(__rdtscp(&cpu) - begin_ticks);
  result.evictions = engine->counters().evictions - evictions;
  for (int i = 0; i < kHot; ++i) chunks_[static_cast<size_t>(i)]->state.fetch_sub(kOneCountedPin, std::memory_order_release);
  const uint64_t own = clock.Quantile(0.5);
  // Never less than a pin: what is shorter than the clock's own time was in its shadow.
  const auto ns = [&](uint64_t ticks) { return std::max(result.usual_ns, static_cast<double>(std::max(ticks, own) - own) * ns_per_tick); };
  result.p999_ns = ns(pins.Quantile(0.999));
  result.max_ns = ns(pins.max());
  result.pins = pins.sum();
  return result;
}

Bed::Large Bed::MissLarge(int threads, uint64_t bytes, double seconds) {
  std::vector<Chunk*> large;
  for (uint64_t made = 0; made < 2 * options_.frames_bytes; made += bytes) large.push_back(Make(bytes));
  std::vector<double> us;
  {
    const Crowd crowd(this, threads, 0);
    const double begin = Now();
    for (size_t i = 0; Now() - begin < seconds; ++i) {
      Chunk* const chunk = large[i % large.size()];
      const bool is_there = PhaseOf(chunk) == Phase::kResident;
      const double from = Now();
      const PinHere pin(engine_.get(), chunk, true);
      if (!is_there) us.push_back((Now() - from) * 1e6);
      *static_cast<uint64_t*>(chunk->frame) = i;
    }
  }
  engine_->Drain();
  for (Chunk* chunk : large) engine_->Free(chunk);
  Large result{.p50_us = Quantile(us, 0.5), .max_us = Quantile(us, 1), .misses = us.size()};
  result.past = engine_->counters().takes_past_a_waiter_max;
  return result;
}

double Bed::DestroyAll() {
  mover_.reset();  // it would count as time of this thread
  engine_->Drain();
  const double begin = Now();
  for (Chunk* chunk : chunks_) engine_->Free(chunk);
  const double ns = (Now() - begin) * 1e9 / static_cast<double>(chunks_.size());
  chunks_.clear();
  return ns;
}

uint32_t Bed::servers_used() const {
  uint32_t used = 0;
  for (const ServerStats& server : tier_->servers()) used += server.slot_bytes_used > 0;
  return used;
}

}  // namespace ramspan::bench
