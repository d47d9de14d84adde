// What MPICH and UCX may leave in shared memory when ranks are killed while they start (later on all of it is unlinked
// already). Stateless; may be called by several processes of one job at once.
#pragma once

#include <cstdint>
#include <string>

namespace ramspan {

// Removes segments on this host that this user's dead processes left: files mpich_shar_tmp* and ucx_shm_posix_* in
// `folder` (/dev/shm) that are not older than `since_ns` (CLOCK_REALTIME) and that no process has open or mapped, and
// private System V segments of that age whose maker is dead and which nobody has attached. Returns how many.
int SweepSharedMemory(const std::string& folder, int64_t since_ns);

int64_t RealtimeNs();

}  // namespace ramspan
