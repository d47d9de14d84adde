#include "client/transport/mpi_watchdog.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "common/last_words.h"
#include "common/log.h"
#include "common/own_thread.h"
#include "common/process_life.h"
#include "common/running_clock.h"

namespace ramspan {
namespace {

// Shorter than RunningClock's step, so that the clock misses nothing while this thread is the only one that looks.
constexpr std::chrono::milliseconds kLookEvery{200};

long long Seconds(std::chrono::milliseconds time) { return static_cast<long long>(time.count() / 1000); }

const char* LifeName(ProcessLife life) {
  switch (life) {
    case ProcessLife::kStopped: return "its process is stopped";
    case ProcessLife::kGone: return "its process is gone";
    case ProcessLife::kRuns: return "its process runs";
    case ProcessLife::kUnknown: break;
  }
  return "its process cannot be seen from here";
}

// Neither the program's locks nor a standard error that nobody reads may keep the job from ending.
[[noreturn, gnu::format(printf, 1, 2)]] void EndJobNow(const char* format, ...) {
  char text[600];
  const int prefix = std::snprintf(text, sizeof text, "%s", LogPrefix());
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text + prefix, sizeof text - static_cast<size_t>(prefix), format, arguments);
  va_end(arguments);
  EndProcessSaying(text);
}

}  // namespace

MpiWatchdog::Options MpiWatchdog::DefaultOptions() {
  Options options;
  if (const char* seconds = std::getenv("RAMSPAN_TEST_GIVE_UP_AFTER")) {
    options.give_up_after = std::chrono::seconds(std::atoi(seconds));
  }
  return options;
}

MpiWatchdog::MpiWatchdog(const MpiWorld& world, Options options)
    : world_(world), options_(options), calls_(new Calls[world.servers().size() + 1]), judge_(options.warn_after, options.give_up_after), looks_(EndSlot() + 1) {
  judge_.Observe(looks_, {});
}

MpiWatchdog::~MpiWatchdog() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    ends_ = true;
    wake_.NotifyAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

void MpiWatchdog::Start() {
  MutexLock lock(mutex_);
  if (thread_.joinable() || ends_) return;
  try {
    thread_ = StartOwnThread([this] { Run(); });
  } catch (const std::exception&) {  // no thread, or no memory for one
  }
}

MpiWatchdog::Inside::Inside(MpiWatchdog& watchdog, size_t server, uint64_t bytes)
    : watchdog_(watchdog), server_(server), bytes_(bytes) {
  Calls& calls = watchdog_.calls_[server_];
  calls.bytes.fetch_add(bytes_, std::memory_order_relaxed);
  calls.entered.fetch_add(1, std::memory_order_relaxed);
}

MpiWatchdog::Inside::~Inside() {
  Calls& calls = watchdog_.calls_[server_];
  calls.bytes.fetch_sub(bytes_, std::memory_order_relaxed);
  calls.left.fetch_add(1, std::memory_order_relaxed);
}

void MpiWatchdog::Run() {
  RunningClock::time_point last = RunningClock::ProcessNow();
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (ends_) return;
      wake_.WaitFor(mutex_, kLookEvery);
      if (ends_) return;
    }
    for (size_t i = 0; i < looks_.size(); ++i) {
      looks_[i] = {calls_[i].entered.load(std::memory_order_relaxed), calls_[i].left.load(std::memory_order_relaxed),
                  calls_[i].bytes.load(std::memory_order_relaxed)};
    }
    const RunningClock::time_point now = RunningClock::ProcessNow();
    const auto since_last = std::chrono::duration_cast<std::chrono::milliseconds>(now - last);
    last += since_last;
    judge_.Observe(looks_, since_last);
    for (size_t server = 0; server < EndSlot(); ++server) Act(server);
    ActAtEnd();
  }
}

void MpiWatchdog::Act(size_t server) {
  const int rank = world_.servers()[server].world_rank;
  const long long seconds = Seconds(judge_.WaitedFor(server));
  switch (judge_.VerdictOf(server)) {
    case WaitJudge::Verdict::kFine: return;
    case WaitJudge::Verdict::kWarn:
      LogWarning("memory server rank %d has not answered for %lld s; still waiting", rank, seconds);
      return;
    case WaitJudge::Verdict::kGiveUp:
      EndJobNow("memory server rank %d has not answered for %lld s; ending the job. Remedy: see whether its host "
                "is overloaded or its process stopped, or run without that host\n", rank, seconds);
  }
}

void MpiWatchdog::ActAtEnd() {
  const WaitJudge::Verdict verdict = judge_.VerdictOf(EndSlot());
  if (verdict == WaitJudge::Verdict::kFine) return;
  const long long seconds = Seconds(judge_.WaitedFor(EndSlot()));
  bool any_far = false;
  for (const MpiWorld::Server& server : world_.servers()) {
    any_far = any_far || server.shared == nullptr;
    if (server.shared == nullptr) continue;
    const ProcessLife life = LifeOfProcess(server.pid);
    if (life != ProcessLife::kStopped && life != ProcessLife::kGone) continue;
    if (verdict == WaitJudge::Verdict::kGiveUp) {
      EndJobNow("memory server rank %d (pid %ld) has not answered for %lld s at the end of the job, and %s; ending "
                "the job. Remedy: `kill -CONT %ld` in time, or see who stopped it\n",
                server.world_rank, server.pid, seconds, LifeName(life), server.pid);
    }
    LogWarning("the end of the job waits for memory server rank %d (pid %ld): %s", server.world_rank, server.pid,
               LifeName(life));
    return;
  }
  if (verdict == WaitJudge::Verdict::kGiveUp && any_far) {
    EndJobNow("some rank has not answered for %lld s at the end of the job; ending it. Remedy: see whether the host "
              "of a memory server is overloaded or its process stopped\n", seconds);
  }
  if (verdict == WaitJudge::Verdict::kWarn) {
    LogWarning("the end of the job waits since %lld s for other ranks of it", seconds);
  }
}

}  // namespace ramspan
