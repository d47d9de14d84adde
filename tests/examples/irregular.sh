#!/bin/sh
# irregular.sh NAME FOLDER SOURCES MARKED MEMORY ARGUMENTS...: NAME out of core, with less memory than its data takes, prints what NAME_original
# prints, swaps, and differs from it in as many lines as examples/README.md says.
set -eu
name=$1 folder=$2 sources=$3 marked=$4 memory=$5
shift 5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work" HOME="$work"
"$folder/${name}_original" "$@" > "$work/expected" 2> "$work/seconds"
RAMSPAN_MEMORY=$memory RAMSPAN_STATS="$work/stats.json" "$folder/$name" "$@" > "$work/printed" 2> "$work/said" || { cat "$work/said" >&2; exit 1; }
diff "$work/expected" "$work/printed"
grep -q '"evictions": *[1-9]' "$work/stats.json" || { echo "all of it was in memory" >&2; exit 1; }
differ=$(diff "$sources/${name}_original.cc" "$sources/$name.cc" | grep -c '^>') || true
[ "$differ" -eq "$marked" ] || { echo "$name.cc has $differ lines that are not in the original, not $marked: say so in examples/README.md" >&2; exit 1; }
