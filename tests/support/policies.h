// What an engine in a test takes for make_policy: a policy by its name, without naming its class.
#pragma once

#include <memory>
#include <string>

#include "client/policy/policy_factory.h"

namespace ramspan {

inline auto PolicyNamed(const std::string& name) {
  return [name](const ChunkTable* chunks) { return MakePolicy(name, chunks).value(); };
}
inline auto DefaultPolicy() { return PolicyNamed(PolicyNames()[0]); }

}  // namespace ramspan
