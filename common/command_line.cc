#include "common/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>

#include "common/config_values.h"

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
    const po::parsed_options parsed = po::command_line_parser(arguments).options(all).positional(positions).style(kExactNames).run();
    for (const po::option& one : parsed.options) {
      const bool is_empty = one.position_key < 0 && std::any_of(one.value.begin(), one.value.end(), [](const std::string& value) { return value.empty(); });
      if (is_empty) return InvalidArgument("--" + one.string_key + " says nothing: is a variable of the shell not set? (see " + command + " --help)");
    }
    po::store(parsed, values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& one : known.options()) names.push_back("--" + one->long_name());
    const std::string meant = MeantName(error.get_option_name(), names, "--");
    return InvalidArgument(std::string(error.what()) + (meant.empty() ? "" : "; did you mean " + meant + "?") + " (see " + command + " --help)");
  } catch (const po::error& error) {
    return InvalidArgument(std::string(error.what()) + " (see " + command + " --help)");
  }
  return {};
}

}  // namespace ramspan
