// SeekRounds: in which order, and how often, places are tried at which no memory server was found. A host that is off answers nobody, and
// who tries it waits in vain; a host whose server is not running refuses at once. Neither may keep those behind it from being met.
//
// Thread-safety: none. Ownership: nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>

namespace ramspan {

class SeekRounds {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // A place is tried for so long at most, and again after kEvery. Where somebody has waited for more than half of that in vain, the
  // next try comes after twice the pause, up to kEveryMax.
  static constexpr std::chrono::milliseconds kTryMax{2000}, kEvery{3000}, kEveryMax{60'000};
  // No try begins later in a round: then folders are looked into again, and the next round begins where this one has ended.
  static constexpr std::chrono::milliseconds kRoundMax{3000};

  // Of one place.
  struct Turn {
    bool was_tried = false;  // since the start
    std::chrono::milliseconds pause = kEvery;
    Time next_try{};
  };
  struct Round {
    size_t places = 0;
    std::function<Turn&(size_t place)> turn;
    std::function<bool(size_t place)> is_missing;
    std::function<void(size_t place)> attempt;  // blocks for kTryMax at most
    std::function<bool()> is_over;              // who is named has changed, or the program ends
    std::function<Time()> now;
  };

  void Go(const Round& round) {
    const Time begin = round.now();
    for (size_t looked = 0; looked < round.places; ++looked) {
      const Time before = round.now();
      if (round.is_over() || before - begin > kRoundMax) return;
      const size_t place = next_++ % round.places;
      Turn& turn = round.turn(place);
      if (!round.is_missing(place) || before < turn.next_try) continue;
      round.attempt(place);
      turn.was_tried = true;
      const Time after = round.now();
      turn.pause = after - before > kTryMax / 2 && round.is_missing(place) ? std::min(turn.pause * 2, kEveryMax) : kEvery;
      turn.next_try = after + turn.pause;
    }
  }

 private:
  size_t next_ = 0;  // whose turn it is
};

}  // namespace ramspan
