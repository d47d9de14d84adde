#!/usr/bin/env bash
# usage: build_folder.sh ROOT CMAKE. ./demo and ./check go on in a build folder that another `cmake` call has made, of another generator
# and without tests and examples; where they cannot, they say which folder to remove.
set -u -o pipefail
root=$1 cmake=$2
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
cp "$root/CMakePresets.json" .
cat >CMakeLists.txt <<'TXT'
cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES NONE)
option(RAMSPAN_BUILD_EXAMPLES "as Ramspan's" ON)
option(RAMSPAN_BUILD_TESTS "as Ramspan's" ON)
if(RAMSPAN_BUILD_EXAMPLES AND RAMSPAN_BUILD_TESTS)
  add_custom_target(sort_text ALL COMMAND ${CMAKE_COMMAND} -E touch built)
endif()
TXT
. "$root/cmake/setup.sh"
fail() { echo "$1"; cat log; exit 1; }

other="Ninja Multi-Config"
! command -v make >/dev/null || other="Unix Makefiles"
"$cmake" -S . -B build -G "$other" -DRAMSPAN_BUILD_EXAMPLES=OFF -DRAMSPAN_BUILD_TESTS=OFF >log 2>&1 || fail "the first build folder"
ramspan_build release sort_text >log 2>&1 || fail "beside a folder of $other"
[ -e build/built ] || fail "nothing was built"
rm -rf build
ramspan_build release sort_text >log 2>&1 || fail "without a folder"
grep -q '^CMAKE_GENERATOR:INTERNAL=Ninja$' build/CMakeCache.txt || fail "the preset's generator is not taken"

# A folder that was copied or moved with its sources is CMake's own error, which names no remedy.
sed -i 's/^CMAKE_CACHEFILE_DIR:.*/CMAKE_CACHEFILE_DIR:INTERNAL=\/elsewhere\/build/' build/CMakeCache.txt
! ramspan_build release sort_text >log 2>&1 || fail "a folder of another place is taken"
grep -q 'rm -r build' log || fail "the remedy is not named"
