// The command lines of ramspan's commands: options have their exact names, and an error says where the help is.
//
// Thread-safety: any thread.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <string>
#include <vector>

#include "common/status.h"

namespace ramspan {

// Sets what `known` is bound to. `words` gets what is no option. An option with an empty value is refused: mostly a variable of a script is not set, and
// without the option the command would mean something else, everybody instead of one. kInvalidArgument: `command` ("ramspan ctl") explains its options by --help.
Status ParseCommandLine(const std::string& command, const std::vector<std::string>& arguments,
                        const boost::program_options::options_description& known, std::vector<std::string>* words);

}  // namespace ramspan
