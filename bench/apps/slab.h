// A field in bands of equal size, one block each, that MPI ranks share: a rank has the bands [first, end) as its blocks 1, 2, ..., and
// room for a copy of its neighbours' nearest bands around them. One rank alone has them, too, and never looks at them.
#pragma once

#include <cstddef>
#include <utility>

#include "bench/apps/application.h"

namespace ramspan::bench {

struct Slab {
  Slab(size_t bands, const AppOptions& o)
      : first(bands * static_cast<size_t>(o.rank) / static_cast<size_t>(o.ranks)), end(bands * static_cast<size_t>(o.rank + 1) / static_cast<size_t>(o.ranks)),
        all(bands), rank(o.rank), ranks(o.ranks) {}

  size_t count() const { return end - first; }
  bool has_below(size_t block) const { return first + block > 1; }         // another band under this rank's i-th block
  bool has_above(size_t block) const { return first + block - 1 + 1 < all; }

  size_t first, end, all;
  int rank, ranks;
};

// MPI_Sendrecv with a neighbour below or above: sends one block, receives another one, both of so many bytes.
void ExchangeBlock(const Slab& slab, bool down, const void* send, void* receive, size_t bytes);

// Copies of the neighbours' nearest bands into the first and the last block.
template <typename Blocks>
void ExchangeGhosts(const Slab& slab, Blocks* field) {
  if (slab.ranks == 1) return;
  const size_t last = slab.count();
  const auto exchange = [&](bool down, size_t send, size_t receive) {
    const auto out = std::as_const(*field).read(send);
    const auto in = field->fresh(receive);
    ExchangeBlock(slab, down, out.data(), in.data(), field->length(send) * sizeof(*out.data()));
  };
  exchange(true, 1, last + 1);   // what is sent down comes from above
  exchange(false, last, 0);
}

// The contents of a whole field, copies of neighbours' included, are of no use any more.
template <typename Blocks>
void DropAll(Blocks* field) {
  for (size_t i = 0; i < field->count(); ++i) field->drop(i);
}

}  // namespace ramspan::bench
