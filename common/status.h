// Status and Result<T>: how errors travel inside Ramspan (never as exceptions across a thread or a C boundary).
//
// The code is advice to the caller: kUnavailable (retry later), kAborted (redo higher up), kFailedPrecondition (do not
// retry), kResourceExhausted (give something back first), kDataLoss (sticky), kInvalidArgument (the user's input).
// The message names what failed and, when it can reach a user, the remedy. Value types; not shared between threads.
#pragma once

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
  kAborted,
  kDataLoss,
};

const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
inline Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
inline Status FailedPrecondition(std::string m) { return {StatusCode::kFailedPrecondition, std::move(m)}; }
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status Aborted(std::string m) { return {StatusCode::kAborted, std::move(m)}; }
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

}  // namespace ramspan
