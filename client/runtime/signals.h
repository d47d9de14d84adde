// SIGUSR1 and SIGUSR2 ask for a report, where the program has no handler of its own. A handler may do next to nothing,
// so it only notes the wish; the mover looks for it between two rounds of its work and calls the report.
// Thread-safety: any thread.
#pragma once

namespace ramspan {

// `report` is what SIGUSR1 does unless the program has chosen something else. Installs the handlers.
void StartSignalReports(void (*report)());

// Calls the reports that were asked for since the last call, on the calling thread.
void GiveSignalReports();

}  // namespace ramspan
