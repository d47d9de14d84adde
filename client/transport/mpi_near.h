// The near half of MpiTransport: servers of this node, whose pools are mapped here by the shared-memory window, so that
// bytes move by load and store and no server has to do anything for it (20 GB/s for a warm 1 MiB copy).
#pragma once

#include <cstdint>

#include "common/mpi_world.h"

namespace ramspan {

// Maps the pages of a range of a near server's pool, which the server has made, all at once: cheaper than a fault for each.
// REQUIRES: the range lies within the pool. Any thread.
void MapNearPages(const MpiWorld::Server& server, uint64_t offset, uint64_t bytes);

}  // namespace ramspan
