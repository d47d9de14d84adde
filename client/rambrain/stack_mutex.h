// Over the stack of managers (defaultManager, what it counts from), which the logging thread and the mover look at.
#pragma once

#include <mutex>

namespace rambrain {
std::mutex& StackMutex();
}  // namespace rambrain
