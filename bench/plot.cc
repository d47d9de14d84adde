#include "bench/plot.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "bench/process.h"

namespace ramspan::bench {
namespace {

std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

// One block a panel; a first column of x or of the categories' names, then a column a curve.
void WriteData(std::ostream& out, const Figure& figure) {
  out.precision(9);
  for (const Panel& panel : figure.panels) {
    const bool bars = !panel.categories.empty();
    out << "# " << panel.title << "\n# " << (bars ? "what" : panel.x_label);
    for (const Curve& curve : panel.curves) out << "\t" << curve.name;
    out << "\n";
    for (size_t i = 0; i < (bars ? panel.categories.size() : panel.x.size()); ++i) {
      if (bars) out << '"' << panel.categories[i] << '"';
      if (!bars) out << panel.x[i];
      for (const Curve& curve : panel.curves) {
        out << "\t";
        std::isnan(curve.y.at(i)) ? out << "?" : out << curve.y[i];
      }
      out << "\n";
    }
    out << "\n\n";
  }
}

void WritePanel(std::ostream& out, const Panel& panel, size_t index, const std::string& data) {
  const bool bars = !panel.categories.empty();
  out << "unset logscale\nunset arrow\nunset label\nset autoscale\nset key outside bottom center horizontal maxrows 1\n";
  out << "set title " << Quoted(panel.title) << "\nset xlabel " << Quoted(panel.x_label) << " offset 0,0.4\nset ylabel "
      << Quoted(panel.y_label) << "\n";
  if (panel.log_x) out << "set logscale x 2\n";
  if (panel.log_y) out << "set logscale y\n";
  if (bars) out << "set style data histograms\nset style fill solid 0.7\nset yrange [0:*]\n";
  out << panel.more << "plot ";
  for (size_t c = 0; c < panel.curves.size(); ++c) {
    out << (c == 0 ? "" : ", \\\n     ") << Quoted(data) << " index " << index << " using ";
    if (bars) out << c + 2 << ":xtic(1)";
    const bool crowded = panel.x.size() > 40;
    if (!bars) out << "1:" << c + 2 << (crowded ? " with lines" : " with linespoints pointsize 0.6") << " linewidth 2";
    out << " title " << Quoted(panel.curves[c].name);
  }
  out << "\n";
}

void WriteScript(std::ostream& out, const Figure& figure) {
  out << "# gnuplot " << figure.name << ".gp\n"
      << "set terminal svg noenhanced size " << 540 * figure.panels.size() << ",440 font 'sans,13' background 'white'\n"
      << "set output " << Quoted(figure.name + ".svg") << "\n"
      << "set datafile missing '?'\nset grid\n"
      << "set multiplot layout 1," << figure.panels.size() << " title " << Quoted(figure.title) << "\n";
  for (size_t i = 0; i < figure.panels.size(); ++i) WritePanel(out, figure.panels[i], i, figure.name + ".dat");
  out << "unset multiplot\n";
}

}  // namespace

void Draw(const std::string& directory, const Figure& figure) {
  if (directory.empty()) return;
  std::filesystem::create_directories(directory);
  const std::string base = directory + "/" + figure.name;
  std::ofstream data(base + ".dat"), script(base + ".gp");
  WriteData(data, figure);
  WriteScript(script, figure);
  data.close();
  script.close();
  if (!data || !script) throw std::runtime_error("cannot write " + base + ".dat and .gp");
  const std::optional<std::string> gnuplot = FindInPath("gnuplot");
  if (!gnuplot) {
    std::fprintf(stderr,
                 "%s.svg not drawn: gnuplot is not installed (apt-get install gnuplot-nox). The data is in %s.dat; "
                 "`cd %s && gnuplot %s.gp` draws it, here or elsewhere.\n",
                 base.c_str(), base.c_str(), directory.c_str(), figure.name.c_str());
  } else if (RunToEnd({*gnuplot, figure.name + ".gp"}, directory) != 0) {
    std::fprintf(stderr, "%s.svg not drawn: gnuplot failed, see above\n", base.c_str());
  }
}

}  // namespace ramspan::bench
