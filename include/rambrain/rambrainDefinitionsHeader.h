// The switches that Rambrain was built with. Here they are a program's: SWAPSTATS is always on; LOGSTATS and
// PARENTAL_CONTROL, defined when the program is compiled, switch logging and the tree of objects on from its start
// (managedMemory.h has the calls for later).
#pragma once

#ifndef SWAPSTATS
#define SWAPSTATS
#endif
