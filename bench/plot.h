// Figures: data files, a gnuplot script, and the SVG that gnuplot makes of them. Without gnuplot the first two stay, so
// that they can be drawn elsewhere. Thread-safety: none needed.
#pragma once

#include <string>
#include <vector>

namespace ramspan::bench {

struct Curve {
  std::string name;
  std::vector<double> y;  // as many as the panel's x; NaN: no point
};

struct Panel {
  std::string title, x_label, y_label;
  std::vector<double> x;
  std::vector<std::string> categories;  // instead of x: a group of bars each
  std::vector<Curve> curves;
  bool log_x = false, log_y = false;
  std::string more = {};  // gnuplot commands of this panel: ranges, lines, labels
};

struct Figure {
  std::string name;  // of its files
  std::string title;
  std::vector<Panel> panels;  // side by side
};

// DIR/name.dat, .gp and, where gnuplot is installed, .svg; says on stderr what is missing. No DIR: nothing.
void Draw(const std::string& directory, const Figure& figure);

}  // namespace ramspan::bench
