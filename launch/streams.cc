#include "launch/streams.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace ramspan {

Status Streams::Open() {
  for (Pipe* one : {&rank_0_stdin_, &hydra_stdin_, &stdout_, &stderr_}) {
    *one = MakePipe();
    if (!one->read_end) return Unavailable(std::string("no pipe can be made: ") + std::strerror(errno) + " (ulimit -n)");
  }
  return {};
}

void Streams::TakeEnds() {
  dup2(hydra_stdin_.read_end.get(), STDIN_FILENO);
  dup2(stdout_.write_end.get(), STDOUT_FILENO);
  dup2(stderr_.write_end.get(), STDERR_FILENO);
}

void Streams::StartOutput(std::function<void()> no_reader) {
  hydra_stdin_.read_end.Reset();
  stdout_.write_end.Reset();
  stderr_.write_end.Reset();
  out_ = std::make_unique<Pump>(loop_, stdout_.read_end.get(), STDOUT_FILENO, &banner_, [this, no_reader = std::move(no_reader)](bool broken) {
    if (broken) no_reader();
    stdout_.read_end.Reset();
  }, [](int error) { std::fprintf(stderr, "ramspan: standard output cannot be written: %s. The program goes on; what it prints is lost until it can be\n", std::strerror(error)); });
  err_ = std::make_unique<Pump>(loop_, stderr_.read_end.get(), STDERR_FILENO, &complaints_,
                                [this](bool) { stderr_.read_end.Reset(); });
}

void Streams::StartInput(bool rank_0_is_local, const std::function<void(int)>& tell) {
  tell(rank_0_is_local ? rank_0_stdin_.read_end.get() : -1);
  rank_0_stdin_.read_end.Reset();
  // Not the end of hydra's: it hands that on to the proxy of rank 0, and dies where that has ended before the others.
  if (!rank_0_is_local) rank_0_stdin_.write_end.Reset();
  UniqueFd& to = (rank_0_is_local ? rank_0_stdin_ : hydra_stdin_).write_end;
  // The pipe's end tells rank 0 of the end of its input.
  in_ = std::make_unique<Pump>(loop_, STDIN_FILENO, to.get(), nullptr, [&to](bool) { to.Reset(); });
  PauseInput();
}

// Reading a terminal from its background would stop this process (SIGTTIN).
void Streams::PauseInput() {
  if (in_ == nullptr || in_->is_done() || isatty(STDIN_FILENO) == 0) return;
  in_->SetPaused(tcgetpgrp(STDIN_FILENO) != getpgrp());
}

void Streams::Settle() {
  out_->Settle();
  err_->Settle();
}

void Streams::PrintAdditions() const {
  for (const OutputFilter* one : {&banner_, &complaints_}) std::fwrite(one->taken().data(), 1, one->taken().size(), stderr);
}

}  // namespace ramspan
