#!/bin/sh
# listings.sh SOURCE_FOLDER LIBRARY_FOLDER LAUNCHER CXX: the C++ that README.md, docs/configuration.md and docs/porting.md print compiles as
# it is printed there. Whole programs are run, too: both of docs/porting.md must print the same, the second one also in little memory and in
# a job. A listing that this script does not know is an error, so that none is forgotten.
set -eu
source=$1 libraries=$2 launcher=$3 cxx=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work" HOME="$work"

# take FILE NAME COUNT: its listings as NAME-1.cc to NAME-COUNT.cc.
take() {
  awk -v name="$work/$2" '/^```/ { inside = /^```cpp/; if (inside) ++n; next } inside { print > (name "-" n ".cc") }' "$source/$1"
  found=$(find "$work" -name "$2-*.cc" | wc -l)
  [ "$found" -eq "$3" ] || { echo "$1 has $found listings, and this script knows $3: add the others"; exit 1; }
}
compile() { "$cxx" -std=c++17 -O1 -Wall -Wextra -Werror -fopenmp -I"$source/include" "$@"; }
program() { compile "$work/$1.cc" -o "$work/$1" -L"$libraries" -lramspan -Wl,-rpath,"$libraries"; }
# fragment NAME BEFORE BEHIND: the listing is a part of something; lines that begin with #include go to the front.
fragment() {
  { grep '^#include' "$work/$1.cc" || :; printf '%s\n' "$2"; grep -v '^#include' "$work/$1.cc"; printf '%s\n' "$3"; } > "$work/whole.cc"
  compile -Wno-unused -Wno-overloaded-virtual -fsyntax-only "$work/whole.cc"
}

take README.md readme 1
take docs/configuration.md configuration 1
take docs/porting.md porting 11
take docs/pages.md pages 1

program readme-1
RAMSPAN_MEMORY=2MiB "$work/readme-1"

fragment configuration-1 'void Program() {' '}'
objects='#include <ramspan/adhere_all.h>
#include <ramspan/managed_ptr.h>
#include <utility>
using namespace ramspan;
void Program(managedPtr<double>& a, managedPtr<double>& b) {'
fragment pages-1 '#include <vector>
void Program(size_t n) {' '}'
fragment porting-3 '#include <ramspan/managed_ptr.h>
using namespace ramspan;' ''
fragment porting-4 "$objects" '}'
fragment porting-5 "$objects" '}'
fragment porting-6 '' ''
fragment porting-7 '' ''
fragment porting-8 '' ''
fragment porting-9 '' ''
fragment porting-11 '#include <rambrain/rambrain.h>
using rambrain::managedMemory;' ''

# The stencil against the same by plain arrays, bit by bit.
cat >> "$work/porting-10.cc" <<'EOF'
#include <cstdio>
#include <vector>
int main() {
  const size_t n = 48;
  std::vector<double> plain(n * n * n), plain_next;
  Grid now = MakeGrid(n), next = MakeGrid(n);
  for (size_t i = 0; i < plain.size(); ++i) now[i] = plain[i] = static_cast<double>(i * 31 % 1000);
  for (int step = 0; step < 3; ++step) {
    Step(now, next, n);
    std::swap(now, next);
    plain_next = plain;
    for (size_t z = 1; z + 1 < n; ++z)
      for (size_t y = 1; y + 1 < n; ++y)
        for (size_t x = 1; x + 1 < n; ++x) {
          const size_t i = (z * n + y) * n + x;
          plain_next[i] = plain[i] + 0.1 * (plain[i - n * n] + plain[i + n * n] + plain[i - 1] + plain[i + 1] + plain[i - n] + plain[i + n] - 6 * plain[i]);
        }
    std::swap(plain, plain_next);
  }
  for (size_t i = 0; i < plain.size(); ++i)
    if (now[i] != plain[i]) return std::printf("wrong at %zu\n", i), 1;
}
EOF
program porting-10
RAMSPAN_MEMORY=1MiB "$work/porting-10"

program porting-1
program porting-2
"$work/porting-1" 600 > "$work/expected"
RAMSPAN_MEMORY=2MiB "$work/porting-2" 600 | cmp - "$work/expected"
"$launcher" run -n 1 -s 1 --memory 2MiB --server-memory 16MiB -- "$work/porting-2" 600 | cmp - "$work/expected"
