#include "common/status.h"

namespace ramspan {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "OK";
    case StatusCode::kInvalidArgument: return "InvalidArgument";
    case StatusCode::kResourceExhausted: return "ResourceExhausted";
    case StatusCode::kFailedPrecondition: return "FailedPrecondition";
    case StatusCode::kUnavailable: return "Unavailable";
    case StatusCode::kMustAsk: return "MustAsk";
    case StatusCode::kAborted: return "Aborted";
    case StatusCode::kDataLoss: return "DataLoss";
  }
  return "?";
}

std::string Status::ToString() const { return ok() ? "OK" : std::string(StatusCodeName(code_)) + ": " + c_str(); }

}  // namespace ramspan
