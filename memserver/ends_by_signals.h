// EndsBySignals: SIGTERM, SIGINT and SIGHUP end a server in order, so that it takes back its socket's file and its file in the folder.
// One wish to end it often comes as several signals: a terminal that goes sends two, `timeout` too, and users press ^C twice. So what comes within
// kSecondWish of the first one says nothing new. A SIGTERM or SIGINT that comes later is from somebody who has waited: it ends the process at
// once, whatever that leaves. SIGHUP is never meant so, and whoever said nohup has had it ignored. SIGUSR1 and SIGUSR2 do nothing.
//
// The signals are blocked everywhere, and a thread of its own takes them: unlike a handler it can also end a process whose other threads wait
// within a file system that does not answer.
//
// Thread-safety: Begin by the process's first thread, before there are others, because these inherit its mask; the rest: any thread.
#pragma once

#include <signal.h>

#include <chrono>

#include "common/mutex.h"
#include "common/status.h"

namespace ramspan {

class OfiEndpoint;

class EndsBySignals {
 public:
  // A clean-up takes milliseconds, and a second on a busy machine. Who presses ^C again means it after a second at the latest.
  static constexpr std::chrono::milliseconds kSecondWish{1000};

  // Of this process, from now until it is gone. kResourceExhausted: there is no thread.
  static Result<EndsBySignals*> Begin();

  // The endpoint that is to end, as long as this lives; at once if a signal has come before.
  class Of {
   public:
    Of(EndsBySignals& signals, OfiEndpoint& endpoint) : signals_(signals) { signals_.Tell(&endpoint); }
    ~Of() { signals_.Tell(nullptr); }
    Of(const Of&) = delete;
    Of& operator=(const Of&) = delete;

   private:
    EndsBySignals& signals_;
  };

 private:
  EndsBySignals();
  void Tell(OfiEndpoint* endpoint);
  void Watch();

  sigset_t signals_;  // constant after construction
  Mutex mutex_{LockRank::kTransport};
  bool asked_ RS_GUARDED_BY(mutex_) = false;
  OfiEndpoint* endpoint_ RS_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace ramspan
