#!/usr/bin/env bash
# usage: every_call.sh ROOT | --self-test. Each function of <ramspan/runtime.h> and <ramspan/extend.h> is called in tests/guest, which looks at
# what calls do to the program around them: who adds one adds it to tests/guest/every_call.h or extension_calls.h.
set -u -o pipefail
missing() {  # ROOT: names that are not called there
  local name found=0
  for name in $(sed -nE 's/^(RAMSPAN_API|__attribute__\(\(visibility\("default"\)\)\)) [^(]* \*?([A-Za-z]+)\(.*/\2/p' "$1"/include/ramspan/{runtime,extend}.h | sort -u); do
    found=$((found + 1))
    grep -qE "ramspan::$name\(" "$1"/tests/guest/*_calls.h "$1"/tests/guest/every_call.h || echo "$name is not called in tests/guest (every_call.h, extension_calls.h)"
  done
  [ $found -gt 0 ] || echo "no functions are found in $1/include/ramspan"
}
if [ "$1" = --self-test ]; then
  scratch=$(mktemp -d) || exit 1
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch"/include/ramspan "$scratch"/tests/guest
  echo 'RAMSPAN_API void Called(int how);' >"$scratch/include/ramspan/extend.h"
  echo '__attribute__((visibility("default"))) std::string Forgotten();' >"$scratch/include/ramspan/runtime.h"
  echo 'ramspan::Called(1);' | tee "$scratch/tests/guest/every_call.h" >"$scratch/tests/guest/extension_calls.h"
  [ "$(missing "$scratch")" = "Forgotten is not called in tests/guest (every_call.h, extension_calls.h)" ]
  exit
fi
told=$(missing "$1")
echo "$told"
[ -z "$told" ]
