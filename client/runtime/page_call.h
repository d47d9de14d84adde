// What public calls on memory that is swapped by pages have in common.
#pragma once

#include <utility>

#include "client/pages/page_space.h"
#include "client/runtime/runtime.h"
#include "common/other_stack.h"
#include "common/public_call.h"

namespace ramspan {

inline PageSpace* PagesIfStarted() {
  Runtime* const runtime = Runtime::IfStarted();
  return runtime == nullptr ? nullptr : runtime->pages_if_started();
}

// A public call that may take the engine's mutex, or make blocks leave.
class PageCall {
 public:
  PageSpace* space() const { return space_; }
  // What `call`, which gets the space, returns. Not on a stack that may leave meanwhile: who faults on it with a lock waits for himself. So `call` captures by value. It does not throw.
  template <typename F>
  auto Run(F call) const {
    PageSpace* const space = space_;
    if (__builtin_expect(!space->Owns(__builtin_frame_address(0)), 1)) return call(*space);
    return OnOtherStack([call = std::move(call), space] { return call(*space); });
  }

 private:
  const PublicCall call_{PublicCall::Stack::kAny};
  PageSpace* const space_ = PagesIfStarted();
};

}  // namespace ramspan
