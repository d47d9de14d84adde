// RemoteIo: moves the bytes of requests between frames and the pieces of their slots. Near pieces are copied with the
// checksum fused, by the calling thread; far ones are the transport's transfers, which somebody has to Collect. A transport is given few
// transfers at a time to one server in one direction; what comes then waits in a line of that server and direction, so that one which
// stands still keeps nobody from the others, nor from being read while it takes no more writes.
//
// Thread-safety: any thread, any call. The mutex is held for bookkeeping only, never while bytes move or the transport is
// called. Ownership: borrows the transport; between Submit and TakeDone a request belongs to this.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "client/swap/lease_space.h"
#include "client/swap/swap_tier.h"
#include "client/transport/transport.h"
#include "common/mutex.h"

namespace ramspan {

class RemoteIo {
 public:
  // Transfers to one server in one direction. It bounds what a transport remembers of them, which counts in no budget, and what it has to
  // get through before it comes to a later one.
  static constexpr size_t kInFlightMax = 64;

  // Appends the pieces of a request's slot in the order of its bytes; the same at each call as long as it is in flight. May throw
  // std::bad_alloc.
  using Locate = std::function<void(const IoRequest&, std::vector<RemotePiece>*)>;

  RemoteIo(ServerTransport& transport, Locate locate) : transport_(transport), locate_(std::move(locate)) {}
  // REQUIRES: nothing in flight, nothing done that was not taken.
  ~RemoteIo();
  RemoteIo(const RemoteIo&) = delete;
  RemoteIo& operator=(const RemoteIo&) = delete;

  // Copies what is near; that is there, with all that was written, also when its server has died. Begins what is far, or has it wait for
  // its turn, which comes in some Collect. Does not block.
  void Submit(IoRequest* request);

  // kSome: some transfers have ended, kFailed: and some of them with an error. kNothing: none has; those in flight take
  // longer, or other threads wait for them. May block while bytes move.
  enum class Collected { kNothing, kSome, kFailed };
  Collected Collect();

  // Requests that are done; *in_flight says whether more are to come.
  size_t TakeDone(std::span<IoRequest*> done, bool* in_flight);
  // Returns when something was done meanwhile, at the latest after `nap`.
  void WaitForOthers(std::chrono::microseconds nap);

  // Of the transfers that the transport has to one server: whether there are any, how many have ended until now, and what the largest of
  // those since there was none may take.
  struct TransferLook {
    bool in_flight = false;
    uint64_t ended = 0;
    std::chrono::nanoseconds patience{0};
  };
  TransferLook LookAt(uint32_t server) const;

  // Tells each server that was used since the last call what was moved there until now.
  void TellUsage();

  // Counters of transfers only.
  TierStats stats() const;
  // What was moved, by server.
  void AddTo(std::span<ServerStats> servers) const;

 private:
  // Transfers to one server in one direction: how many the transport has, and the requests whose next piece waits for a place. There are
  // such only while all places are taken.
  struct Places {
    size_t taken = 0;
    IoRequest *first = nullptr, *last = nullptr;
  };
  struct Server {
    uint64_t written_bytes = 0, read_bytes = 0;
    bool is_told = true;
    std::array<Places, 2> places;  // reads, writes
    uint64_t ended = 0;
    size_t largest = 0;  // piece that the transport got since it had none
  };
  // Of a request that waited: it has a place now.
  struct Turn {
    IoRequest* request = nullptr;
    uint32_t server = 0;
  };

  void CopyNear(IoRequest* request, std::span<const RemotePiece> pieces);
  void StartFar(IoRequest* request, std::span<const RemotePiece> pieces);
  void BeginPieces(IoRequest* request, std::span<const RemotePiece> pieces, bool has_place);
  std::span<const RemotePiece> PiecesOf(const IoRequest& request);
  bool TakePlace(IoRequest* request, uint32_t server);
  Turn TakeTurn();
  void ServeLines();
  Collected CollectEnded();

  Server* TryServer(uint32_t server) RS_REQUIRES(mutex_);
  void Finish(IoRequest* request, StatusCode result) RS_REQUIRES(mutex_);
  void EndParts(IoRequest* request, size_t parts, StatusCode result) RS_REQUIRES(mutex_);
  void Count(const IoRequest& request, std::span<const RemotePiece> pieces) RS_REQUIRES(mutex_);
  void NoteCompletion(const ServerTransport::Completion& completion) RS_REQUIRES(mutex_);

  // Constant after construction.
  ServerTransport& transport_;
  const Locate locate_;

  mutable Mutex mutex_{LockRank::kTier};
  CondVar changed_;  // a request is done
  IoRequest* done_first_ RS_GUARDED_BY(mutex_) = nullptr;
  IoRequest* done_last_ RS_GUARDED_BY(mutex_) = nullptr;
  size_t in_flight_ RS_GUARDED_BY(mutex_) = 0;  // far requests, not finished
  size_t waiting_ RS_GUARDED_BY(mutex_) = 0;    // of those, in a line
  TierStats stats_ RS_GUARDED_BY(mutex_);
  std::vector<Server> servers_ RS_GUARDED_BY(mutex_);
};

}  // namespace ramspan
