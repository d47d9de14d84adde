#include "common/thread_scratch.h"

#include <pthread.h>

namespace ramspan::detail {
namespace {

// A key's destructor runs again where another one's has used what this one had dropped.
void Drop(void* first) {
  for (auto* end = static_cast<AtThreadEnd*>(first); end != nullptr;) {
    AtThreadEnd* const next = std::exchange(end->next, nullptr);
    end->drop();
    end = next;
  }
}

struct Key {
  Key() : is_made(pthread_key_create(&key, Drop) == 0) {}
  pthread_key_t key = 0;
  const bool is_made;
};

}  // namespace

void CallAtThreadEnd(AtThreadEnd* end) noexcept {
  static const Key all;
  if (!all.is_made) return;
  end->next = static_cast<AtThreadEnd*>(pthread_getspecific(all.key));
  if (pthread_setspecific(all.key, end) != 0) end->next = nullptr;
}

}  // namespace ramspan::detail
