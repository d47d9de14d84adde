// The private folder of one running job (RAMSPAN_RUN_DIR): the control socket, the servers' pid files, and what a later
// run needs to know when everything of this one was killed at once: a lock that the launcher's worker holds as long as it
// lives, and the processes of this host that may have made shared memory. Made by the launcher, removed by
// it, or by the keepers where the launcher was killed, or by the next run. Stateless functions.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "launch/process.h"

namespace ramspan {

// Where NameRunFolder puts it: in `wished` (TMPDIR), or in /tmp where that is empty, too long for a socket's name, or has a
// comma, which ends a name in a list of servers.
std::string RunFolderParent(const std::string& wished);

// A random name "ramspan-run-XXXXXX" in RunFolderParent(wished). Apart from the making: the guard must know the name before
// the worker makes the folder, so that whichever of the two is killed, the other one can remove it.
std::string NameRunFolder(const std::string& wished);

// Makes the folder of that name, which must be new, with mode 0700. Returns the name.
Result<std::string> MakeRunFolder(const std::string& name);

// Removes a folder that MakeRunFolder made, with its files; leaves anything else alone. Nothing if there is none.
void RemoveRunFolder(const std::string& folder);

// Marks the folder as owned for as long as the descriptor is open here or in a child that inherited it. The folder never
// shows the mark without the lock.
Result<UniqueFd> OwnRunFolder(const std::string& folder);

// The lock of a folder whose owners are dead. Nothing while one lives, and for folders of other users, other hosts and
// other containers, whose processes cannot be seen from here.
UniqueFd TakeOrphan(const std::string& folder);

// Folders in `parent` that look like run folders of this user.
std::vector<std::string> RunFoldersIn(const std::string& parent);

// A process may make shared memory from now on. Called before it can: by itself, or by the keeper that passes its first
// words to MPI on. Failing is not reported: then a kill of everything may leave a segment, as without a record.
void RecordProcess(const std::string& folder, const ProcessId& process);
// Those of this host, dead or alive.
std::vector<ProcessId> RecordedProcesses(const std::string& folder);

}  // namespace ramspan
