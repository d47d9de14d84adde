// Session: what the front needs of a running Ramspan. The composition root (client/runtime) opens the one session of a
// process, so that the front knows the engine and its own bundles and nothing that is above them.
// Thread-safety: any thread. Ownership: the composition root owns what is pointed to; it is never destroyed, because
// managedPtrs of static storage outlive main().
#pragma once

#include <atomic>

#include "common/process_mark.h"

namespace ramspan {

class Bundles;
class Engine;

struct Session {
  Engine* engine = nullptr;
  Bundles* bundles = nullptr;  // null: each object is a chunk of its own
  bool debug = false;          // the key debug

  // The session of this process, which the first call starts. That call may block: it may have to meet the memory
  // servers, which is collective. Throws ConfigError when the configuration cannot work, then again at each call; Error
  // in a forked child.
  static Session& Get() {
    Session* session = open_.load(std::memory_order_acquire);  // pairs with Open: the engine is complete
    return __builtin_expect(session != nullptr && !ProcessMark::IsOfParent(), 1) ? *session : Start();
  }
  // Null before the first use, and in a forked child, which must not touch what belongs to its parent.
  static Session* IfStarted() { return ProcessMark::IsOfParent() ? nullptr : open_.load(std::memory_order_acquire); }

  // Whether this is a child that was forked from a process with a session and has not called exec, or was made by _Fork or clone. Other threads of the
  // parent may have held any mutex at the fork, so none of the library's may be taken.
  static bool InForkedChild() { return forked_.load(std::memory_order_relaxed) || ProcessMark::IsOfParent(); }

  // Of these the one whose fork the library has heard of, and prepared it.
  static bool IsToldOfFork() { return forked_.load(std::memory_order_relaxed); }

  // What CallBeforeEnd (include/ramspan/detail/object.h) was given; called by End.
  static inline constinit std::atomic<void (*)()> before_end{nullptr};
  // The program's exit has begun. Other threads may live on, but not in order to release what they pin: what needs that
  // memory from now on is given up. May be called twice.
  static void End();

  // For the composition root. Release: publishes all that the session leads to.
  static void Open(Session* session) { open_.store(session, std::memory_order_release); }
  static void CloseInForkedChild() {
    forked_.store(true, std::memory_order_relaxed);  // the child has one thread
    open_.store(nullptr, std::memory_order_relaxed);
  }

 private:
  static Session& Start();  // defined by the composition root, which alone knows how
  static inline constinit std::atomic<Session*> open_{nullptr};
  static inline constinit std::atomic<bool> forked_{false};
};

}  // namespace ramspan
