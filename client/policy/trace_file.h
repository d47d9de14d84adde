// TraceFile: where a trace goes (trace_format.h). Records are put into one of two buffers, and somebody who has time writes the other
// one, so that Put never waits for the disk. What does not fit any more ends the trace, at a whole record, with one line in the log: a disk that
// is slower than the program, an error of it, or a trace of bytes_max.
//
// Thread-safety: any thread; records that several threads put are in some order. Put allocates nothing and does not block; it is called under
// the engine's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/policy/trace_format.h"
#include "common/descriptor.h"
#include "common/mutex.h"
#include "common/status.h"

namespace ramspan {

class TraceFile {
 public:
  // A gibibyte holds some 500 million touches. Without a bound a program that runs for days would fill the disk.
  static constexpr uint64_t kBytesMax = uint64_t{1} << 30;
  // Of one of two buffers: half a million touches of neighbours. The mover writes a hundred times a second, so that many in 10 ms end the trace;
  // twice of it would be memory that no limit counts.
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  // Makes the file, or empties it. kUnavailable: it cannot be written; the message says why.
  static Result<std::unique_ptr<TraceFile>> Create(const std::string& path, uint64_t bytes_max = kBytesMax);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void Put(const TraceRecord& record) RS_EXCLUDES(mutex_);
  // Blocks as the disk does. Not where too little has come together, but with `all`.
  void WriteOut(bool all) RS_EXCLUDES(mutex_);

 private:
  static constexpr size_t kWorthWriting = 64 << 10;

  TraceFile(Descriptor file, std::string path, uint64_t bytes_max);
  bool TakeFilled(bool all) RS_EXCLUDES(mutex_);
  void WriteTaken();
  void TellEnd() RS_EXCLUDES(mutex_);

  const std::string path_;
  const uint64_t bytes_max_;
  const Descriptor file_;

  Mutex mutex_{LockRank::kTraceFile};
  std::vector<std::byte> filling_ RS_GUARDED_BY(mutex_);  // both: of kBufferBytes, for ever
  size_t filled_ RS_GUARDED_BY(mutex_) = 0;
  trace_format::Ids ids_ RS_GUARDED_BY(mutex_);
  uint64_t bytes_ RS_GUARDED_BY(mutex_) = trace_format::kHeaderBytes;  // put, ever
  const char* end_ RS_GUARDED_BY(mutex_) = nullptr;  // why nothing is put any more
  int error_ RS_GUARDED_BY(mutex_) = 0;              // errno of that, if it has one
  bool told_ RS_GUARDED_BY(mutex_) = false;
  bool writing_ RS_GUARDED_BY(mutex_) = false;       // a thread has the other buffer, alone:
  std::vector<std::byte> writing_buffer_;
  size_t taken_ = 0;
};

}  // namespace ramspan
