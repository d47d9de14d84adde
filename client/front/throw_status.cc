#include "client/front/throw_status.h"

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

}  // namespace ramspan
