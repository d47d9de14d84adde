// RemoteIo: moves the bytes of requests between frames and the pieces of their slots. Near pieces are copied with the
// checksum fused, by the calling thread; far ones are the transport's transfers, which somebody has to Collect.
//
// Thread-safety: any thread, any call. The mutex is held for bookkeeping only, never while bytes move or the transport is
// called. Ownership: borrows the transport; between Start and TakeDone a request belongs to this.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "client/swap/lease_space.h"
#include "client/swap/swap_tier.h"
#include "client/transport/transport.h"
#include "common/mutex.h"

namespace ramspan {

class RemoteIo {
 public:
  static constexpr size_t kInFlightMax = 64;

  explicit RemoteIo(ServerTransport& transport) : transport_(transport) {}
  // REQUIRES: nothing in flight, nothing done that was not taken.
  ~RemoteIo();
  RemoteIo(const RemoteIo&) = delete;
  RemoteIo& operator=(const RemoteIo&) = delete;

  // All pieces are near; they are there, with all that was written, also when their server has died.
  void CopyNear(IoRequest* request, std::span<const RemotePiece> pieces);
  // Completes it without a transfer: the heap has no more.
  void Refuse(IoRequest* request);
  // All pieces are far. Blocks while too many are in flight.
  void StartFar(IoRequest* request, std::span<const RemotePiece> pieces);

  // kSome: some transfers have ended, kFailed: and some of them with an error. kNothing: none has; those in flight take
  // longer, or other threads wait for them. May block while bytes move.
  enum class Collected { kNothing, kSome, kFailed };
  Collected Collect();

  // Requests that are done; *in_flight says whether more are to come.
  size_t TakeDone(std::span<IoRequest*> done, bool* in_flight);
  // Returns when something was done meanwhile, at the latest after `nap`.
  void WaitForOthers(std::chrono::microseconds nap);

  // Tells each server that was used since the last call what was moved there until now.
  void TellUsage();

  // Counters of transfers only.
  TierStats stats() const;
  // What was moved, by server.
  void AddTo(std::span<ServerStats> servers) const;

 private:
  void Finish(IoRequest* request, StatusCode result) RS_REQUIRES(mutex_);
  void EndParts(IoRequest* request, size_t parts, StatusCode result) RS_REQUIRES(mutex_);
  bool TakePlace(const IoRequest& request, std::span<const RemotePiece> pieces);
  void Count(const IoRequest& request, std::span<const RemotePiece> pieces) RS_REQUIRES(mutex_);
  void NoteCompletion(const ServerTransport::Completion& completion) RS_REQUIRES(mutex_);

  ServerTransport& transport_;  // constant after construction

  mutable Mutex mutex_{LockRank::kTier};
  CondVar changed_;  // a request is done
  IoRequest* done_first_ RS_GUARDED_BY(mutex_) = nullptr;
  IoRequest* done_last_ RS_GUARDED_BY(mutex_) = nullptr;
  size_t in_flight_ RS_GUARDED_BY(mutex_) = 0;  // far requests started, not finished
  TierStats stats_ RS_GUARDED_BY(mutex_);
  struct Usage {
    uint64_t written_bytes = 0, read_bytes = 0;
    bool is_told = true;
  };
  std::vector<Usage> usage_ RS_GUARDED_BY(mutex_);  // by server
};

}  // namespace ramspan
