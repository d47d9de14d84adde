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
    if (usage_.size() <= piece.server) usage_.resize(piece.server + size_t{1});
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

void RemoteIo::StartFar(IoRequest* request, std::span<const RemotePiece> pieces) {
  while (!TakePlace(*request, pieces)) {
    if (Collect() == Collected::kNothing) sched_yield();
  }
  auto& transfers = ThreadScratch<std::vector<ServerTransport::Transfer>, struct TransfersTag>();
  transfers.clear();
  auto* buffer = static_cast<std::byte*>(request->buffer);
  for (const RemotePiece& piece : pieces) {
    transfers.push_back({.server = piece.server,
                         .is_write = request->is_write,
                         .buffer = buffer,
                         .offset = piece.offset,
                         .bytes = piece.bytes,
                         .cookie = request});
    buffer += piece.bytes;
  }
  // Before Start: from then on another thread may complete the request.
  request->parts_left = static_cast<uint32_t>(transfers.size());
  transport_.Start(transfers);
}

RemoteIo::Collected RemoteIo::Collect() {
  auto& completions = ThreadScratch<std::vector<ServerTransport::Completion>, struct CompletionsTag>();
  completions.clear();
  transport_.Collect(&completions);
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
  if (completion.result != StatusCode::kOk && request->result != StatusCode::kDataLoss) {
    // What a dead server held cannot be read again, ever; all else may go better the next time, or elsewhere.
    const bool lost = !request->is_write && transport_.state(completion.server) == ServerTransport::ServerState::kDead;
    request->result = lost ? StatusCode::kDataLoss : StatusCode::kUnavailable;
  }
  if (--request->parts_left != 0) return;
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
