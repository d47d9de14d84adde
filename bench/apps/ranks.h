// The MPI ranks of one run of an application, `--ranks N`; without them MPI is never begun. Thread-safety: none; the main thread's.
#pragma once

#include "bench/apps/application.h"

namespace ramspan::bench {

class Ranks {
 public:
  // `several`: this process is a rank of mpiexec.
  explicit Ranks(bool several);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  void Wait() const;  // until all are here
  double Most(double mine) const;
  double Sum(double mine) const;
  Digest Sum(const Digest& mine) const;

 private:
  int rank_ = 0, count_ = 1;
};

}  // namespace ramspan::bench
