// rambrainglobals::config over <ramspan/options.h> and <ramspan/runtime.h>.
#include <unistd.h>

#include <csignal>

#include "common/log.h"
#include "rambrain/managedPtr.h"
#include "rambrain/rambrainconfig.h"
#include "ramspan/extend.h"
#include "ramspan/runtime.h"

namespace rambrain {

namespace detail {
bool SpeakRambrain() {
  if (!ramspan::Started()) {
    ramspan::Options options;
    options.rambrain = true;
    ramspan::Configure(options);
  }
  ramspan::SetSignalReport(SIGUSR1, [] { managedMemory::sigswapstats(); });
  ramspan::SetSignalReport(SIGUSR2, [] { managedMemory::sigStat(); });
  return true;
}
}  // namespace detail

namespace rambrainglobals {

rambrainConfig config;

void rambrainConfig::setCustomConfigPath(const std::string& path) {
  path_ = path;
  if (access(path.c_str(), F_OK) != 0) {
    ramspan::LogWarning("the configuration file %s does not exist and is passed over", path.c_str());
  }
  if (ramspan::Started()) return;
  ramspan::Options options;
  options.customConfig = path;
  detail::Translated([&] { ramspan::Configure(options); });
}

void rambrainConfig::reinit(bool reread) {
  if (!reread || !ramspan::Started()) return;
  ramspan::Options options;
  if (!path_.empty()) options.customConfig = path_;
  detail::Translated([&] { managedMemory::WithConfigured([&] { ramspan::Reconfigure(options); }); });
}

const configuration& rambrainConfig::getConfig() {
  const ramspan::Options options = detail::Translated([] { return ramspan::EffectiveOptions(); });
  config_.memoryManager.value = "cyclicManagedMemory";
  config_.swap.value = options.swap == "auto" || options.swap == "file" ? "managedFileSwap" : *options.swap;
  config_.swapfiles.value = *options.swapfiles;
  config_.memory.value = managedMemory::ConfiguredLimit();
  config_.swapMemory.value = *options.swapMemory;
  config_.enableDMA.value = *options.enableDMA;
  config_.policy.value = *options.policy == ramspan::SwapPolicy::kFail          ? swapPolicy::fixed
                         : *options.policy == ramspan::SwapPolicy::kInteractive ? swapPolicy::interactive
                                                                                : swapPolicy::autoextendable;
  return config_;
}

void rambrainConfig::resizeMemory(global_bytesize memory) {
  detail::LetElementsGo();
  detail::Translated([&] { managedMemory::WithConfigured([&] { ramspan::SetMemoryLimit(managedMemory::AtLeastLeast(memory)); }); });
}

void rambrainConfig::resizeSwap(global_bytesize memory) {
  detail::Translated([&] { ramspan::SetSwapLimit(ramspan::SwapId::kConfigured, memory); });
}

}  // namespace rambrainglobals
}  // namespace rambrain
