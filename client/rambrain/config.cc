// rambrainglobals::config over <ramspan/options.h> and <ramspan/runtime.h>.
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "common/config.h"
#include "common/log.h"
#include "common/public_call.h"
#include "common/topology.h"
#include "rambrain/managedPtr.h"
#include "rambrain/rambrainconfig.h"
#include "ramspan/extend.h"
#include "ramspan/runtime.h"

namespace rambrain {

namespace rambrain_detail {
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
}  // namespace rambrain_detail

namespace {
swapPolicy FromRamspan(ramspan::SwapPolicy policy) {
  return policy == ramspan::SwapPolicy::kFail          ? swapPolicy::fixed
         : policy == ramspan::SwapPolicy::kInteractive ? swapPolicy::interactive
                                                       : swapPolicy::autoextendable;
}
}  // namespace

namespace {
// Rambrain's default, of the folder where the swap files would be.
global_bytesize HalfOfFreeDisk(const std::string& mask) {
  const std::filesystem::path folder = std::filesystem::path(mask).parent_path();
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder.empty() ? "." : folder, error);
  return error ? 0 : space.available / 2;
}
}  // namespace

bool configReader::readConfig() {
  const ramspan::PublicCall call;
  ramspan::Options options;
  options.rambrain = true;
  if (!custom_.empty()) options.customConfig = custom_;
  const ramspan::Result<ramspan::Config> read = ramspan::LoadConfig(ramspan::ProcessConfigSources(options));
  read_ = read.ok();
  if (!read_) {
    ramspan::LogWarning("%s", read.status().message().c_str());
    return false;
  }
  const ramspan::Config& c = read.value();
  ramspan::WarnOfPassedOver(c);
  config_.swapfiles.value = c.swapfiles;
  config_.memory.value = c.memory != 0 ? c.memory : ramspan::AvailableMemory() / 2;
  config_.swapMemory.value = c.swap_memory != 0 ? c.swap_memory : HalfOfFreeDisk(c.swapfiles);
  config_.enableDMA.value = c.enable_dma;
  config_.policy.value = FromRamspan(c.policy);
  return true;
}

namespace rambrainglobals {

rambrainConfig config;

void rambrainConfig::setCustomConfigPath(const std::string& path) {
  const ramspan::PublicCall call;
  path_ = path;
  if (access(path.c_str(), F_OK) != 0) {
    ramspan::LogWarning("the configuration file %s does not exist and is passed over", path.c_str());
  }
  if (ramspan::Started()) return;
  ramspan::Options options;
  options.customConfig = path;
  rambrain_detail::Translated([&] { ramspan::Configure(options); });
}

void rambrainConfig::reinit(bool reread) {
  if (!reread || !ramspan::Started()) return;
  ramspan::Options options;
  if (!path_.empty()) options.customConfig = path_;
  rambrain_detail::Translated([&] { managedMemory::WithConfigured([&] { ramspan::Reconfigure(options); }); });
}

const configuration& rambrainConfig::getConfig() {
  const ramspan::Options options = rambrain_detail::Translated([] { return ramspan::EffectiveOptions(); });
  config_.memoryManager.value = "cyclicManagedMemory";
  config_.swap.value = options.swap == "auto" || options.swap == "file" ? "managedFileSwap" : *options.swap;
  config_.swapfiles.value = *options.swapfiles;
  config_.memory.value = managedMemory::ConfiguredLimit();
  config_.swapMemory.value = *options.swapMemory;
  config_.enableDMA.value = *options.enableDMA;
  config_.policy.value = FromRamspan(*options.policy);
  return config_;
}

void rambrainConfig::resizeMemory(global_bytesize memory) {
  rambrain_detail::LetElementsGo();
  rambrain_detail::Translated([&] { managedMemory::WithConfigured([&] { ramspan::SetMemoryLimit(managedMemory::AtLeastLeast(memory)); }); });
}

void rambrainConfig::resizeSwap(global_bytesize memory) {
  rambrain_detail::Translated([&] { ramspan::SetSwapLimit(ramspan::SwapId::kConfigured, memory); });
}

}  // namespace rambrainglobals
}  // namespace rambrain
