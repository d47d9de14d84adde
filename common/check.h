// RS_CHECK: an always-on assertion for bugs (not for the user's input, which gets a Status). Prints file, line, the
// condition and a printf-style explanation (name the chunk, slot or rank), then aborts. RS_DCHECK: the same where
// NDEBUG is not defined, for costly conditions. Neither argument may have a side effect. Safe from any thread.
#pragma once

namespace ramspan::detail {
[[noreturn, gnu::format(printf, 4, 5)]] void CheckFailed(const char* file, int line, const char* condition,
                                                         const char* format, ...);
}  // namespace ramspan::detail

#define RS_CHECK(condition, ...) \
  (__builtin_expect(!!(condition), 1) ? (void)0 : ::ramspan::detail::CheckFailed(__FILE__, __LINE__, #condition, __VA_ARGS__))

#ifdef NDEBUG
#define RS_DCHECK(condition, ...) ((void)sizeof(!(condition)))
#else
#define RS_DCHECK(condition, ...) RS_CHECK(condition, __VA_ARGS__)
#endif
