// PmiRelay: stands between a rank's program and hydra's proxy and passes the PMI bytes on in both directions, only to
// learn whether the program has called MPI_Init, MPI_Finalize or MPI_Abort. It looks for the commands' names and leaves
// everything else to the two ends, so that PMI-1 and PMI-2 both pass.
//
// Thread-safety: none; lives in the keeper's event loop.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launch/event_loop.h"
#include "launch/process.h"

namespace ramspan {

// Finds the commands in the byte stream from the program, however it is cut.
class PmiScanner {
 public:
  void Feed(std::string_view bytes);
  bool init() const { return init_; }
  bool finalize() const { return finalize_; }
  int abort_code() const { return abort_code_; }  // -1: no abort

 private:
  bool init_ = false, finalize_ = false;
  int abort_code_ = -1;
  std::string tail_;  // the last bytes, for a command that was cut
};

class PmiRelay {
 public:
  struct Handlers {
    std::function<void()> news;        // the scanner has new findings; before the bytes are passed on
    std::function<void()> proxy_gone;  // hydra's end was closed
    std::function<void(pid_t)> speaker;  // another process speaks: the program, or what it started; before the bytes go on
  };

  // Takes over the descriptor named by PMI_FD and puts the relay's into PMI_FD, for the program to inherit. Null where
  // there is no PMI_FD.
  static std::unique_ptr<PmiRelay> FromEnvironment(EventLoop& loop, Handlers handlers);

  // After the program was started: the keeper's copy of the program's end would hide its end of file.
  void CloseProgramsEnd() { programs_end_.Reset(); }
  // After the program has ended: passes on what it had still sent.
  void Drain();
  // Instead of a program that has ended within MPI: MPI_Finalize's word to hydra, which otherwise takes the end for a
  // failure, kills all ranks and drops output that they have written. Waits up to 2 s for the answer.
  void FinalizeForProgram();
  const PmiScanner& scanner() const { return scanner_; }
  ~PmiRelay();

 private:
  PmiRelay(EventLoop& loop, Handlers handlers) : loop_(loop), handlers_(std::move(handlers)) {}
  bool ToHydra();
  void ToProgram();

  EventLoop& loop_;
  Handlers handlers_;
  UniqueFd hydra_, ours_, programs_end_;
  PmiScanner scanner_;
  pid_t speaker_ = 0;
};

}  // namespace ramspan
