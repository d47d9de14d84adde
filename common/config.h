// Config: all settings of one process, resolved. First hit wins, key by key: program call (Options), environment
// (RAMSPAN_FOO_BAR for key fooBar), custom file, ~/.ramspan.conf, /etc/ramspan.conf, default. Within one file the
// block [program-name] beats [default]; the first block of a name counts; a [default] block in a file of higher
// priority beats a [program-name] block in a lower one. Strict: an unknown key, a bad number or an impossible value
// is an error that names file and line (or the variable). Pure but for reading the files named in ConfigSources.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/status.h"
#include "ramspan/options.h"

namespace ramspan {

// The values of the key memoryManager, the default first. client/policy/policy_factory.cc makes a policy of each.
inline constexpr const char* kMemoryManagers[] = {"replay", "cyclic", "second-chance"};

// How a thread that touches memory which is swapped by pages, and is not there, gets it.
enum class FaultMode {
  kAuto,
  kThread,  // the kernel keeps the thread waiting, and a thread of Ramspan's brings the page. System calls wait, too
  kSignal,  // the thread itself brings it, in a handler of SIGBUS: in a third of the time, but system calls fail (EFAULT)
  kProtect,  // the same in a handler of SIGSEGV, without userfaultfd: what has left has no access rights. For where the kernel gives none (containers)
};

// How pages come to where the program uses them, and leave.
enum class PageMoves {
  kAuto,
  kMove,  // the kernel gives a page another address. From Linux 6.8 on
  kCopy,  // they come as copies, and leave by a mapping of theirs that moves. Where a device writes to a page that leaves, what it writes is lost
};

// Of the size that suits its use; of sizes by lot, again and again: for tests.
inline constexpr uint64_t kPageBlockAdapts = 0, kPageBlockRestless = 1;
inline constexpr uint64_t kPageUnit = 64 << 10;  // of which allocations take whole ones there
inline constexpr uint64_t kPageBlock = kPageBlockAdapts, kPagesAbove = 128 << 10;  // where nobody says otherwise

struct Config {
  uint64_t memory = 0;       // bytes; 0 = choose by the machine
  uint64_t swap_memory = 0;  // bytes; 0 = choose by the disk
  std::string memory_manager = kMemoryManagers[0];
  std::string swap = "auto";
  std::string swapfiles;  // empty = "$TMPDIR/ramspan-%d-%d.swap" ($TMPDIR defaulting to /tmp)
  bool enable_dma = false;
  SwapPolicy policy = SwapPolicy::kAutoextendable;
  Transport transport = Transport::kAuto;
  std::string servers;          // empty = none
  std::string server_key_file;  // empty = ~/.ramspan.key
  std::string fabric_provider;  // empty = any
  bool checksum = true;
  bool preemptive = true;
  bool debug = false;
  bool bundles = true;
  std::string stats;  // empty = none
  std::string trace;  // empty = none
  uint64_t page_block = kPageBlock;   // bytes; a power of two; or one of the two above
  FaultMode page_faults = FaultMode::kAuto;
  PageMoves page_moves = PageMoves::kAuto;
  bool page_children = true;          // a forked child gets a copy
  uint64_t pages_above = kPagesAbove;  // bytes; of ramspan run --pages

  // Where each key that is not a default came from, for messages: "environment RAMSPAN_MEMORY", "/etc/ramspan.conf:3".
  std::map<std::string, std::string> source;
  // Lines of Rambrain's own files that mean nothing, each as an error message would say it: to be warned of.
  std::vector<std::string> passed_over;
};

struct ConfigSources {
  Options program;                                 // highest priority
  std::function<const char*(const char*)> getenv;  // nullptr for an unset variable; an empty one counts as unset
  std::vector<std::string> environment_names;      // of the variables that are set, to find unknown RAMSPAN_* ones
  std::string program_name;                        // basename of the executable
  std::vector<std::string> files;                  // by falling priority; a missing file is skipped, except
  bool first_file_is_custom = false;               // that a missing custom file is an error
  std::set<std::string> rambrain_files;            // those of `files` that are Rambrain's own: wrong lines are passed over
  std::string swapfiles_default;                   // what Config::swapfiles is when no source sets it
};

// The sources of this process: std::getenv, /proc/self/exe, options.customConfig or RAMSPAN_CONFIG, ~ and /etc.
ConfigSources ProcessConfigSources(const Options& program);

Result<Config> LoadConfig(const ConfigSources& sources);

// Says on stderr, in one line, what was passed over.
void WarnOfPassedOver(const Config& config);

}  // namespace ramspan
