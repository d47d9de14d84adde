// ClientSession: what a memory server knows of one client's life.
//
//   state      request, activity   bad message   bye        left      death
//   Joining    Active              Joining       Draining   (check)   Gone
//   Active     Active              Active        Draining   (check)   Gone
//   Draining   refused             Draining      refused    Gone      refused
//   Gone       refused             Gone          refused    (check)   refused
//
// Joining: in the job, nothing heard yet. Draining: has said bye, holds nothing, gets nothing, is still in the job.
// "refused" returns false and changes nothing: the peer is lying, not we. "check" is our own bug.
// Thread-safety: none; the server's loop is one thread.
#pragma once

#include <cstdint>

namespace ramspan {

enum class SessionState { kJoining, kActive, kDraining, kGone };

const char* SessionStateName(SessionState state);

class ClientSession {
 public:
  [[nodiscard]] bool NoteRequest();
  // Counts it. Returns true when this one is worth a line of log: the 1st, 2nd, 4th, 8th, ...
  [[nodiscard]] bool NoteBadMessage();
  [[nodiscard]] bool BeginDrain();
  void FinishDrain();
  // The client ended without a bye. Refused after one: then it has left, and dies in peace.
  [[nodiscard]] bool NoteDeath();

  SessionState state() const { return state_; }
  uint64_t bad_messages() const { return bad_messages_; }

 private:
  SessionState state_ = SessionState::kJoining;
  uint64_t bad_messages_ = 0;
};

}  // namespace ramspan
