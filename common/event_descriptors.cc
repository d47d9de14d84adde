#include "common/event_descriptors.h"

#include <unistd.h>

#include <charconv>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>

namespace ramspan {

EventDescriptors EventDescriptors::OfThisProcess() {
  namespace fs = std::filesystem;
  EventDescriptors all;
  std::error_code error;
  // Not a range-for, which throws when the folder cannot be read on.
  for (auto it = fs::directory_iterator("/proc/self/fd", error); !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code closed;
    if (fs::read_symlink(it->path(), closed) != "anon_inode:[eventpoll]") continue;
    const std::string name = it->path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number >= 0) all.descriptors_.push_back({.fd = number, .events = POLLIN, .revents = 0});
  }
  return all;
}

bool EventDescriptors::Wait(std::chrono::microseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec most = {.tv_sec = static_cast<time_t>(seconds.count()),
                         .tv_nsec = std::chrono::nanoseconds(timeout - seconds).count()};
  if (ppoll(descriptors_.data(), descriptors_.size(), &most, nullptr) <= 0) return false;
  // A closed one would be ready for ever.
  std::erase_if(descriptors_, [](const pollfd& descriptor) { return (descriptor.revents & POLLNVAL) != 0; });
  return true;
}

}  // namespace ramspan
