#include "client/swap/remote_io.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/checksum.h"
#include "common/non_temporal_copy.h"
#include "common/thread_scratch.h"

namespace ramspan {

RemoteIo::~RemoteIo() {
  MutexLock lock(mutex_);
  RS_CHECK(in_flight_ == 0 && done_first_ == nullptr, "remote tier destroyed with %zu requests in flight", in_flight_);
}

std::span<const RemotePiece> RemoteIo::PiecesOf(const IoRequest& request) {
  const auto locate = [&] {
    std::vector<RemotePiece>& pieces = ThreadScratch<std::vector<RemotePiece>, struct PiecesTag>();
    pieces.clear();
    locate_(request, &pieces);
    return std::span<const RemotePiece>(pieces);
  };
  return WithinHeap(locate, std::span<const RemotePiece>());
}

void RemoteIo::Submit(IoRequest* request) {
  const std::span<const RemotePiece> pieces = PiecesOf(*request);
  if (pieces.empty()) {
    MutexLock lock(mutex_);
    Finish(request, StatusCode::kFailedPrecondition);
  } else {
    pieces[0].mapped != nullptr ? CopyNear(request, pieces) : StartFar(request, pieces);
  }
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
      request->is_write ? NonTemporalCopy(to, from, piece.bytes) : static_cast<void>(std::memcpy(to, from, piece.bytes));
    }
    buffer += piece.bytes;
  }
  if (!one) request->checksum = Checksum(request->buffer, request->bytes);  // of the frame, in both directions
  MutexLock lock(mutex_);
  Count(*request, pieces);
  Finish(request, StatusCode::kOk);
}

// Null: the heap has no more.
RemoteIo::Server* RemoteIo::TryServer(uint32_t server) {
  const auto grow = [&]() RS_NO_THREAD_SAFETY_ANALYSIS { return servers_.resize(server + size_t{1}), true; };
  return servers_.size() > server || WithinHeap(grow, false) ? &servers_[server] : nullptr;
}

void RemoteIo::Count(const IoRequest& request, std::span<const RemotePiece> pieces) {
  for (const RemotePiece& piece : pieces) {
    // Statistics only: a server that came while the heap had no more is counted from its next transfer on.
    Server* const server = TryServer(piece.server);
    if (server == nullptr) continue;
    (request.is_write ? server->written_bytes : server->read_bytes) += piece.bytes;
    server->is_told = false;
  }
}

RemoteIo::TransferLook RemoteIo::LookAt(uint32_t number) const {
  MutexLock lock(mutex_);
  if (number >= servers_.size()) return {};
  const Server& server = servers_[number];
  // A tenth of what one adapter of 10 Gbit/s moves.
  return {server.places[0].taken + server.places[1].taken > 0, server.ended, std::chrono::nanoseconds(10 * server.largest)};
}

void RemoteIo::TellUsage() {
  for (uint32_t server = 0; server < transport_.servers(); ++server) {
    uint64_t written_bytes, read_bytes;
    {
      MutexLock lock(mutex_);
      if (server >= servers_.size() || servers_[server].is_told) continue;
      servers_[server].is_told = true;
      written_bytes = servers_[server].written_bytes;
      read_bytes = servers_[server].read_bytes;
    }
    transport_.TellUsage(server, written_bytes, read_bytes);
  }
}

void RemoteIo::StartFar(IoRequest* request, std::span<const RemotePiece> pieces) {
  {
    MutexLock lock(mutex_);
    for (const RemotePiece& piece : pieces) {
      if (TryServer(piece.server) == nullptr) return Finish(request, StatusCode::kFailedPrecondition);
    }
    stats_.in_flight_sum += ++in_flight_;
    Count(*request, pieces);
    for (const RemotePiece& piece : pieces) servers_[piece.server].largest = std::max(servers_[piece.server].largest, piece.bytes);
    request->parts_left = request->parts_to_begin = static_cast<uint32_t>(pieces.size());
  }
  BeginPieces(request, pieces, /*has_place=*/false);
}

// One after the other, so that it is known which of them the transport has begun when the heap has no more; and a request that waits for a
// place at one server holds none at others but for what moves there. A slot is one piece, as a rule.
void RemoteIo::BeginPieces(IoRequest* request, std::span<const RemotePiece> pieces, bool has_place) {
  auto* buffer = static_cast<std::byte*>(request->buffer);
  const bool is_write = request->is_write;
  const size_t begun = pieces.size() - request->parts_to_begin;
  for (const RemotePiece& piece : pieces.first(begun)) buffer += piece.bytes;
  for (const RemotePiece& piece : pieces.subspan(begun)) {
    // Once in a line, it is of whoever takes its turn.
    if (!std::exchange(has_place, false) && !TakePlace(request, piece.server)) return;
    const ServerTransport::Transfer transfer{.server = piece.server,
                                             .is_write = is_write,
                                             .buffer = buffer,
                                             .offset = piece.offset,
                                             .bytes = piece.bytes,
                                             .cookie = request};
    buffer += piece.bytes;
    // Before Start: from the last one on another thread may complete the request.
    const size_t left = request->parts_to_begin--;
    if (WithinHeap([&] { return transport_.Start(std::span(&transfer, 1)), true; }, false)) continue;
    MutexLock lock(mutex_);
    --servers_[piece.server].places[is_write].taken;
    EndParts(request, left, StatusCode::kFailedPrecondition);
    return;
  }
}

// Or puts it into the line.
bool RemoteIo::TakePlace(IoRequest* request, uint32_t server) {
  MutexLock lock(mutex_);
  Places& places = servers_[server].places[request->is_write];
  if (places.taken < kInFlightMax && places.first == nullptr) return ++places.taken, true;
  request->next = nullptr;
  (places.last == nullptr ? places.first : places.last->next) = request;
  places.last = request;
  ++waiting_;
  return false;
}

RemoteIo::Turn RemoteIo::TakeTurn() {
  MutexLock lock(mutex_);
  for (uint32_t server = 0; waiting_ > 0 && server < servers_.size(); ++server) {
    for (Places& places : servers_[server].places) {
      if (places.first == nullptr || places.taken == kInFlightMax) continue;
      IoRequest* const request = places.first;
      places.first = request->next;
      if (places.first == nullptr) places.last = nullptr;
      ++places.taken;
      --waiting_;
      return {request, server};
    }
  }
  return {};
}

void RemoteIo::ServeLines() {
  for (Turn turn = TakeTurn(); turn.request != nullptr; turn = TakeTurn()) {
    const std::span<const RemotePiece> pieces = PiecesOf(*turn.request);
    if (!pieces.empty()) {
      BeginPieces(turn.request, pieces, /*has_place=*/true);
      continue;
    }
    MutexLock lock(mutex_);
    --servers_[turn.server].places[turn.request->is_write].taken;
    EndParts(turn.request, turn.request->parts_to_begin, StatusCode::kFailedPrecondition);
  }
}

// Lines are served at each call: a place may also have become free because the heap had no more for who took it.
RemoteIo::Collected RemoteIo::Collect() {
  const Collected collected = CollectEnded();
  ServeLines();
  return collected;
}

RemoteIo::Collected RemoteIo::CollectEnded() {
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
  Server& server = servers_[completion.server];
  --server.places[request->is_write].taken;
  ++server.ended;
  if (server.places[0].taken + server.places[1].taken == 0) server.largest = 0;
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
  for (size_t i = 0; i < std::min(servers.size(), servers_.size()); ++i) {
    servers[i].bytes_written += servers_[i].written_bytes;
    servers[i].bytes_read += servers_[i].read_bytes;
  }
}

TierStats RemoteIo::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace ramspan
