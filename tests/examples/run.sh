#!/bin/sh
# run.sh EXAMPLE alone|job FOLDER LAUNCHER: runs the example where its data does not fit, checks its result and that it
# did swap.
# run.sh EXAMPLE no_memory FOLDER LAUNCHER LIBRARY: the system gives one of its threads no memory, which LIBRARY sees to.
set -eu
example=$1 way=$2 folder=$3 launcher=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work" HOME="$work"

run() {  # MEMORY COMMAND...
  memory=$1
  shift
  if [ "$way" = alone ]; then
    RAMSPAN_MEMORY=$memory RAMSPAN_STATS="$work/stats.0.json" "$@"
  else
    "$launcher" run -n 2 -s 1 --memory "$memory" --server-memory 64MiB --stats "$work/stats.%r.json" -- "$@"
  fi
}

# refused BYTES MEMORY COMMAND...: which of its own vectors the system has no memory for, by its size. It was aborted.
refused() {
  status=0
  bytes=$1 memory=$2
  shift 2
  NO_MEMORY_BYTES=$bytes LD_PRELOAD=$library RAMSPAN_MEMORY=$memory "$@" 2> "$work/told" || status=$?
  [ "$status" -eq 1 ] && grep -q "^$example: .*std::bad_alloc$" "$work/told" || { cat "$work/told"; echo "status $status" >&2; exit 1; }
}
if [ "$way" = no_memory ]; then
  library=$5
  case $example in
    nbody) refused 1536 1MiB "$folder/nbody" ingredients 150 10 ;;  # accelerations of 64 bodies
    transpose) refused 472 4MiB "$folder/transpose" 1100 96 ;;  # a stripe of 59 rows
    sort_text)
      seq 1 100000 > "$work/in"
      refused 174762 2MiB "$folder/sort_text" "$work/in" "$work/sorted" ;;  # what is read at once
  esac
  exit 0
fi

case $example in
  field) run 2MiB "$folder/field" 768 ;;
  heat3d) run 2MiB "$folder/heat3d" --n 72 --steps 3 --verify | tee "$work/out"
          grep -q "equal to the in-core result" "$work/out" ;;
  sort_text)
    if [ "$way" = alone ]; then
      # What a thread threw while it read left a critical region, so the program was aborted and the reason was not told.
      longest() {  # MEMORY BYTES MESSAGE: a line of so many bytes among short ones
        { seq 1 1000; head -c "$2" /dev/zero | tr '\0' x; echo; } > "$work/in"
        status=0
        run "$1" "$folder/sort_text" "$work/in" "$work/sorted" 2> "$work/told" || status=$?
        [ "$status" -eq 1 ] && grep -q "sort_text: rank 0: $3" "$work/told" || { cat "$work/told"; echo "status $status" >&2; exit 1; }
      }
      longest 2MiB 200000 "a line is longer than [0-9]* bytes; raise the memory limit"
      run 8MiB "$folder/sort_text" "$work/in" "$work/sorted"  # which helps
      LC_ALL=C sort "$work/in" | cmp - "$work/sorted"
      longest 8MiB 300000 "a line is longer than 262144 bytes, which is the most"
    fi
    # Short lines, in order: pieces that are full by their index and not by their text, and long streams from one rank to the other.
    seq 1 600000 > "$work/in"
    case $way in
      alone) OMP_NUM_THREADS=1 run 2MiB "$folder/sort_text" "$work/in" "$work/sorted" ;;
      job) run 4MiB "$folder/sort_text" "$work/in" "$work/sorted" ;;
    esac
    LC_ALL=C sort "$work/in" | cmp - "$work/sorted"
    awk 'BEGIN { srand(7); for (i = 0; i < 300000; ++i) printf "%d %x line %d\n", rand() * 1e9, rand() * 1e9, i }' > "$work/in"
    run 4MiB "$folder/sort_text" "$work/in" "$work/sorted"
    LC_ALL=C sort "$work/in" | cmp - "$work/sorted" ;;
  nbody)
    for how in serial openmp ingredients; do run 1MiB "$folder/nbody" $how 150 400; done ;;
  transpose) run 4MiB "$folder/transpose" 1100 96 ;;
  views) run 2MiB "$folder/views" 400 100 ;;
  access)
    for what in const decay readahead; do run 4MiB "$folder/access" $what 16; done ;;
  classes)
    run 3MiB "$folder/classes" 8
    # It blamed a pull from a managedPtr with 0 elements.
    "$folder/classes" --help 2>&1 | grep -q '^usage: classes' ;;
esac
for stats in "$work"/stats.*.json; do
  if grep -q '"evictions":0,' "$stats"; then
    echo "$stats: everything fitted, so nothing was tested" >&2
    exit 1
  fi
done
