// classes: objects whose parts leave memory on their own. A Galaxy holds stars, each star its spectrum; all of them are
// managedPtrs in managedPtrs, made by constructors and destroyed by destructors also when they are swapped out.
#include <ramspan/managed_ptr.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

using ramspan::adhereTo;
using ramspan::managedPtr;

namespace {

std::atomic<long> living{0};

class Body {  // a base class with data; no virtual functions needed to be swapped, and they work, too
 public:
  explicit Body(double mass) : mass_(mass) { ++living; }
  Body(const Body&) = delete;
  virtual ~Body() { --living; }
  virtual double Luminosity() const { return 0; }
  double mass() const { return mass_; }

 private:
  double mass_;
};

class Star : public Body {
 public:
  Star(double mass, size_t lines) : Body(mass), spectrum_(lines, mass / static_cast<double>(lines)) {}
  double Luminosity() const override {
    ADHERETOLOCCONST(double, spectrum_, line);
    double sum = 0;
    for (size_t i = 0; i < spectrum_.size(); ++i) sum += line[i];
    return sum;
  }
  void Redden(double factor) {
    ADHERETOLOC(double, spectrum_, line);
    for (size_t i = 0; i < spectrum_.size(); ++i) line[i] *= factor;
  }

 private:
  managedPtr<double> spectrum_;
};

}  // namespace

// Neither holds a pointer into itself, so their bytes may be moved to another address.
template <>
struct ramspan::is_relocatable<Star> : std::true_type {};

namespace {
class Galaxy {
 public:
  Galaxy(size_t stars, size_t lines) : stars_(stars, 2.0, lines) {}  // an array of objects with constructor arguments
  double Luminosity() const {
    const adhereTo<Star> glue(stars_);
    const Star* star = glue;
    double sum = 0;
    for (size_t i = 0; i < stars_.size(); ++i) sum += star[i].Luminosity();
    return sum;
  }
  void Redden(double factor) {
    adhereTo<Star> glue(stars_);
    Star* star = glue;
    for (size_t i = 0; i < stars_.size(); ++i) star[i].Redden(factor);
  }

 private:
  managedPtr<Star> stars_;
};
}  // namespace
template <>
struct ramspan::is_relocatable<Galaxy> : std::true_type {};

int main(int argc, char** argv) try {
  const size_t galaxies = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 32;
  constexpr size_t kStars = 50, kLines = 2048;
  if (galaxies == 0) {
    std::fprintf(stderr, "usage: classes [GALAXIES]\n");
    return 2;
  }
  bool right = true;
  {
    managedPtr<Galaxy> universe(galaxies, kStars, kLines);
    right &= living == static_cast<long>(galaxies * kStars);
    adhereTo<Galaxy> glue(universe);
    Galaxy* galaxy = glue;
    for (size_t i = 0; i < galaxies; ++i) galaxy[i].Redden(0.5);
    double sum = 0;
    for (size_t i = 0; i < galaxies; ++i) sum += galaxy[i].Luminosity();
    right &= sum == static_cast<double>(galaxies * kStars);
    std::printf("%zu galaxies of %zu stars, %.1f MiB of spectra: luminosity %g\n", galaxies, kStars,
                static_cast<double>(galaxies * kStars * kLines * 8) / 1048576, sum);
  }
  right &= living == 0;  // every destructor ran once, most of them for stars that had to be fetched first
  std::printf("%ld objects left; %s\n", living.load(), right ? "right" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "classes: %s\n", e.what());
  return 1;
}
