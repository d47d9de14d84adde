#include "client/front/throw_status.h"

#include <new>
#include <string>

#include "common/engine_call.h"
#include "common/raise.h"
#include "ramspan/errors.h"

namespace ramspan {
namespace {

// Of each class of errors one with a remedy that needs no details, made while there is heap: a copy of it allocates nothing. It is
// thrown where the heap has no more for the words of the moment.
struct Spares {
  const OutOfMemory no_heap{OutOfHeapText()};
  const OutOfSwap full{"memory and swap are full: free some objects, or give more swap or memory (RAMSPAN_SWAP_MEMORY, RAMSPAN_MEMORY)"};
  const DataLost lost{"the data of an object is lost: restart from a checkpoint, and see the log for what happened to it"};
  const SwapUnavailable unavailable{"an object could not be read back from swap; it is still there: pull it again, and see the log"};
  const ConfigError config{"a wrong setting, or a wrong order of calls; there is no memory to say which (std::bad_alloc): allow this process "
                           "more (ulimit -v, the job's memory) to see it"};
  const Error other{"a call has failed; there is no memory to say why (std::bad_alloc): allow this process more (ulimit -v, the job's "
                    "memory) to see it"};
};

const Spares& TheSpares() {
  static const auto* spares = new Spares;  // destructors of the program's static objects may come here after this library's
  return *spares;
}
// Now, and not when the heap has gone.
[[maybe_unused]] const Spares& made_early = TheSpares();

template <class E>
[[noreturn]] void Throw(const char* words, const E& spare) {
  try {
    Raise(E(words));
  } catch (const std::bad_alloc&) {
    Raise(E(spare));
  }
}

}  // namespace

void ThrowStatus(const Status& status) {
  EngineCall::EndsByException();
  const Spares& spares = TheSpares();
  switch (status.code()) {
    case StatusCode::kFailedPrecondition: Throw(status.c_str(), spares.no_heap);
    case StatusCode::kResourceExhausted: Throw(status.c_str(), spares.full);
    case StatusCode::kDataLoss: Throw(status.c_str(), spares.lost);
    case StatusCode::kUnavailable: Throw(status.c_str(), spares.unavailable);
    case StatusCode::kInvalidArgument: Throw(status.c_str(), spares.config);
    default: Throw(status.c_str(), spares.other);
  }
}

void ThrowNoHeap() {
  EngineCall::EndsByException();
  Raise(OutOfMemory(TheSpares().no_heap));
}

void ThrowWithinProgramCode(const char* call) {
  const bool policy = ProgramCode::running() == ProgramCode::Of::kPolicy;
  const auto words = [&] {
    return Aborted(std::string(call) + " within a call of " + (policy ? "an EvictionPolicy" : "a SwapStore") +
                   ": Ramspan waits for that call to return, so this would wait for itself. Only " +
                   (policy ? "the functions of Objects, GetStatistics and MemoryLimit" : "what <ramspan/extend.h> names at SwapStore") +
                   " may be used there; let another thread do it, or do it after the call");
  };
  ThrowStatus(WithinHeap(words, Status(StatusCode::kAborted, StaticText("a call within one of a SwapStore or an EvictionPolicy would wait for itself; let another thread do it"))));
}

}  // namespace ramspan
