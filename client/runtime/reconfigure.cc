// What the program may set, before the start and later: Configure, Reconfigure and EffectiveOptions.
#include <functional>
#include <utility>

#include "client/engine/engine.h"
#include "client/front/throw_status.h"
#include "client/runtime/options.h"
#include "client/runtime/runtime.h"
#include "client/swap/file_swap.h"
#include "client/transport/transport.h"
#include "common/public_call.h"
#include "common/raise.h"
#include "ramspan/errors.h"
#include "ramspan/runtime.h"

namespace ramspan {

bool Runtime::SetOptions(const Options& options) {
  ProgramOptions& program = ProgramOptions::Get();
  MutexLock lock(program.mutex);  // waits for the end of a start that is under way
  if (instance_.load() != nullptr) return false;
  MergeOptions(options, &program.options);
  return true;
}

// Of several threads one after another, or each would store all options as they were when it began.
void Runtime::Reload(const Options& options) {
  const TurnQueue::Turn turn(&reloads_, detail::t_pins);
  ProgramOptions& program = ProgramOptions::Get();
  Options merged;
  {
    MutexLock lock(program.mutex);
    merged = program.options;
  }
  MergeOptions(options, &merged);
  Result<Config> loaded = LoadConfig(ProcessConfigSources(merged));
  if (!loaded.ok()) Raise(ConfigError(loaded.status().message()));
  const Config& next = loaded.value();
  WarnOfPassedOver(next);
  const std::string servers = servers_ == nullptr ? "" : servers_->server_names();
  CheckFixedKeys(config_, next, !servers.empty());
  const bool other_servers = !servers.empty() && next.servers != servers;
  Result<std::function<void()>> use_servers = std::function<void()>([] {});
  if (other_servers) use_servers = servers_->PrepareServers(next.servers);
  if (!use_servers.ok()) Raise(ConfigError(use_servers.status().message()));
  UseLimits(options, next);
  // From here on nothing can fail, nor needs heap: who is refused has changed nothing.
  use_servers.value()();
  if (options.preemptive || next.preemptive != read_.preemptive) engine_->SetPreemptive(next.preemptive, next.preemptive);
  read_ = ChangeableKeys(next);
  MutexLock lock(program.mutex);
  program.options = std::move(merged);
}

// What neither this call names nor a source says otherwise than the last time stays as it is: setters may have changed it since, and swap
// files may have grown.
//
// Who is refused has changed nothing. The swap files come first, because a lower memory limit may need their room, and because they can be
// undone: a limit that was lowered may always be raised again. One that was raised stays where the files hold more by then.
void Runtime::UseLimits(const Options& named, const Config& next) {
  const bool sets_memory = next.memory != 0 && (named.memory || next.memory != read_.memory);
  const bool sets_swap_limit = files_ != nullptr && next.swap_memory != 0 && (named.swapMemory || next.swap_memory != read_.swap_memory);
  const bool sets_policy = files_ != nullptr && (named.policy || next.policy != read_.policy);
  const uint64_t swap_limit = files_ != nullptr ? files_->limit() : 0;
  const SwapPolicy policy = files_ != nullptr ? files_->policy() : next.policy;
  if (sets_swap_limit) SetSwapLimit(next.swap_memory);
  if (sets_policy) files_->SetPolicy(next.policy);
  if (!sets_memory) return;
  try {
    SetMemoryLimit(next.memory);
  } catch (...) {
    if (sets_policy) files_->SetPolicy(policy);
    if (sets_swap_limit) static_cast<void>(files_->SetLimit(swap_limit).ok());
    throw;
  }
}

Options Runtime::EffectiveOptions() {
  Options options;
  options.memory = engine_->budget()->limit();
  options.swapMemory = files_ != nullptr ? files_->limit() : 0;
  options.memoryManager = config_.memory_manager;
  options.swap = config_.swap;
  options.swapfiles = SwapfileMask(config_);
  options.enableDMA = config_.enable_dma;
  options.policy = files_ != nullptr ? files_->policy() : config_.policy;
  options.transport = config_.transport;
  options.servers = servers_ != nullptr && !servers_->server_names().empty() ? servers_->server_names() : config_.servers;
  options.serverKeyFile = config_.server_key_file;
  options.fabricProvider = config_.fabric_provider;
  options.checksum = config_.checksum;
  options.preemptive = engine_->load_ahead() || engine_->write_ahead();
  options.debug = config_.debug;
  options.bundles = config_.bundles;
  options.stats = config_.stats;
  options.trace = config_.trace;
  return options;
}

void Configure(const Options& options) {
  AsPublicCall([&] {
    if (Runtime::SetOptions(options)) return;
    Raise(ConfigError("ramspan::Configure was called after the first managedPtr was made; call it first in main()"));
  });
}

void Reconfigure(const Options& options) {
  const PublicCall call;
  RefuseWithinProgramCode("Reconfigure");
  AsPublicCall([&] {
    if (Runtime::IfStarted() == nullptr && Runtime::SetOptions(options)) return;
    Runtime::Get().Reload(options);
  });
}

Options EffectiveOptions() {
  return AsPublicCall([] { return Runtime::Get().EffectiveOptions(); });
}

}  // namespace ramspan
