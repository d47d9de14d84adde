// The keys of Rambrain's configuration files (table B.1), and a reader of them.
// Thread-safety: one thread at a time.
#pragma once

#include <string>

#include "rambrain/common.h"
#include "rambrain/managedSwap.h"
#include "ramspan/detail/resident.h"

namespace rambrain {

template <typename T>
struct configLine {
  const std::string name;  // the key in a configuration file
  T value;
};

// Table B.1.
struct configuration {
  configLine<std::string> memoryManager{"memoryManager", "cyclicManagedMemory"};
  configLine<std::string> swap{"swap", "managedFileSwap"};
  configLine<std::string> swapfiles{"swapfiles", ""};
  configLine<global_bytesize> memory{"memory", 0};
  configLine<global_bytesize> swapMemory{"swapMemory", 0};
  configLine<bool> enableDMA{"enableDMA", false};
  configLine<swapPolicy> policy{"policy", swapPolicy::autoextendable};
};

// Reads the configuration files of this program without putting anything into force: custom, home and global one, as
// Ramspan's start does, and the environment. rambrainglobals::config is what is in force.
class RAMSPAN_API configReader {
 public:
  // False, with an error on stderr, when a file or variable of Ramspan's own is wrong. Without any file all is default.
  bool readConfig();
  void setCustomConfigPath(const std::string& path) { custom_ = path; }
  configuration& getConfig() {  // reads at first
    if (!read_) readConfig();
    return config_;
  }
  bool readSuccessfully() const { return read_; }
  void setReread() { read_ = false; }

 private:
  std::string custom_;
  configuration config_;
  bool read_ = false;
};

}  // namespace rambrain
