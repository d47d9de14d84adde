// The line where a Status becomes an exception of include/ramspan/errors.h.
#pragma once

#include "common/status.h"

namespace ramspan {

// REQUIRES: not OK.
[[noreturn]] void ThrowStatus(const Status& status);

}  // namespace ramspan
