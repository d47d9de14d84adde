// Pump: carries bytes from one descriptor to another inside an event loop, through an OutputFilter if there is one.
// Neither descriptor needs to be non-blocking (they may be shared with the user's shell): it only reads and writes
// what poll allows without waiting.
//
// Thread-safety: none. Ownership: the descriptors are the caller's, and must be open as long as the pump lives.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "launch/event_loop.h"
#include "launch/output_filter.h"

namespace ramspan {

class Pump {
 public:
  // `filter` may be null. `done` is called once: at end of file (all is written by then, but for what is lost), or with true when nobody
  // reads any more. `on_loss` is called when the first bytes cannot be written (a full disk), with the error; what comes later is tried again.
  Pump(EventLoop& loop, int from, int to, OutputFilter* filter, std::function<void(bool broken)> done, std::function<void(int error)> on_loss = nullptr);
  ~Pump() { Stop(); }
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  // Lets out what the filter holds back; call when the stream has paused for a moment.
  void Settle();
  // A pause: keeps everything, reads nothing. For a terminal that is not ours to read at the moment.
  void SetPaused(bool paused);
  bool busy() const { return !buffer_.empty(); }
  bool is_done() const { return finished_; }
  uint64_t lost_bytes() const { return lost_bytes_; }
  void Stop();

 private:
  void Arm();
  void Read();
  void Write();
  void Lose(int error);
  void Finish(bool broken);

  EventLoop& loop_;
  const int from_, to_;
  OutputFilter* const filter_;
  const std::function<void(bool)> done_;
  const std::function<void(int)> on_loss_;
  const bool to_regular_file_;
  bool paused_ = false, at_end_ = false, finished_ = false;
  std::string buffer_;
  size_t written_ = 0;
  uint64_t lost_bytes_ = 0;
};

}  // namespace ramspan
