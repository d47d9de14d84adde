#include "client/transport/wait_judge.h"

#include <algorithm>

namespace ramspan {
namespace {

constexpr uint64_t kSlowestWireBytesPerMs = 10'000;

std::chrono::milliseconds TimeFor(uint64_t bytes) {
  return std::chrono::milliseconds(bytes / kSlowestWireBytesPerMs);
}

}  // namespace

void WaitJudge::Observe(std::span<const Look> looks, std::chrono::milliseconds since_last) {
  servers_.resize(std::max(servers_.size(), looks.size()));
  size_t by_right = 0;
  for (size_t i = 0; i < looks.size(); ++i) {
    Server& server = servers_[i];
    const Look& look = looks[i];
    server.stuck = look.entered != look.left && look.entered == server.last.entered && look.left == server.last.left;
    server.last = look;
    if (!server.stuck) {
      server.waited = std::chrono::milliseconds(0);
      server.warned = false;
    }
    server.by_right = server.stuck && server.waited < TimeFor(look.bytes);
    by_right += server.by_right ? 1 : 0;
  }
  for (size_t i = 0; i < looks.size(); ++i) {
    Server& server = servers_[i];
    server.verdict = Verdict::kFine;
    if (!server.stuck) continue;
    if (server.by_right || by_right == 0) server.waited += since_last;
    const std::chrono::milliseconds wire = TimeFor(looks[i].bytes);
    if (server.waited > give_up_after_ + wire) {
      server.verdict = Verdict::kGiveUp;
    } else if (server.waited > warn_after_ + wire && !server.warned) {
      server.warned = true;
      server.verdict = Verdict::kWarn;
    }
  }
}

}  // namespace ramspan
