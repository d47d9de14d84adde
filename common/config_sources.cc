// What a process is told, by whom: its environment, its own call, and the files that may speak to it.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/config.h"
#include "common/config_values.h"

namespace ramspan {
namespace {

std::string ProgramName() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return program_invocation_short_name;  // no /proc
  const std::string_view name(path, static_cast<size_t>(length));
  return std::string(name.substr(name.rfind('/') + 1));
}

}  // namespace

ConfigSources ProcessConfigSources(const Options& program) {
  ConfigSources sources;
  sources.program = program;
  sources.getenv = [](const char* name) -> const char* { return std::getenv(name); };
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with(kEnvironmentPrefix)) sources.environment_names.emplace_back(text.substr(0, text.find('=')));
  }
  sources.program_name = ProgramName();

  const auto is_set = [](const char* value) { return value != nullptr && *value != '\0'; };
  const char* custom = program.customConfig ? program.customConfig->c_str() : std::getenv("RAMSPAN_CONFIG");
  if (is_set(custom)) {
    sources.files.emplace_back(custom);
    sources.first_file_is_custom = !program.rambrain;
    if (program.rambrain && program.customConfig) sources.rambrain_files.insert(custom);
  }
  if (program.rambrain) sources.swapfiles_default = "rambrainswap-%d-%d";
  const char* home = std::getenv("HOME");
  if (is_set(home)) {
    if (program.rambrain) {
      sources.files.push_back(std::string(home) + "/.rambrain.conf");
      sources.rambrain_files.insert(sources.files.back());
    }
    sources.files.push_back(std::string(home) + "/.ramspan.conf");
  }
  if (program.rambrain) {
    sources.files.emplace_back("/etc/rambrain.conf");
    sources.rambrain_files.insert(sources.files.back());
  }
  sources.files.emplace_back("/etc/ramspan.conf");
  return sources;
}

}  // namespace ramspan
