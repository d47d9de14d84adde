#include "memserver/session.h"

#include <bit>

#include "common/check.h"

namespace ramspan {

const char* SessionStateName(SessionState state) {
  switch (state) {
    case SessionState::kJoining: return "Joining";
    case SessionState::kActive: return "Active";
    case SessionState::kDraining: return "Draining";
    case SessionState::kGone: return "Gone";
  }
  return "?";
}

bool ClientSession::NoteRequest() {
  if (state_ == SessionState::kDraining || state_ == SessionState::kGone) return false;
  state_ = SessionState::kActive;
  return true;
}

bool ClientSession::NoteBadMessage() { return std::has_single_bit(++bad_messages_); }

bool ClientSession::BeginDrain() {
  if (state_ == SessionState::kDraining || state_ == SessionState::kGone) return false;
  state_ = SessionState::kDraining;
  return true;
}

void ClientSession::FinishDrain() {
  RS_CHECK(state_ == SessionState::kDraining, "a session that is %s cannot end", SessionStateName(state_));
  state_ = SessionState::kGone;
}

bool ClientSession::NoteDeath() {
  if (state_ == SessionState::kDraining || state_ == SessionState::kGone) return false;
  state_ = SessionState::kGone;
  return true;
}

}  // namespace ramspan
