// Streams: the standard input and output of a program that mpiexec starts, on their way through the launcher. mpiexec's own additions to the
// output are taken out of it. The input goes to rank 0 by a pipe of its own where that is on this host, because hydra's own way breaks
// where rank 0 reads slower than it is written (its proxy gives up at 64 KiB); it is used only where rank 0 is on another host.
// A program that is started directly has the launcher's descriptors and needs none of this: then nothing here is ever opened.
//
// Thread-safety: none; within one event loop. Ownership: of the pipes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/status.h"
#include "launch/event_loop.h"
#include "launch/output_filter.h"
#include "launch/process.h"
#include "launch/pump.h"

namespace ramspan {

class Streams {
 public:
  explicit Streams(EventLoop& loop) : loop_(loop) {}

  // Before mpiexec is started. kUnavailable: no pipe can be made.
  Status Open();
  // In the process that becomes mpiexec.
  void TakeEnds();
  // In the launcher, when mpiexec has been started: output flows from here on. `no_reader`: nobody reads it any more. Where it cannot be written
  // (a full disk) the program goes on without, and it is said.
  void StartOutput(std::function<void()> no_reader);
  // `tell` gets what rank 0 is to read from; -1: what mpiexec gives it.
  void StartInput(bool rank_0_is_local, const std::function<void(int descriptor)>& tell);
  // While the job is in the background of a terminal, whose input belongs to others then.
  void PauseInput();

  // The stream may have paused within what could become an addition of mpiexec's: lets it out.
  bool holds_back() const { return banner_.has_pending() || complaints_.has_pending(); }
  void Settle();
  // Bytes have been read and not yet written.
  bool busy() const { return out_->busy() || err_->busy(); }

  // At the end nobody reads input any more; all output is through when it is done.
  void EndInput() { in_.reset(); }
  bool is_done() const { return out_->is_done() && err_->is_done(); }
  // Of standard output: what could not be written.
  uint64_t lost_bytes() const { return out_ == nullptr ? 0 : out_->lost_bytes(); }
  // What mpiexec has said itself, where nobody knows a better explanation.
  void PrintAdditions() const;

 private:
  EventLoop& loop_;
  Pipe rank_0_stdin_, hydra_stdin_, stdout_, stderr_;
  OutputFilter banner_{OutputFilter::Kind::kBanner};
  OutputFilter complaints_{OutputFilter::Kind::kComplaints};
  std::unique_ptr<Pump> in_, out_, err_;
};

}  // namespace ramspan
