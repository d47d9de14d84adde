// rambrainglobals::config: the configuration, before and after the start.
//
// Thread-safety: resizeMemory and resizeSwap from any thread; the rest from one.
#pragma once

#include <string>

#include "rambrain/common.h"
#include "rambrain/configreader.h"
#include "rambrain/managedMemory.h"
#include "rambrain/managedSwap.h"

namespace rambrain {

namespace rambrainglobals {

class RAMSPAN_API rambrainConfig {
 public:
  // The file that is read before all others, from the first use of Ramspan or the next reinit on.
  void setCustomConfigPath(const std::string& path);

  // Reads the configuration again (reread) and puts memory, swapMemory and policy into force; all objects live on, where
  // Rambrain dropped them. Before the first managedPtr there is nothing to put into force: the file is read by the first
  // use. Throws incompleteSetupException for a wrong file or for a key that cannot change in a running program.
  void reinit(bool reread = true);

  // What is in force. Starts Ramspan.
  const configuration& getConfig();

  // Both keep all objects. They throw memoryException when more is pinned (resizeMemory) or swapped (resizeSwap) than
  // the new size allows, incompleteSetupException for a size that cannot be; the old size stays then.
  void resizeMemory(global_bytesize memory);
  void resizeSwap(global_bytesize memory);

 private:
  std::string path_;
  configuration config_;
};

extern RAMSPAN_API rambrainConfig config;

}  // namespace rambrainglobals

}  // namespace rambrain
