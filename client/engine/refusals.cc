// Engine: what is said where there is no memory for a request, and with which remedy.
#include <algorithm>
#include <string>
#include <utility>

#include "client/engine/engine.h"
#include "common/units.h"

namespace ramspan {

Status Engine::TooLarge(uint64_t bytes) const {
  return WithinHeap([&] { return FailedPrecondition("an object of " + FormatBytes(bytes) + " does not fit the memory limit of " +
                            FormatBytes(budget_.limit()) +
                            " (part of which holds descriptors); raise the limit (RAMSPAN_MEMORY, ramspan run --memory) "
                            "or split the object into smaller managedPtrs"); }, OutOfHeap());
}

namespace {

std::string WhoPins(const PinScanner::Pins& pins, uint64_t limit) {
  std::string who = pins.counted == 0 ? "adhereTos" : pins.adhered == 0 ? "views" : "views and adhereTos", how_many;
  if (pins.adhered > 0) how_many = std::to_string(pins.adhered) + " of adhereTos or spans, in " + std::to_string(pins.threads) + (pins.threads == 1 ? " thread" : " threads");
  if (pins.counted > 0) how_many += (how_many.empty() ? "" : "; ") + std::to_string(pins.counted) + (pins.counted == 1 ? " other" : " others") + ", of views, bundles or further adhereTos";
  return std::move(who) + " pin all of the memory limit of " + FormatBytes(limit) + (how_many.empty() ? "" : " (pins: " + how_many + ")");
}

}  // namespace

// As FullOfPinsStatus.
Status Engine::TooMuchAtOnceStatus(uint64_t bytes) const RS_NO_THREAD_SAFETY_ANALYSIS {
  pin_refusals_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t most = budget_.frames_limit();
  return WithinHeap([&] { return FailedPrecondition("no memory for " + FormatBytes(bytes) + " at once: the memory limit of " + FormatBytes(budget_.limit()) + " has room for " + FormatBytes(most) +
                            " beside descriptors and tables. Use less at once (a shorter span, fewer objects in one adhereAll, smaller chunks or parts of a loop), or raise the limit (RAMSPAN_MEMORY, ramspan run --memory)"); }, OutOfHeap());
}

// Without the mutex: the range of addresses is constant.
Status Engine::FullOfPinsStatus(uint64_t bytes) const RS_NO_THREAD_SAFETY_ANALYSIS {
  pin_refusals_.fetch_add(1, std::memory_order_relaxed);
  // Which of both it is, who does not hold the mutex cannot know, and a moment later it may be the other one.
  const bool few = arena_.has_few_addresses();
  const uint64_t addresses = arena_.addresses(), tables = budget_.limit() - std::min(budget_.limit(), budget_.frames_limit());
  const bool much = tables > budget_.limit() / 4;
  const PinScanner::Pins pins = pins_->CountPins();
  return WithinHeap([&] { return FailedPrecondition("no memory for " + FormatBytes(bytes) + ": " + WhoPins(pins, budget_.limit()) +
                            (much ? ", of which descriptors of objects and tables take " + FormatBytes(tables) + " (fewer and larger objects need less)," : "") +
                            (few ? ", or all places of that size in the " + FormatBytes(addresses) + " of addresses that were left for it (ulimit -v)," : "") +
                            " and no thread can go on to release one. Hold fewer adhereTos or views at once (a smaller scope), "
                            "use smaller chunks, or raise " + (few ? "`ulimit -v`, and then also " : "") +
                            "the limit (RAMSPAN_MEMORY, ramspan run --memory); where several "
                            "threads each hold some, pull them together (adhereAll, LISTOFINGREDIENTS)"); }, OutOfHeap());
}

}  // namespace ramspan
