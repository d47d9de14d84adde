// Prints what is in force, a line a key of table B.1, and how the limits behave. Argument: a custom configuration file.
#include <cstdio>
#include <exception>

#include "rambrain/managedPtr.h"
#include "rambrain/rambrainconfig.h"

using namespace rambrain;

int main(int argc, char** argv) {
  try {
    if (argc > 1) rambrainglobals::config.setCustomConfigPath(argv[1]);
    managedPtr<double> p(10, 1.);
    const configuration& c = rambrainglobals::config.getConfig();
    std::printf("%s=%s\n", c.memoryManager.name.c_str(), c.memoryManager.value.c_str());
    std::printf("%s=%s\n", c.swap.name.c_str(), c.swap.value.c_str());
    std::printf("%s=%s\n", c.swapfiles.name.c_str(), c.swapfiles.value.c_str());
    std::printf("%s=%llu\n", c.memory.name.c_str(), static_cast<unsigned long long>(c.memory.value));
    std::printf("%s=%llu\n", c.swapMemory.name.c_str(), static_cast<unsigned long long>(c.swapMemory.value));
    std::printf("%s=%d\n", c.enableDMA.name.c_str(), c.enableDMA.value);
    std::printf("%s=%s\n", c.policy.name.c_str(),
                c.policy.value == swapPolicy::fixed            ? "fixed"
                : c.policy.value == swapPolicy::autoextendable ? "autoextendable"
                                                               : "interactive");
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
    return 1;
  }
}
