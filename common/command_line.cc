#include "common/command_line.h"

#include <boost/program_options.hpp>

namespace ramspan {

namespace po = boost::program_options;

Status ParseCommandLine(const std::string& command, const std::vector<std::string>& arguments, const po::options_description& known,
                        std::vector<std::string>* words) {
  constexpr int kExactNames = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  try {
    po::options_description all;
    all.add(known).add_options()("word", po::value(words));
    po::positional_options_description positions;
    positions.add("word", -1);
    po::variables_map values;
    po::store(po::command_line_parser(arguments).options(all).positional(positions).style(kExactNames).run(), values);
    po::notify(values);
  } catch (const po::error& error) {
    return InvalidArgument(std::string(error.what()) + " (see " + command + " --help)");
  }
  return {};
}

}  // namespace ramspan
