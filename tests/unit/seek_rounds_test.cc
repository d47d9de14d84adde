// Who is tried when, by a clock that the test moves: a place that is off takes 2 s to say nothing, one that refuses takes no time.
#include "client/transport/seek_rounds.h"

#include <gtest/gtest.h>

#include <vector>

namespace ramspan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Seeker {
 public:
  enum class Place { kOff, kRefuses, kThere };

  explicit Seeker(std::vector<Place> places) : places_(std::move(places)), turns_(places_.size()), met_(places_.size()), tries_(places_.size()) {}

  void Add(Place place) {
    places_.push_back(place);
    turns_.emplace_back();
    met_.push_back(false);
    tries_.push_back(0);
  }
  void Become(size_t i, Place place) { places_[i] = place; }
  // As the transport does: a round, and half a second until the next one.
  void GoOnFor(milliseconds time) {
    for (const auto end = now_ + time; now_ < end; now_ += milliseconds(500)) Go();
  }
  // -1: not in that time.
  double SecondsUntilMet(size_t i, milliseconds at_most) {
    const auto begin = now_;
    for (; !met_[i] && now_ - begin < at_most; now_ += milliseconds(500)) Go();
    return met_[i] ? std::chrono::duration<double>(now_ - begin).count() : -1;
  }
  int tries(size_t i) const { return tries_[i]; }
  double longest_round() const { return std::chrono::duration<double>(longest_round_).count(); }

 private:
  void Go() {
    const auto begin = now_;
    rounds_.Go({.places = places_.size(),
                .turn = [this](size_t i) -> SeekRounds::Turn& { return turns_[i]; },
                .is_missing = [this](size_t i) { return !met_[i]; },
                .attempt = [this](size_t i) { Attempt(i); },
                .is_over = [] { return false; },
                .now = [this] { return now_; }});
    longest_round_ = std::max(longest_round_, now_ - begin);
  }
  void Attempt(size_t i) {
    ++tries_[i];
    now_ += places_[i] == Place::kOff ? SeekRounds::kTryMax : milliseconds(1);
    met_[i] = places_[i] == Place::kThere;
  }

  SeekRounds rounds_;
  SeekRounds::Time now_{seconds(1'000'000)};
  SeekRounds::Time::duration longest_round_{};
  std::vector<Place> places_;
  std::vector<SeekRounds::Turn> turns_;
  std::vector<bool> met_;
  std::vector<int> tries_;
};

// Six hosts that were off took all the time there was: whoever was named behind them was never tried.
TEST(SeekRounds, HostsThatAreOffKeepNobodyBehindThemFromBeingMet) {
  for (const size_t off : {6u, 40u, 200u}) {
    Seeker seeker(std::vector<Seeker::Place>(off, Seeker::Place::kOff));
    seeker.GoOnFor(seconds(60));
    seeker.Add(Seeker::Place::kThere);
    const double met = seeker.SecondsUntilMet(off, std::chrono::hours(1));
    EXPECT_GE(met, 0) << off;
    EXPECT_LE(met, 3.0 * static_cast<double>(off) + 10) << "each is tried once before it, at most: 2 s, and pauses between rounds; " << off;
  }
}

TEST(SeekRounds, AHostThatIsOffIsTriedLessAndLessAndOneThatRefusesAsOftenAsEver) {
  Seeker seeker({Seeker::Place::kOff, Seeker::Place::kRefuses});
  seeker.GoOnFor(std::chrono::hours(1));
  EXPECT_LE(seeker.tries(0), 66) << "once a minute, but at the beginning";
  EXPECT_GE(seeker.tries(0), 50);
  EXPECT_GE(seeker.tries(1), 900) << "a server that is started there is met within 4 s";
  seeker.Become(1, Seeker::Place::kThere);
  const double met = seeker.SecondsUntilMet(1, std::chrono::hours(1));
  EXPECT_GE(met, 0);
  EXPECT_LE(met, 7);
}

TEST(SeekRounds, APauseThatHasGrownEndsWithTheFirstAnswer) {
  Seeker seeker({Seeker::Place::kOff});
  seeker.GoOnFor(std::chrono::hours(1));
  seeker.Become(0, Seeker::Place::kRefuses);
  seeker.GoOnFor(seconds(70));
  const int before = seeker.tries(0);
  seeker.GoOnFor(seconds(60));
  EXPECT_GE(seeker.tries(0) - before, 15);
}

// Folders are looked into between rounds.
TEST(SeekRounds, ARoundEndsInTimeHoweverManyAreOff) {
  Seeker seeker(std::vector<Seeker::Place>(100, Seeker::Place::kOff));
  seeker.GoOnFor(seconds(300));
  EXPECT_LE(seeker.longest_round(), 5) << "kRoundMax and one try";
}

}  // namespace
}  // namespace ramspan
