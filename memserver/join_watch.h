// JoinWatch: tells when compute ranks do not come to the memory servers. When MPI_Init has returned here, all ranks have called it, and those that
// know of servers among them join at once. A program that includes <mpi.h> alone does not: its first collective call waits for the servers, and
// these wait for it, for ever and without a word.
//
// Thread-safety: made and ended by one thread. A thread of its own waits, and calls nothing of MPI's.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "common/mutex.h"

namespace ramspan {

class JoinWatch {
 public:
  // `tell` is called once, by the watch's thread, when this has lived for so long (time during which this process could run).
  JoinWatch(std::chrono::seconds patience, std::function<void()> tell);
  ~JoinWatch();
  JoinWatch(const JoinWatch&) = delete;
  JoinWatch& operator=(const JoinWatch&) = delete;

 private:
  void Run();

  const std::chrono::seconds patience_;
  const std::function<void()> tell_;
  Mutex mutex_{LockRank::kTransport};
  CondVar ended_;
  bool has_ended_ RS_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // none where the system has no thread left: then nothing is told
};

}  // namespace ramspan
