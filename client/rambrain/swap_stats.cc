// Rambrain's statistics: what is counted, printed on demand, on signals, and logged.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "client/rambrain/stack_mutex.h"
#include "common/own_thread.h"
#include "common/raise.h"
#include "rambrain/managedMemory.h"
#include "ramspan/extend.h"

namespace rambrain {

namespace {
using ull = unsigned long long;

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }
}  // namespace

ramspan::Statistics managedMemory::Counts() const {
  ramspan::Statistics s = ramspan::GetStatistics();
  s.bytes_out -= base_.bytes_out;
  s.bytes_in -= base_.bytes_in;
  s.writes -= base_.writes;
  s.reads -= base_.reads;
  s.evictions -= base_.evictions;
  s.clean_evictions -= base_.clean_evictions;
  s.misses -= base_.misses;
  s.pulls -= base_.pulls;
  return s;
}

void managedMemory::printSwapstats() const {
  const ramspan::Statistics s = Counts();
  std::fprintf(stderr,
               "INFO:\t%llu swapouts wrote %llu bytes (%.3e bytes each)\n"
               "\t%llu swapins read %llu bytes (%.3e bytes each)\n"
               "\t%llu pulls found their data in memory, %llu had it fetched: hits over misses %.5f\n"
               "\t%.2e of the data is swapped out now; %llu objects left without a write\n",
               static_cast<ull>(s.writes), static_cast<ull>(s.bytes_out),
               Ratio(static_cast<double>(s.bytes_out), static_cast<double>(s.writes)), static_cast<ull>(s.reads),
               static_cast<ull>(s.bytes_in), Ratio(static_cast<double>(s.bytes_in), static_cast<double>(s.reads)),
               static_cast<ull>(s.pulls - std::min(s.pulls, s.misses)), static_cast<ull>(s.misses), getHitsOverMisses(),
               Ratio(static_cast<double>(s.swapped), static_cast<double>(s.data)), static_cast<ull>(s.clean_evictions));
}

void managedMemory::resetSwapstats() {
  const ramspan::Statistics now = ramspan::GetStatistics();
  std::lock_guard lock(StackMutex());
  base_ = now;
}

double managedMemory::getHitsOverMisses() const {
  const ramspan::Statistics s = Counts();
  const uint64_t hits = s.pulls - std::min(s.pulls, s.misses);
  // Rambrain divides by zero here. The result is the same, without the flags, and the traps, of the program's floating point: 0.0 / 0.0 is
  // the NaN with a sign, which is printed as "-nan".
  if (s.misses == 0) return hits == 0 ? -std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  return static_cast<double>(hits) / static_cast<double>(s.misses);
}
double managedMemory::getTotalSwappedOutBytes() const { return static_cast<double>(Counts().bytes_out); }
double managedMemory::getTotalSwappedInBytes() const { return static_cast<double>(Counts().bytes_in); }

namespace {

// The line of SIGUSR1 and of the log; each knows what the line before it said.
class LinePrinter {
 public:
  void Print(std::FILE* to, bool with_time) {
    std::lock_guard lock(StackMutex());
    const managedMemory* manager = managedMemory::defaultManager;
    const ramspan::Statistics s = ramspan::GetStatistics();
    if (with_time) {
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      std::fprintf(to, "%lld\t", static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
    }
    const uint64_t limit = manager->getMemoryLimit();
    const uint64_t total = manager->getTotalSwapMemory();
    const uint64_t used = total - std::min<uint64_t>(total, manager->getFreeSwapMemory());
    std::fprintf(to, "%llu\t%llu\t%llu\t%llu\t%llu\t%llu\t%e\t%llu\t%e\t%llu\t%e\n", static_cast<ull>(s.bytes_out + s.clean_bytes),
                 static_cast<ull>(s.bytes_out), static_cast<ull>(s.bytes_out - out_), static_cast<ull>(s.bytes_in),
                 static_cast<ull>(s.bytes_in), static_cast<ull>(s.bytes_in - in_), manager->getHitsOverMisses(),
                 static_cast<ull>(s.memory_used), Ratio(static_cast<double>(s.memory_used), static_cast<double>(limit)),
                 static_cast<ull>(used), Ratio(static_cast<double>(used), static_cast<double>(total)));
    std::fflush(to);
    out_ = s.bytes_out;
    in_ = s.bytes_in;
  }

 private:
  uint64_t out_ = 0, in_ = 0;
};

// Writes lines until it is stopped. One a process, never destroyed; its thread is joined when logging ends or the
// program exits.
class Logger {
 public:
  static Logger& Get() {
    static auto* logger = new Logger;
    return *logger;
  }

