#!/usr/bin/env bash
# usage: every_call.sh ROOT | --self-test. Each function of <ramspan/runtime.h> and <ramspan/extend.h> is called in tests/guest, which looks at
# what calls do to the program around them: who adds one adds it to tests/guest/every_call.h or extension_calls.h. The public methods of
# include/rambrain are called in tests/rambrain/guest_test.cc.
set -u -o pipefail
missing() {  # ROOT: names that are not called there
  local name found=0
  for name in $(sed -nE 's/^(RAMSPAN_API|__attribute__\(\(visibility\("default"\)\)\)) [^(]* \*?([A-Za-z]+)\(.*/\2/p' "$1"/include/ramspan/{runtime,extend}.h | sort -u); do
    found=$((found + 1))
    grep -qE "ramspan::$name\(" "$1"/tests/guest/*_calls.h "$1"/tests/guest/every_call.h || echo "$name is not called in tests/guest (every_call.h, extension_calls.h)"
  done
  # Rambrain's methods and functions begin with a small letter; exceptions are classes, whose constructors do, too.
  for name in $(awk '
    FNR == 1 { open = 0 }
    /^(class|struct) .*\{$/ { open = /^struct/ }
    /^ public:/ { open = 1 }
    /^ (private|protected):/ || /^}/ { open = 0 }
    open && match($0, /^  ((static|virtual|constexpr) )*[A-Za-z_][A-Za-z_0-9:<>,]*( const)?[ *&]+[a-z][A-Za-z0-9]*\(/) {
      name = substr($0, RSTART, RLENGTH - 1); sub(/.*[ *&]/, "", name)
      if (!/^  explicit /) print name
    }' "$1"/include/rambrain/*.h | sort -u); do
    found=$((found + 1))
    grep -qE "(->|\.|::)$name\(" "$1"/tests/rambrain/guest_test.cc || echo "rambrain: $name is not called in tests/rambrain/guest_test.cc"
  done
  [ $found -gt 0 ] || echo "no functions are found in $1/include/ramspan"
}
if [ "$1" = --self-test ]; then
  scratch=$(mktemp -d) || exit 1
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch"/include/{ramspan,rambrain} "$scratch"/tests/{guest,rambrain}
  echo 'RAMSPAN_API void Called(int how);' >"$scratch/include/ramspan/extend.h"
  echo '__attribute__((visibility("default"))) std::string Forgotten();' >"$scratch/include/ramspan/runtime.h"
  echo 'ramspan::Called(1);' | tee "$scratch/tests/guest/every_call.h" >"$scratch/tests/guest/extension_calls.h"
  printf 'class RAMSPAN_API Swap {\n public:\n  explicit called();\n  static bool called();\n  virtual size_t forgotten(int a) const;\n private:\n  int hidden();\n};\n' >"$scratch/include/rambrain/swap.h"
  echo 'swap.called();' >"$scratch/tests/rambrain/guest_test.cc"
  [ "$(missing "$scratch")" = $'Forgotten is not called in tests/guest (every_call.h, extension_calls.h)\nrambrain: forgotten is not called in tests/rambrain/guest_test.cc' ]
  exit
fi
told=$(missing "$1")
echo "$told"
[ -z "$told" ]
