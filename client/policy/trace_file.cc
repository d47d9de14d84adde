#include "client/policy/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "common/log.h"
#include "common/write_signals_blocked.h"

namespace ramspan {
namespace {

// 0, or errno.
int WriteToTrace(int fd, std::span<const std::byte> bytes) {
  const WriteSignalsBlocked blocked;
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

TraceFile::TraceFile(Descriptor file, std::string path, uint64_t bytes_max)
    : path_(std::move(path)), bytes_max_(bytes_max), file_(std::move(file)), filling_(kBufferBytes), writing_buffer_(kBufferBytes) {}

Result<std::unique_ptr<TraceFile>> TraceFile::Create(const std::string& path, uint64_t bytes_max) {
  // Not blocking: a fifo without a reader is an error, and one with a slow reader ends the trace.
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file) return Unavailable(path + ": " + std::strerror(errno));
  file.MoveBeyondPrograms();
  std::byte header[trace_format::kHeaderBytes];
  trace_format::PutHeader(header);
  if (const int error = WriteToTrace(file.number(), header); error != 0) return Unavailable(path + ": " + std::strerror(error));
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(file), path, bytes_max));
}

TraceFile::~TraceFile() { WriteOut(true); }

void TraceFile::Put(const TraceRecord& record) {
  MutexLock lock(mutex_);
  if (end_ != nullptr) return;
  if (bytes_ + trace_format::kRecordBytesMax > bytes_max_) {
    end_ = "it has reached its largest size";
  } else if (filled_ + trace_format::kRecordBytesMax > kBufferBytes) {
    end_ = "the program touches its data faster than the trace can be written";
  } else {
    const size_t n = trace_format::PutRecord(record, &ids_, filling_.data() + filled_);
    filled_ += n;
    bytes_ += n;
  }
}

bool TraceFile::TakeFilled(bool all) {
  MutexLock lock(mutex_);
  if (writing_ || filled_ == 0 || (filled_ < kWorthWriting && !all && end_ == nullptr)) return false;
  writing_ = true;
  std::swap(filling_, writing_buffer_);
  taken_ = std::exchange(filled_, 0);
  return true;
}

void TraceFile::WriteTaken() {
  const int error = WriteToTrace(file_.number(), std::span(writing_buffer_).first(taken_));
  MutexLock lock(mutex_);
  writing_ = false;
  if (error == 0) return;
  end_ = "it cannot be written";
  error_ = error;
  filled_ = 0;  // what comes behind a hole could not be read
}

void TraceFile::WriteOut(bool all) {
  if (TakeFilled(all)) WriteTaken();
  TellEnd();
}

void TraceFile::TellEnd() {
  const char* end;
  int error;
  {
    MutexLock lock(mutex_);
    if (end_ == nullptr || std::exchange(told_, true)) return;
    end = end_;
    error = error_;
  }
  LogWarning("the trace in %s (key trace, RAMSPAN_TRACE) stops here: %s%s%s", path_.c_str(), end, error != 0 ? ": " : "", error != 0 ? std::strerror(error) : "");
}

}  // namespace ramspan
