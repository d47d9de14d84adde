// ProgramCode: the program's own code that Ramspan has called runs on this thread, for a scope (a SwapStore's, an EvictionPolicy's).
// What would wait for that very call to return is refused then, instead of standing still for ever.
// Thread-safety: each thread has its own.
#pragma once

#include <utility>

namespace ramspan {

class ProgramCode {
 public:
  enum class Of : unsigned char { kNobody, kStore, kPolicy };
  explicit ProgramCode(Of whose) : outer_(std::exchange(running_, whose)) {}
  ~ProgramCode() { running_ = outer_; }
  ProgramCode(const ProgramCode&) = delete;
  ProgramCode& operator=(const ProgramCode&) = delete;

  static Of running() { return running_; }

 private:
  // As the pins' (resident.h): read wherever an object is made, so no call.
  static inline thread_local constinit Of running_ __attribute__((tls_model("initial-exec"))) = Of::kNobody;
  const Of outer_;
};

}  // namespace ramspan
