#include "client/swap/remote_io.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/checksum.h"
#include "common/thread_scratch.h"

namespace ramspan {

RemoteIo::~RemoteIo() {
  MutexLock lock(mutex_);
  RS_CHECK(in_flight_ == 0 && done_first_ == nullptr, "remote tier destroyed with %zu requests in flight", in_flight_);
}

void RemoteIo::CopyNear(IoRequest* request, std::span<const RemotePiece> pieces) {
  auto* buffer = static_cast<std::byte*>(request->buffer);
  const bool one = pieces.size() == 1;
  const HashedSide frame = request->is_write ? HashedSide::kSource : HashedSide::kDestination;
  for (const RemotePiece& piece : pieces) {
    std::byte* to = request->is_write ? piece.mapped : buffer;
    const std::byte* from = request->is_write ? buffer : piece.mapped;
    if (one) {
      request->checksum = CopyWithChecksum(to, from, piece.bytes, frame);
    } else {
      std::memcpy(to, from, piece.bytes);
    }
    buffer += piece.bytes;
  }
  if (!one) request->checksum = Checksum(request->buffer, request->bytes);  // of the frame, in both directions
  MutexLock lock(mutex_);
  Count(*request, pieces);
  Finish(request, StatusCode::kOk);
}

bool RemoteIo::TakePlace(const IoRequest& request, std::span<const RemotePiece> pieces) {
  MutexLock lock(mutex_);
  if (in_flight_ >= kInFlightMax) return false;
  stats_.in_flight_sum += ++in_flight_;
  Count(request, pieces);
  return true;
}

void RemoteIo::Count(const IoRequest& request, std::span<const RemotePiece> pieces) {
  for (const RemotePiece& piece : pieces) {
    // Statistics only: a server that came while the heap had no more is counted from its next transfer on.
    if (usage_.size() <= piece.server && !WithinHeap([&]() RS_NO_THREAD_SAFETY_ANALYSIS { return usage_.resize(piece.server + size_t{1}), true; }, false)) continue;
    Usage& usage = usage_[piece.server];
    (request.is_write ? usage.written_bytes : usage.read_bytes) += piece.bytes;
    usage.is_told = false;
  }
}

void RemoteIo::TellUsage() {
  for (uint32_t server = 0; server < transport_.servers(); ++server) {
    Usage usage;
    {
      MutexLock lock(mutex_);
      if (server >= usage_.size() || usage_[server].is_told) continue;
      usage_[server].is_told = true;
      usage = usage_[server];
    }
    transport_.TellUsage(server, usage.written_bytes, usage.read_bytes);
  }
}

void RemoteIo::Refuse(IoRequest* request) {
  MutexLock lock(mutex_);
  Finish(request, StatusCode::kFailedPrecondition);
}

// Piece by piece, so that it is known which of them the transport has begun when the heap has no more. A slot is one piece, as a rule.
void RemoteIo::StartFar(IoRequest* request, std::span<const RemotePiece> pieces) {
  while (!TakePlace(*request, pieces)) {
    if (Collect() == Collected::kNothing) sched_yield();
  }
  auto* buffer = static_cast<std::byte*>(request->buffer);
  const bool is_write = request->is_write;
  // Before Start: from then on another thread may complete the request.
  request->parts_left = static_cast<uint32_t>(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ServerTransport::Transfer transfer{.server = pieces[i].server,
                                             .is_write = is_write,
                                             .buffer = buffer,
                                             .offset = pieces[i].offset,
                                             .bytes = pieces[i].bytes,
                                             .cookie = request};
    buffer += pieces[i].bytes;
    if (WithinHeap([&] { return transport_.Start(std::span(&transfer, 1)), true; }, false)) continue;
    MutexLock lock(mutex_);
    EndParts(request, pieces.size() - i, StatusCode::kFailedPrecondition);
    return;
  }
}

RemoteIo::Collected RemoteIo::Collect() {
  using List = std::vector<ServerTransport::Completion>;
  List* const list = WithinHeap([] { return &ThreadScratch<List, struct CompletionsTag>(); }, static_cast<List*>(nullptr));
  if (list == nullptr) return Collected::kNothing;
  List& completions = *list;
  completions.clear();
  // Without heap for all of them those that are in the list have ended, and the others come with a later call.
  static_cast<void>(WithinHeap([&] { return transport_.Collect(&completions); }, false));
  if (completions.empty()) return Collected::kNothing;
  Collected collected = Collected::kSome;
  MutexLock lock(mutex_);
  for (const ServerTransport::Completion& completion : completions) {
    if (completion.result != StatusCode::kOk) collected = Collected::kFailed;
    NoteCompletion(completion);
  }
  return collected;
}

void RemoteIo::NoteCompletion(const ServerTransport::Completion& completion) {
  auto* request = static_cast<IoRequest*>(completion.cookie);
  StatusCode result = completion.result;
  if (result != StatusCode::kOk) {
    // What a dead server held cannot be read again, ever; all else may go better the next time, or elsewhere.
    const bool lost = !request->is_write && transport_.state(completion.server) == ServerTransport::ServerState::kDead;
    result = lost ? StatusCode::kDataLoss : StatusCode::kUnavailable;
  }
  EndParts(request, 1, result);
}

// The last part ends the request; what could not be read again in one of them is lost, whatever came of the others.
void RemoteIo::EndParts(IoRequest* request, size_t parts, StatusCode result) {
  if (result != StatusCode::kOk && request->result != StatusCode::kDataLoss) request->result = result;
  request->parts_left -= static_cast<uint32_t>(parts);
  if (request->parts_left != 0) return;
  --in_flight_;
  Finish(request, request->result);
}

void RemoteIo::Finish(IoRequest* request, StatusCode result) {
  request->result = result;
  request->bytes_done = result == StatusCode::kOk ? request->bytes : 0;
  request->next = nullptr;
  (done_last_ == nullptr ? done_first_ : done_last_->next) = request;
  done_last_ = request;
  changed_.NotifyAll();
  ++(request->is_write ? stats_.writes : stats_.reads);
  (request->is_write ? stats_.bytes_written : stats_.bytes_read) += request->bytes_done;
  if (result != StatusCode::kOk) ++stats_.errors;
}

size_t RemoteIo::TakeDone(std::span<IoRequest*> done, bool* in_flight) {
  MutexLock lock(mutex_);
  size_t n = 0;
  for (; n < done.size() && done_first_ != nullptr; ++n) {
    done[n] = done_first_;
    done_first_ = done_first_->next;
  }
  if (done_first_ == nullptr) done_last_ = nullptr;
  *in_flight = in_flight_ != 0;
  return n;
}

void RemoteIo::WaitForOthers(std::chrono::microseconds nap) {
  MutexLock lock(mutex_);
  if (done_first_ == nullptr && in_flight_ != 0) changed_.WaitFor(mutex_, nap);
}

void RemoteIo::AddTo(std::span<ServerStats> servers) const {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < std::min(servers.size(), usage_.size()); ++i) {
    servers[i].bytes_written += usage_[i].written_bytes;
    servers[i].bytes_read += usage_[i].read_bytes;
  }
}

TierStats RemoteIo::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace ramspan
