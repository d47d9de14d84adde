#include <algorithm>
#include <string>

#include "client/front/throw_status.h"
#include "common/status.h"
#include "ramspan/detail/lockstep_piece.h"

namespace ramspan::detail {

void CheckLockstep(const steps& all, const LockstepVector* vectors, size_t count) {
  if (all.reach > 0 && std::all_of(vectors, vectors + count, [](const LockstepVector& one) { return one.write; })) {
    ThrowStatus(WithinHeap(
        [&] {
          return Aborted("a loop in lockstep is to read up to " + std::to_string(all.reach) + " elements around its own (its reach), which const vectors are for, and it has "
                         "none: give those that are read around as std::as_const(v)");
        },
        OutOfHeap()));
  }
  size_t smallest = SIZE_MAX;
  for (size_t i = 0; i < count; ++i) smallest = std::min(smallest, vectors[i].block_elements);
  for (size_t i = 0; i < count; ++i) {
    const LockstepVector& one = vectors[i];
    if (all.first < all.end && all.end > one.size) {
      ThrowStatus(WithinHeap(
          [&] {
            return Aborted("a loop in lockstep over [" + std::to_string(all.first) + ", " + std::to_string(all.end) + ") is to use vector " + std::to_string(i + 1) +
                           " of those it is given, which has " + std::to_string(one.size) + " elements: it may end at the smallest size (size() - 1 of an empty vector is a "
                           "huge number)");
          },
          OutOfHeap()));
    }
    if (one.block_elements % smallest != 0) {
      ThrowStatus(WithinHeap(
          [&] {
            return Aborted("vectors in lockstep have blocks of " + std::to_string(smallest) + " and of " + std::to_string(one.block_elements) +
                           " elements, which is no multiple: a managedVector's blocks are powers of two of elements; give a managedArray such ChunkBytes");
          },
          OutOfHeap()));
    }
    // Near the end of a block it would be read from a copy, which has nothing of what the part writes.
    const auto is_same = [&](const LockstepVector& other) { return other.which == one.which && other.write; };
    if (all.reach > 0 && !one.write && std::any_of(vectors, vectors + count, is_same)) {
      ThrowStatus({StatusCode::kAborted, StaticText("a loop in lockstep is to write a vector, and to read it around what it writes: take a view of it instead")});
    }
  }
}

void ThrowOutsidePart(size_t index, size_t first, size_t end) {
  ThrowStatus(WithinHeap(
      [&] {
        return Aborted("element " + std::to_string(index) + " is not in this part of the vector, which has [" + std::to_string(first) + ", " +
                       std::to_string(end) + "): a loop in lockstep reads const vectors within its reach, and uses others at its own indices only");
      },
      OutOfHeap()));
}

}  // namespace ramspan::detail
