// Rambrain's headers said `using namespace std;` to every program, and programs came to rely on it. Here the names that
// such programs mean are visible without `std::`, and only those: names that the standard got later (data, size, byte,
// span, ...) stay the program's own. -DRAMBRAIN_USING_NAMESPACE_STD makes all of std visible, -DRAMBRAIN_NO_STD_NAMES
// nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#ifndef RAMBRAIN_NO_STD_NAMES
namespace rambrain::rambrain_detail::std_names {
namespace chrono = std::chrono;
using std::cerr;
using std::cin;
using std::clog;
using std::cout;
using std::endl;
using std::exception;
using std::fixed;
using std::fstream;
using std::getline;
using std::ifstream;
using std::ios;
using std::istream;
using std::istringstream;
using std::list;
using std::make_pair;
using std::map;
using std::max;
using std::min;
using std::multimap;
using std::ofstream;
using std::ostream;
using std::ostringstream;
using std::pair;
using std::queue;
using std::runtime_error;
using std::set;
using std::setprecision;
using std::setw;
using std::shared_ptr;
using std::sort;
using std::string;
using std::stringstream;
using std::swap;
using std::to_string;
using std::unique_ptr;
using std::unordered_map;
using std::vector;
}  // namespace rambrain::rambrain_detail::std_names
using namespace rambrain::rambrain_detail::std_names;  // NOLINT: what Rambrain's programs expect
#endif

#ifdef RAMBRAIN_USING_NAMESPACE_STD
using namespace std;  // NOLINT: on request
#endif
