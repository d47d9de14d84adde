#include "client/front/throw_status.h"

#include "ramspan/errors.h"

namespace ramspan {

void ThrowStatus(const Status& status) {
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
