// Clang's thread-safety attributes under our prefix; empty for other compilers. CI builds with clang and
// -Werror=thread-safety, so "call with the mutex held" is checked, not only said.
#pragma once

#if defined(__clang__)
#define RS_TSA(x) __attribute__((x))
#else
#define RS_TSA(x)
#endif

#define RS_CAPABILITY(x) RS_TSA(capability(x))
#define RS_SCOPED_CAPABILITY RS_TSA(scoped_lockable)
#define RS_GUARDED_BY(x) RS_TSA(guarded_by(x))
#define RS_PT_GUARDED_BY(x) RS_TSA(pt_guarded_by(x))
#define RS_REQUIRES(...) RS_TSA(requires_capability(__VA_ARGS__))
#define RS_ACQUIRE(...) RS_TSA(acquire_capability(__VA_ARGS__))
#define RS_RELEASE(...) RS_TSA(release_capability(__VA_ARGS__))
#define RS_TRY_ACQUIRE(...) RS_TSA(try_acquire_capability(__VA_ARGS__))
#define RS_EXCLUDES(...) RS_TSA(locks_excluded(__VA_ARGS__))
#define RS_NO_THREAD_SAFETY_ANALYSIS RS_TSA(no_thread_safety_analysis)
