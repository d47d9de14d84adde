// For tests of what Ramspan keeps of small objects that are gone.
#pragma once

#include <cstddef>
#include <thread>

#include "ramspan/managed_ptr.h"

namespace ramspan {

// A bundle of each of many sizes, for each of Ramspan's shards, which its last object has left.
inline void LeaveEmptyBundles() {
  for (int shard = 0; shard < 20; ++shard) {
    std::thread([] {
      for (size_t bytes = 8; bytes < 4096; bytes += 1 + bytes / 7) {
        managedPtr<char> object(bytes);
        adhereTo<char> glue(object);
        static_cast<char*>(glue)[0] = 1;
      }
    }).join();
  }
}

}  // namespace ramspan
