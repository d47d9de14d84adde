#include "client/front/throw_status.h"

#include <string>

#include "ramspan/errors.h"

namespace ramspan {

namespace {
// Made while there is heap; a copy of it takes none.
const OutOfMemory no_heap(OutOfHeapText());
}  // namespace

void ThrowStatus(const Status& status) {
  if (status.code() == StatusCode::kFailedPrecondition && status.is_terse()) throw OutOfMemory(no_heap);
  switch (status.code()) {
    case StatusCode::kFailedPrecondition: throw OutOfMemory(status.message());
    case StatusCode::kResourceExhausted: throw OutOfSwap(status.message());
    case StatusCode::kDataLoss: throw DataLost(status.message());
    case StatusCode::kUnavailable: throw SwapUnavailable(status.message());
    case StatusCode::kInvalidArgument: throw ConfigError(status.message());
    default: throw Error(status.message());
  }
}

void ThrowWithinProgramCode(const char* call) {
  const bool policy = ProgramCode::running() == ProgramCode::Of::kPolicy;
  throw Error(std::string(call) + " within a call of " + (policy ? "an EvictionPolicy" : "a SwapStore") +
              ": Ramspan waits for that call to return, so this would wait for itself. Only " +
              (policy ? "the functions of Objects, GetStatistics and MemoryLimit" : "what <ramspan/extend.h> names at SwapStore") +
              " may be used there; let another thread do it, or do it after the call");
}

}  // namespace ramspan
