#!/bin/sh
# porting.sh SOURCE_FOLDER LIBRARY_FOLDER LAUNCHER CXX: compiles the two programs of docs/porting.md as they are printed
# there; both must print the same, the second one also in little memory and in a job.
set -eu
source=$1 libraries=$2 launcher=$3 cxx=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work" HOME="$work"

awk -v folder="$work" '/^```/ { inside = /^```cpp/; if (inside) ++n; next } inside { print > (folder "/" n ".cc") }' \
  "$source/docs/porting.md"
"$cxx" -std=c++17 -O2 -Wall -Wextra -Werror -fopenmp "$work/1.cc" -o "$work/before"
"$cxx" -std=c++17 -O2 -Wall -Wextra -Werror -fopenmp -I"$source/include" "$work/2.cc" -L"$libraries" -lramspan \
  -Wl,-rpath,"$libraries" -o "$work/after"

"$work/before" 600 > "$work/expected"
RAMSPAN_MEMORY=2MiB "$work/after" 600 | cmp - "$work/expected"
"$launcher" run -n 1 -s 1 --memory 2MiB --server-memory 16MiB -- "$work/after" 600 | cmp - "$work/expected"
