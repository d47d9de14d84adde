// advice: what a program knows of how it will use its data and the library cannot know yet.
//
//   table.advise(advice::keep);          // a managedPtr, managedVector, managedArray
//   index.advise(advice::random);
//   x.advise(advice::done);
//
// Advice changes speed and nothing else: wrong advice costs transfers. A program whose loops repeat needs none. Of data that is smaller than a
// page, advice is for all objects that share its chunk. The statistics count it (`advice` in docs/configuration.md).
// Thread-safety: any thread, as reading the object that it is for. Does not wait for data.
#pragma once

namespace ramspan {

enum class advice {
  // How the data is used from now on: one of keep and once, and one of sequential and random; `normal` takes all of them back.
  normal,
  keep,        // leaves only when nothing else can: a small hot table beside much that passes by
  once,        // leaves first, as soon as the program has gone on to other chunks: data that is streamed through
  sequential,  // the next chunks are fetched from the first step on, and not after some steps that show the order
  random,      // nothing is fetched because of its neighbour
  // What is to be done now.
  will_need,   // is fetched in the background, from the beginning, up to half of the memory limit
  done,        // leaves first. Nothing is lost: it comes back if it is used all the same
};
inline constexpr int kAdviceKinds = static_cast<int>(advice::done) + 1;

}  // namespace ramspan
