#include "launch/pump.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ramspan {
namespace {

bool IsRegularFile(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Pump::Pump(EventLoop& loop, int from, int to, OutputFilter* filter, std::function<void(bool)> done, std::function<void(int)> on_loss)
    : loop_(loop), from_(from), to_(to), filter_(filter), done_(std::move(done)), on_loss_(std::move(on_loss)), to_regular_file_(IsRegularFile(to)) {
  Arm();
}

// Reads only when all was written, so that a slow reader slows the writer down and nothing piles up here.
void Pump::Arm() {
  if (finished_) return;
  loop_.Unwatch(from_);
  loop_.Unwatch(to_);
  if (!buffer_.empty()) {
    loop_.Watch(to_, POLLOUT, [this](short) { Write(); });
  } else if (at_end_) {
    Finish(false);
  } else if (!paused_) {
    loop_.Watch(from_, POLLIN, [this](short) { Read(); });
  }
}

void Pump::Read() {
  static char bytes[65536];  // not on the stack, which may be as small as `ulimit -s 64`
  const ssize_t length = read(from_, bytes, sizeof bytes);
  if (length < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (length <= 0) {
    at_end_ = true;
    if (filter_ != nullptr) filter_->Finish(buffer_);
  } else if (filter_ != nullptr) {
    filter_->Feed({bytes, static_cast<size_t>(length)}, buffer_);
    // hydra writes the beginning of its addition at once, so what has come without more behind it is the end of the program's own line. Later
    // it would stand behind a line of the other stream, where both go to one place.
    if (filter_->holds_line_end() && static_cast<size_t>(length) < sizeof bytes) filter_->Flush(buffer_);
  } else {
    buffer_.assign(bytes, static_cast<size_t>(length));
  }
  Arm();
}

void Pump::Write() {
  // A pipe that polls writable takes PIPE_BUF bytes without waiting, but perhaps no more.
  const size_t length = std::min(buffer_.size() - written_, to_regular_file_ ? buffer_.size() : size_t{PIPE_BUF});
  const ssize_t written = write(to_, buffer_.data() + written_, length);
  if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (written < 0) {
    errno == EPIPE ? Finish(true) : Lose(errno);
    return;
  }
  written_ += static_cast<size_t>(written);
  if (written_ < buffer_.size()) return;
  buffer_.clear();
  written_ = 0;
  Arm();
}

// There is a reader, or a file, that takes nothing now. Who waited for it would stop the program, for a message that is perhaps its last one.
void Pump::Lose(int error) {
  const bool first = lost_bytes_ == 0;
  lost_bytes_ += buffer_.size() - written_;
  buffer_.clear();
  written_ = 0;
  if (first && on_loss_) on_loss_(error);
  Arm();
}

void Pump::Settle() {
  if (finished_ || filter_ == nullptr || !filter_->has_pending()) return;
  filter_->Flush(buffer_);
  Arm();
}

void Pump::SetPaused(bool paused) {
  if (paused == paused_) return;
  paused_ = paused;
  Arm();
}

void Pump::Finish(bool broken) {
  Stop();
  done_(broken);
}

void Pump::Stop() {
  if (finished_) return;
  finished_ = true;
  loop_.Unwatch(from_);
  loop_.Unwatch(to_);
}

}  // namespace ramspan
