// The private folder of one running job (RAMSPAN_RUN_DIR): the control socket, the servers' pid files. Made by the
// launcher, removed by it, or by the keepers where the launcher was killed. Stateless functions.
#pragma once

#include <string>

#include "common/status.h"

namespace ramspan {

// A new folder "ramspan-run-XXXXXX" with mode 0700 in `parent`, or in /tmp where that is too long for a socket's name.
Result<std::string> MakeRunFolder(const std::string& parent);

// Removes a folder that MakeRunFolder made, with its files; leaves anything else alone.
void RemoveRunFolder(const std::string& folder);

}  // namespace ramspan
