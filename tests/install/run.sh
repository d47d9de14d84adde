#!/usr/bin/env bash
# usage: run.sh BUILD_FOLDER CXX CMAKE. Installs into a scratch folder, moves it, and compiles and runs users of it.
set -euo pipefail
build=$1 cxx=$2 cmake=$3
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch

"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
mv "$scratch/first" "$scratch/prefix"  # an installation can be moved
prefix=$scratch/prefix
export LD_LIBRARY_PATH=$(dirname "$(find "$prefix" -name 'libramspan.so')")
export PKG_CONFIG_PATH=$LD_LIBRARY_PATH/pkgconfig

expect() {  # expect TEXT COMMAND...
  local text=$1 output
  shift
  output=$("$@" 2>&1) || { echo "$*: status $?: $output"; exit 1; }
  [[ $output == *"$text"* ]] || { echo "$*: expected \"$text\", got: $output"; exit 1; }
}
try_all() {  # try_all FOLDER_OF_PLAIN FOLDER_OF_WITH_MPI
  RAMSPAN_MEMORY=4MiB expect "plain: fine" "$1/plain"
  expect "with_mpi: 1 ranks, sum 1000" "$2/with_mpi"
  expect "plain: fine" "$prefix/bin/ramspan" run -n 1 -s 1 --memory 4MiB --server-memory 8MiB -- "$1/plain"
  expect "with_mpi: 2 ranks, sum 2000" \
    "$prefix/bin/ramspan" run -n 2 -s 1 --memory 4MiB --server-memory 8MiB -- "$2/with_mpi"
}

"$cmake" -S "$here/consumer" -B "$scratch/build" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/log" 2>&1 ||
  { cat "$scratch/log"; exit 1; }
"$cmake" --build "$scratch/build" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
try_all "$scratch/build" "$scratch/build/mpi"
# A component that is not there is told by its name, and what there is.
mkdir "$scratch/wrong"
printf 'cmake_minimum_required(VERSION 3.25)\nproject(wrong CXX)\nfind_package(ramspan REQUIRED COMPONENTS openmp)\n' >"$scratch/wrong/CMakeLists.txt"
! "$cmake" -S "$scratch/wrong" -B "$scratch/wrong" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/log" 2>&1
grep -q 'no component "openmp"' "$scratch/log" || { cat "$scratch/log"; exit 1; }
echo "find_package: fine"

mkdir "$scratch/pc"
"$cxx" -std=c++17 "$here/consumer/plain.cc" $(pkg-config --cflags --libs ramspan) -o "$scratch/pc/plain"
"$cxx" -std=c++17 "$here/consumer/mpi/with_mpi.cc" $(pkg-config --cflags --libs ramspan-mpi) -o "$scratch/pc/with_mpi"
try_all "$scratch/pc" "$scratch/pc"
echo "pkg-config: fine"

# An example is a file to copy and compile: each finds what it includes, in the C++ that the documents say.
examples=$(dirname "$(find "$prefix" -name sort_text.cc)")
for example in "$examples"/*.cc "$examples"/irregular/*.cc; do
  "$cxx" -std=c++17 -fopenmp -fsyntax-only "$example" $(pkg-config --cflags ramspan-mpi eigen3)
done
[ "$(find "$examples" -name '*.cc' | wc -l)" -ge 9 ] || { echo "where are the examples?"; exit 1; }
echo "examples: fine"

# Every link of an installed document to a file leads to one. (Half of them led nowhere: the folders were not kept.) A lambda in a listing is none.
find "$prefix" -name '*.md' | while read -r page; do
  { awk '/^```/ { code = !code } !code' "$page" | grep -o '](\([^)#:]*\)[)#]' || true; } | sed 's/^](//; s/[)#]$//' | while read -r link; do
    [ -z "$link" ] || [ -e "$(dirname "$page")/$link" ] || echo "$page: $link is not there"
  done
done >"$scratch/links"
[ ! -s "$scratch/links" ] || { cat "$scratch/links"; exit 1; }
[ "$(find "$prefix" -name '*.md' | wc -l)" -ge 7 ] || { echo "where are the documents?"; exit 1; }
echo "links: fine"

expect "usage: ramspan COMMAND" "$prefix/bin/ramspan" --help
expect "ramspan" "$prefix/bin/ramspan" --version
if [ -e "$prefix/libexec/ramspan/ramspan-bench" ]; then
  "$prefix/bin/ramspan" bench --help >/dev/null
  # An installed benchmark finds the memory server by itself.
  expect "remote memory" "$prefix/bin/ramspan" bench stream --data 16MiB --sweeps 1
fi
echo "programs: fine"
