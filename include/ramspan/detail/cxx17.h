// Included by the headers that all others come to, before anything that is not C++14: the first error names the remedy.
#pragma once

#if __cplusplus < 201703L
#error "Ramspan needs C++17 (-std=c++17) or later"
#include "ramspan/needs -std=c++17 or later"  // is not there: the compiler ends here, before a hundred errors that say nothing
#endif

// Behind a method whose result is good for no longer than its object. clang then warns where it is kept longer than a temporary lives.
#if defined(__clang__)
#define RAMSPAN_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define RAMSPAN_LIFETIMEBOUND
#endif
