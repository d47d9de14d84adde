// Status and Result<T>: how errors travel inside Ramspan (never as exceptions across a thread or a C boundary).
//
// The code is advice to the caller: kUnavailable (retry later), kMustAsk (only a call that may wait
// can tell), kAborted (begin anew: what it is about is in use, or has gone meanwhile), kFailedPrecondition (do not
// retry), kResourceExhausted (give something back first), kDataLoss (sticky), kInvalidArgument (the user's input).
// The message names what failed and, when it can reach a user, the remedy. Value types; not shared between threads.
#pragma once

#include <new>
#include <optional>
#include <string>
#include <utility>

#include "common/check.h"

namespace ramspan {

enum class StatusCode {
  kOk,
  kInvalidArgument,
  kResourceExhausted,
  kFailedPrecondition,
  kUnavailable,
  kMustAsk,
  kAborted,
  kDataLoss,
};

const char* StatusCodeName(StatusCode code);

// A message that is written down in the program. A Status with one allocates nothing: for answers that are given often and seldom
// read, and for those that say that nothing can be allocated.
class StaticText {
 public:
  consteval explicit StaticText(const char* text) : text_(text) {}
  const char* get() const { return text_; }

 private:
  const char* text_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  Status(StatusCode code, StaticText message) : code_(code), text_(message.get()) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  std::string message() const { return c_str(); }
  // Of message(), without the heap; as long as this lives.
  const char* c_str() const { return text_ != nullptr ? text_ : message_ ? message_->c_str() : ""; }
  // Whether the message names no more than the kind of failure: who tells the user asks for a better one.
  bool is_terse() const { return text_ != nullptr; }
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  const char* text_ = nullptr;  // instead of message_
  std::optional<std::string> message_;  // nothing where none was given: what is OK is made, moved and dropped some ten times in a miss
};

inline Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
inline Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
inline Status FailedPrecondition(std::string m) { return {StatusCode::kFailedPrecondition, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status MustAsk(std::string m) { return {StatusCode::kMustAsk, std::move(m)}; }
inline Status Aborted(std::string m) { return {StatusCode::kAborted, std::move(m)}; }
// operator new has thrown. What it would have given is beside the memory limit, which frames and descriptors keep to.
inline constexpr const char* OutOfHeapText() {
  return "the system gives this process no memory beside the memory limit (std::bad_alloc): lower the limit (RAMSPAN_MEMORY, "
         "ramspan run --memory), or allow the process more (ulimit -v, the job's memory)";
}
inline Status OutOfHeap() { return {StatusCode::kFailedPrecondition, StaticText(OutOfHeapText())}; }
inline Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }

// A T or the Status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, `return value;`
  Result(Status status) : status_(std::move(status)) { RS_CHECK(!status_.ok(), "Result from an OK status"); }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok().
  T& value() & {
    RS_CHECK(ok(), "value() of a failed Result: %s", status_.message().c_str());
    return *value_;
  }
  const T& value() const& {
    RS_CHECK(ok(), "value() of a failed Result: %s", status_.message().c_str());
    return *value_;
  }
  T&& value() && {
    RS_CHECK(ok(), "value() of a failed Result: %s", status_.message().c_str());
    return std::move(*value_);
  }

 private:
  Status status_;
  std::optional<T> value_;
};

// What `call` returns, or `otherwise` where it throws std::bad_alloc.
template <typename F, typename T>
T WithinHeap(const F& call, T otherwise) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return otherwise;
  }
}

// A Status with the words that `words` makes, or with `spare` where the heap has no more for them: an error without its words is one all the same.
template <typename F>
Status WithWords(StatusCode code, const F& words, StaticText spare) {
  return WithinHeap([&] { return Status(code, words()); }, Status(code, spare));
}

}  // namespace ramspan
