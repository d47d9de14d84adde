// DefaultVariable: an environment variable that a library reads has this value while the object lives, unless the user has set it. Programs that
// this one starts later do not see it.
// Thread-safety: as setenv's, so it is for a library's first moment.
#pragma once

#include <cstdlib>

namespace ramspan {

class DefaultVariable {
 public:
  DefaultVariable(const char* name, const char* value) : name_(name), set_here_(std::getenv(name) == nullptr) { setenv(name, value, 0); }
  ~DefaultVariable() {
    if (set_here_) unsetenv(name_);
  }
  DefaultVariable(const DefaultVariable&) = delete;
  DefaultVariable& operator=(const DefaultVariable&) = delete;

 private:
  const char* const name_;
  const bool set_here_;
};

}  // namespace ramspan
