// Rambrain's small words: sizes and message macros.
#pragma once

#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <cstdint>
#include <string>

#include "rambrain/std_names.h"

namespace rambrain {

typedef uint64_t global_bytesize;

const global_bytesize kib = 1024;
const global_bytesize mib = kib * kib;
const global_bytesize gig = mib * kib;

typedef double myScalar;
inline double sqr(double x) { return x * x; }

}  // namespace rambrain

#define NANCHECK(x) \
  if ((x) != (x)) errmsg("NaN! occured")
#define NANBOOL(x) ((x) != (x))
#define VECTOR_FOREACH(vec, iter) for (int iter = 0; iter < static_cast<int>((vec).size()); ++iter)
#define DEPRECATED __attribute__((deprecated))

#define RAMBRAIN_MESSAGE_(kind, text) \
  { fprintf(stderr, kind ":\t%s\n\t(from %s, %s(...), line %d)\n", (text), __FILE__, __FUNCTION__, __LINE__); }
#define errmsg(message) RAMBRAIN_MESSAGE_("ERROR", message)
#define infomsg(message) RAMBRAIN_MESSAGE_("INFO", message)
#define warnmsg(message) RAMBRAIN_MESSAGE_("WARN", message)

#define RAMBRAIN_MESSAGEF_(kind, format, ...)                            \
  {                                                                      \
    char rambrain_text[1024];                                            \
    snprintf(rambrain_text, sizeof rambrain_text, format, __VA_ARGS__);  \
    RAMBRAIN_MESSAGE_(kind, rambrain_text)                               \
  }
#define errmsgf(format, ...) RAMBRAIN_MESSAGEF_("ERROR", format, __VA_ARGS__)
#define infomsgf(format, ...) RAMBRAIN_MESSAGEF_("INFO", format, __VA_ARGS__)
#define warnmsgf(format, ...) RAMBRAIN_MESSAGEF_("WARN", format, __VA_ARGS__)
