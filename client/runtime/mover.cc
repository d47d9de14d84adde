#include "client/runtime/mover.h"

#include <string>
#include <system_error>

#include "client/engine/engine.h"
#include "client/runtime/signals.h"
#include "common/own_thread.h"
#include "common/topology.h"

namespace ramspan {

Status Mover::Start(Engine* engine) {
  engine_ = engine;
  try {
    thread_ = StartOwnThread([this] { Run(); });
  } catch (const std::system_error& e) {
    return InvalidArgument(std::string("no thread can be started for moving data: ") + e.what() + "; see `ulimit -u`");
  }
  return Status();
}

void Mover::Run() {
  BindThreadToSpareCore(UsableCores());
  while (!stopping()) {
    if (!engine_->MoverStep()) engine_->MoverWait(std::chrono::milliseconds(20));
    GiveSignalReports();
  }
}

void Mover::Stop() {
  stopping_ = true;
  engine_->WakeMover();
  thread_.join();
}

}  // namespace ramspan
