// The adviser of `ramspan report`: what the statistics of a run say about how the program uses Ramspan, and what to change. Each advice names
// its evidence. A run that is as it should be gets none. Pure.
#pragma once

#include <string>
#include <vector>

#include "launch/process_statistics.h"

namespace ramspan {

struct Advice {
  enum class Kind {
    kPinsFillLimit,      // adhereTos hold all of the memory limit
    kLimitJustUnder,     // a little more memory would hold everything
    kForgottenConst,     // chunks leave as changed that have not changed
    kChunksTooLarge,     // use in no order moves whole chunks
    kChunksTooSmall,     // a sweep moves many small ones
    kReadAheadInVain,    // what is fetched ahead is not used
    kReadManyTimes,      // all of it came back again and again: maybe loops go across the chunks
    kElementByElement,   // loops by x[i], where views are faster
    kServersFull,        // files had to take what the servers had no room for
    kDescriptorsFillLimit,  // so many chunks that their descriptors are a good part of the limit
    kBesideLimit,        // an unmodified program has much memory that --pages leaves to malloc
  };
  Kind kind;
  std::string finding;   // one sentence
  std::string evidence;  // whole sentences, with the numbers
  std::string change;    // whole sentences, with the line of code or the option
};

// What to change after a job of these processes. An advice that holds for several of them is given once, with the numbers of the one where it
// weighs most. In the order of Kind: what is changed by an option, or hides what comes after it, first.
std::vector<Advice> Advise(const std::vector<ProcessStatistics>& job);

// The section "What to change" of the report, with a line instead where there is no advice. `of` names the run where there are several.
std::string AdviceText(const std::vector<ProcessStatistics>& job, const std::string& of);

}  // namespace ramspan
