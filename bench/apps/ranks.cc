#include "bench/apps/ranks.h"

#include <ramspan/mpi.h>

#include <exception>
#include <limits>
#include <stdexcept>

#include "bench/apps/slab.h"

namespace ramspan::bench {

Ranks::Ranks(bool several) {
  if (!several) return;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &count_);
}

Ranks::~Ranks() {
  if (count_ == 1) return;
  // The others wait for a message of this one.
  if (std::uncaught_exceptions() > 0) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
}

void Ranks::Wait() const {
  if (count_ > 1) MPI_Barrier(MPI_COMM_WORLD);
}

double Ranks::Most(double mine) const {
  if (count_ > 1) MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return mine;
}

double Ranks::Sum(double mine) const {
  if (count_ > 1) MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return mine;
}

Digest Ranks::Sum(const Digest& mine) const {
  Digest all{mine.bits, Sum(mine.weighted), Sum(mine.magnitude)};
  if (count_ > 1) MPI_Allreduce(MPI_IN_PLACE, &all.bits, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

void ExchangeBlock(const Slab& slab, bool down, const void* send, void* receive, size_t bytes) {
  if (bytes > static_cast<size_t>(std::numeric_limits<int>::max())) throw std::runtime_error("a band is too large for one MPI message");
  const int below = slab.rank > 0 ? slab.rank - 1 : MPI_PROC_NULL, above = slab.rank + 1 < slab.ranks ? slab.rank + 1 : MPI_PROC_NULL;
  const int count = static_cast<int>(bytes);
  MPI_Sendrecv(send, count, MPI_BYTE, down ? below : above, 0, receive, count, MPI_BYTE, down ? above : below, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

}  // namespace ramspan::bench
