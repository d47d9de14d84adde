// What values in Rambrain's own configuration files mean (arXiv 1510.06358, appendix B), where Rambrain took more than
// ramspan.conf does. Pure. Any thread.
#pragma once

#include <string>

namespace ramspan {

// `value` of `key` as ramspan.conf would say it; unchanged where both say the same, or where it is nonsense.
//   memory, swapMemory   100.MB, 1.5f GB; less than 1 MiB means that
//   swapfiles            a ~ at the beginning is the home folder
//   swap                 managedDummySwap: local files, since memory beyond the limit is what the limit shall prevent
//   enableDMA            any number; 0 is off
std::string FromRambrainsValue(const std::string& key, const std::string& value, const std::string& home);

}  // namespace ramspan