  void Start(std::FILE* to, unsigned interval_ms) {
    Stop();
    std::lock_guard lock(mutex_);
    to_ = to;
    stop_ = false;
    thread_ = ramspan::StartOwnThread([this, interval_ms] { Run(std::chrono::milliseconds(interval_ms)); });
    if (!std::exchange(exit_hook_, true)) std::atexit([] { Get().Stop(); });
  }

  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    if (to_ != nullptr && to_ != stdout) std::fclose(to_);
    to_ = nullptr;
  }

 private:
  void Run(std::chrono::milliseconds interval) {
    std::fprintf(to_, "#Time [ms]\tPrep for swap out [B]\tSwapped out [B]\tSwapped out last [B]\tPrep for swap in [B]\t"
                      "Swapped in [B]\tSwapped in last [B]\tHits / Miss\tMemory Used [B]\tMemory Used\tSwap Used [B]\t"
                      "Swap Used\n");
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, interval, [this] { return stop_; })) {
      lock.unlock();
      Print();
      lock.lock();
    }
    lock.unlock();
    Print();  // how it ended
  }
  // A line that there is no memory for is left out: what leaves this thread would end the program.
  void Print() {
    try {
      if (ramspan::Started()) printer_.Print(to_, true);
    } catch (const std::exception&) {
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  bool exit_hook_ = false;
  std::FILE* to_ = nullptr;
  std::thread thread_;
  LinePrinter printer_;
};

}  // namespace

void managedMemory::sigswapstats(int) {
  static auto* printer = new LinePrinter;
  printer->Print(stdout, false);
}

void managedMemory::sigStat(int) {
  std::lock_guard lock(StackMutex());
  const managedSwap* swap = defaultManager->swap_;
  ramspan::SwapFragmentation f;
  try {
    f = ramspan::GetSwapFragmentation(swap ? static_cast<ramspan::SwapId>(swap->id_) : ramspan::SwapId::kConfigured);
  } catch (const ramspan::Error&) {
    std::printf("# the swap has no files\n");
    std::fflush(stdout);
    return;
  }
  const uint64_t files = f.free + f.whole + f.scattered;
  const uint64_t total = std::max<uint64_t>(defaultManager->getTotalSwapMemory(), files);
  const uint64_t used = total - std::min<uint64_t>(total, defaultManager->getFreeSwapMemory());
  std::printf("%llu\t%llu\t%llu\t%e\t%e\t%s\n", static_cast<ull>(f.free), static_cast<ull>(f.whole),
              static_cast<ull>(f.scattered), Ratio(static_cast<double>(f.free), static_cast<double>(files)),
              Ratio(static_cast<double>(total - files), static_cast<double>(total)),
              f.whole + f.scattered <= used ? "sane" : "moving");
  std::fflush(stdout);
}

void managedMemory::logSwapstats(const char* path, unsigned int interval_ms) {
  if (interval_ms == 0) return Logger::Get().Stop();
  std::FILE* to = path ? std::fopen(path, "we") : stdout;
  if (to == nullptr) Raise(incompleteSetupException("the log of swap statistics cannot be written to " + std::string(path)));
  Logger::Get().Start(to, interval_ms);
}

void managedMemory::versionInfo() {
  std::fprintf(stderr, "INFO:\tRamspan " RAMSPAN_VERSION " with Rambrain's interface; swap statistics and the tree of "
                       "objects are there\n");
}

}  // namespace rambrain
