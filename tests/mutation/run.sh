#!/usr/bin/env bash
# Can the tests fail? Puts one bug of bugs.txt at a time into a copy of the sources, builds the tests that have to find it, and
# says which one does. Each bug is a build of one source and a link (10 to 20 s; one in a header that all include takes
# minutes), so this is a part of `./check long`. As many bugs are tried at once as there are cores, each in a copy and a build of its own.
#
# usage: tests/mutation/run.sh [--again] [--sample N] [WORDS]     only bugs whose name or file contains WORDS
# A run that was interrupted goes on where it was: a bug that was found is tried again only when the bug or any source has
# changed. --again tries all of them, --sample N only N of them, which chance draws: all take hours.
# The last line counts them. A bug that cannot be put in, or does not compile, or whose tests fail without it, is an ERROR:
# nothing is known about the tests then. Exit status: 0 when every bug that was to be tried is found.
set -u -f -o pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bugs=$root/tests/mutation/bugs.txt
state=$root/build-mutants
again=no sample=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --again) again=yes ;;
    --sample) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || { echo "--sample wants a number of bugs" >&2; exit 2; }
      sample=$2
      shift ;;
    *) echo "usage: run.sh [--again] [--sample N] [WORDS]" >&2; exit 2 ;;
  esac
  shift
done
words=${1:-}
# Seconds. A bug's build is within build_limit, and each program that has to find it within test_limit, or slower_max times what
# it needed without a bug on this machine, with what else ran on it, if that is more. A test program that says nothing for
# silence_limit hangs: no single test takes a fourth of that. Nothing here can hang.
configure_limit=300 build_limit=1800 test_limit=60 slower_max=10 unhindered_limit=900 silence_limit=45
jobs=$(nproc)
usual="sim_tests interleave_tests unit_tests"
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$state CCACHE_NOHASHDIR=1
fi

# A worker that is told to end takes what it runs with it.
child=
bounded() {  # SECONDS COMMAND...
  timeout --kill-after=5 "$@" 7<&- 8>&- </dev/null &  # a server that a bug leaves behind must not hold the lock, or read the list
  child=$!
  wait "$child"
}

# talking LIMIT COMMAND...: a bounded one that also ends when what it writes to test.log has not grown for silence_limit seconds.
talking() {
  local size=0 before=-1 since=$SECONDS
  timeout --kill-after=5 "$@" >test.log 2>&1 7<&- 8>&- </dev/null &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    size=$(stat -c %s test.log)
    [ "$size" = "$before" ] || { before=$size since=$SECONDS; }
    [ $((SECONDS - since)) -le $silence_limit ] || kill "$child" 2>/dev/null
    sleep 0.2
  done
  wait "$child"
}

# Makes TREE hold the files that are listed and nothing else but its builds. What is the same keeps its time, so that it is not
# built anew.
synchronise() {  # FROM TREE LIST
  local from=$1 tree=$2 list=$3 file
  mkdir -p "$tree"
  while IFS= read -r file; do
    cmp -s "$from/$file" "$tree/$file" || { mkdir -p "$(dirname "$tree/$file")" && cp -p "$from/$file" "$tree/$file" && touch "$tree/$file"; } || return
  done <"$list"
  (cd "$tree" && find . -name 'build*' -prune -o -type f -printf '%P\n' | sort | comm -23 - <(sort "$list") | xargs -r rm -f)
}

# folder_of SPEC, targets_of SPEC, filter_of SPEC: the parts of [tsan/|ctest/]TARGET[+TARGET...][:FILTER]
folder_of() { [[ $1 == tsan/* ]] && echo build-tsan || echo build; }
targets_of() { local spec=${1%%:*}; spec=${spec#*/}; echo "${spec//+/ }"; }  # a filter may have a /
filter_of() { [[ $1 == *:* ]] && echo "${1#*:}" || echo '-Topology*:Log*:AioFile*:*Config*'; }
build() {  # SPEC
  local folder preset=release
  folder=$(folder_of "$1")
  [[ $1 != tsan/* ]] || preset=tsan
  if [ ! -e "$folder/build.ninja" ]; then
    # A bug may leave a function or a variable unused. Less optimization finds as much, and compiles in half of the time.
    bounded "$configure_limit" cmake -S . -B "$folder" -G Ninja --preset "$preset" -DRAMSPAN_WERROR=OFF -DRAMSPAN_BUNDLE=OFF \
      -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" >build.log 2>&1 || return
  fi
  bounded "$build_limit" cmake --build "$folder" -j "$jobs" --target $(targets_of "$1") >build.log 2>&1
}
# limit_of SPEC: from what passes_without has noted
limit_of() {
  awk -F'\t' -v spec="$1" -v limit="$test_limit" -v times="$slower_max" \
    '$1 == spec && $2 * times > limit { limit = $2 * times } END { print limit }' "$state/seconds"
}
run() {  # SPEC LIMIT [JOBS]; sets found: the first test that fails, or nothing
  local limit=$2 target folder variant=(UCX_MEM_MMAP_HOOK_MODE=none RAMSPAN_TEST_SEEDS=150) arguments=()
  target=$(targets_of "$1") target=${target%% *} folder=$(folder_of "$1")
  [[ $target != front_tests && $target != front_loops_test ]] || variant+=(RAMSPAN_MEMORY=16MiB)
  [ "$target" != launch_run_test ] || arguments=("$folder/bin/ramspan" "$folder/bin/launch_standin")
  found=
  if [[ $1 == ctest/* ]]; then
    bounded "$limit" ctest --test-dir "$folder" -j "${3:-1}" --timeout "$limit" --no-tests=error --output-on-failure -R "$(filter_of "$1")" >test.log 2>&1 && return
  else
    talking "$limit" env "${variant[@]}" "$folder/bin/$target" "${arguments[@]}" --gtest_fail_fast --gtest_filter="$(filter_of "$1")" && return
  fi
  found=$(grep -m1 -aoE '(FAILED  ?\] [^ ,]+|check failed: .*|WARNING: ThreadSanitizer: .*|\*\*\*(Failed|Timeout).*)' test.log | head -c 90)
  [ -n "$found" ] || found="crashed or hung in $(sed -n 's/^\[ RUN      \] //p' test.log | tail -1)"
  found="$target: $found"
}

# Tries one bug in the working folder. Sets result: FOUND, SURVIVED or ERROR, and what there is to say.
try() {  # FILE EXPRESSION SPEC...
  local file=$1 expression=$2 spec
  shift 2
  [ -e "$file" ] || { result="ERROR	there is no $file"; return; }
  cp -p "$file" kept
  sed -i "$expression" "$file" 2>build.log || { result="ERROR	$(head -1 build.log)"; cp -p kept "$file"; touch "$file"; return; }
  if cmp -s kept "$file"; then
    result="ERROR	NOT APPLIED: the code has changed, write the bug anew"
  else
    result="SURVIVED	"
    for spec; do
      ! grep -qxF -- "$spec" "$state/failing" || { result="ERROR	WITHOUT IT, TOO: $spec fails"; break; }
      build "$spec" || { result="ERROR	DOES NOT COMPILE: $(grep -m1 -E 'error|FAILED|No such' build.log)"; break; }
      run "$spec" "$(limit_of "$spec")"
      ! grep -q '\*\*\*Not Run' test.log || { result="ERROR	NOT BUILT: name all targets that $spec needs"; break; }
      [ -z "$found" ] || { result="FOUND	$found"; break; }
    done
  fi
  cp kept "$file"  # with a new time, or the next build would keep the bug
}

# Specs of one key are of one program, and can run as one; what a filter leaves out is its own matter.
key_of() {  # SPEC
  case $1 in
    ctest/*) echo ctest ;;
    *:*-* ) echo "$1" ;;
    *:*) echo "${1%%:*}" ;;
    *) echo "$1:" ;;  # with what filter_of says
  esac
}
all_of() {  # SPEC... of one key: one spec that is all of them
  local key spec targets filters
  key=$(key_of "$1")
  [ $# -gt 1 ] || { echo "$1"; return; }
  filters=$(for spec; do filter_of "$spec"; done | sort -u)
  if [ "$key" = ctest ]; then
    targets=$(for spec; do targets_of "$spec" | tr ' ' '\n'; done | sort -u)
    echo "ctest/${targets//$'\n'/+}:${filters//$'\n'/|}"
  else
    echo "$key:${filters//$'\n'/:}"
  fi
}
# How long what SPEC names of the tests of the last run took; of a program, all of it.
seconds_of() {  # SPEC SECONDS_OF_ALL
  if [[ $1 != ctest/* ]]; then echo "$2"; return; fi
  awk -v filter="$(filter_of "$1")" '$2 == "Test" && $4 ~ filter { all += $(NF - 1) } END { print int(all) + 1 }' test.log
}
# Without a bug each test passes, or what it finds says nothing: notes how long each SPEC takes in seconds, and those that do not
# in failing. All are built here once, by all cores: the other workers' first builds then come out of ccache. A program runs once for
# all who name tests of it, and for each of them where that fails.
passes_without() {  # SPEC...
  local key spec begin seconds alone members
  synchronise "$state/sources" "$state/1" "$state/files" && cd "$state/1" || { echo "$state/1 cannot have the sources" >&2; return 1; }
  : >"$state/failing"
  for key in $(for spec; do key_of "$spec"; done | sort -u); do
    members=()
    for spec; do
      [ "$(key_of "$spec")" != "$key" ] || cut -f 1 "$state/seconds" | grep -qxF -- "$spec" || members+=("$spec")
    done
    [ ${#members[@]} -gt 0 ] || continue
    spec=$(all_of "${members[@]}")
    build "$spec" || { { echo "without any bug $(targets_of "$spec") does not compile:"; tail -30 build.log; } >&2; return 1; }
    begin=$SECONDS
    run "$spec" "$((unhindered_limit * ${#members[@]}))" "$jobs"
    seconds=$((SECONDS - begin))
    alone=no
    [ -z "$found" ] || [ ${#members[@]} -eq 1 ] || alone=yes
    for spec in "${members[@]}"; do
      if [ $alone = yes ]; then
        begin=$SECONDS
        run "$spec" "$unhindered_limit"
        seconds=$((SECONDS - begin))
      fi
      if [ -n "$found" ]; then
        echo "without any bug: $found"; tail -30 test.log
        echo "$spec" >>"$state/failing"
      else
        printf '%s\t%s\n' "$spec" "$(seconds_of "$spec" "$seconds")" >>"$state/seconds"
      fi
    done
  done
}

worker() {  # NUMBER
  local number=$1 name file expression tests key n=0 begin
  trap 'kill "$child" 2>/dev/null; exit 143' TERM
  synchronise "$state/sources" "$state/$number" "$state/files" && cd "$state/$number" || { echo "worker $number has no sources" >&2; return; }
  while IFS=$'\x01' read -r -u 7 key name file expression tests; do
    n=$((n + 1))
    mkdir "$state/claims/$n" 2>/dev/null || continue
    begin=$SECONDS
    try "$file" "$expression" $tests
    printf '%s\t%s\t%s\n' "$key" "$result" "$name" >>"$state/results"
    printf '%-64s %4d s  %s\n' "$name" $((SECONDS - begin)) "${result//	/: }"
  done 7<"$state/wanted"
}

mkdir -p "$state"
exec 8>"$state/lock"
flock -n 8 || { echo "another run is under way in $state" >&2; exit 1; }
rm -rf "$state/claims"
mkdir "$state/claims"
touch "$state/results"
[ $again = no ] || [ -n "$sample" ] || : >"$state/results"
# The sources as they are now: they may be worked on during the run.
(cd "$root" && git ls-files -co --exclude-standard -z | xargs -0 ls -d 2>/dev/null) >"$state/files"
synchronise "$root" "$state/sources" "$state/files" || exit 1
# All that a build or a test reads, but for this folder.
of_sources_before=$(cat "$state/of_sources" 2>/dev/null)
of_sources=$(grep -vE '\.(md|svg)$|^tests/mutation/' "$state/files" | sort | (cd "$state/sources" && xargs -d '\n' sha256sum) | sha256sum | cut -c1-20)
[ "$of_sources" = "$of_sources_before" ] || rm -f "$state/seconds"
touch "$state/seconds"
echo "$of_sources" >"$state/of_sources"
: >"$state/wanted"
: >"$state/keys"
while IFS= read -r line; do
  case $line in ''|'#'*) continue ;; esac
  IFS=$'\x01' read -r name file expression tests <<<"${line// @ /$'\x01'}"
  [[ "$name @ $file" == *"$words"* ]] || continue
  key=$(printf '%s %s' "$of_sources" "$line" | sha256sum | cut -c1-20)
  echo "$key" >>"$state/keys"
  { [ $again = no ] && grep -q "^$key	FOUND" "$state/results"; } ||
    printf '%s\x01%s\x01%s\x01%s\x01%s\n' "$key" "$name" "$file" "$expression" "${tests:-$usual}" >>"$state/wanted"
done <"$bugs"
all=$(wc -l <"$state/keys")
[ "$all" -gt 0 ] || { echo "no such bug in $bugs" >&2; exit 1; }
if [ -n "$sample" ]; then
  shuf -n "$sample" "$state/wanted" >"$state/sample" && mv "$state/sample" "$state/wanted" || exit 1
  cut -d $'\x01' -f 1 "$state/wanted" >"$state/keys"
fi
wanted=$(wc -l <"$state/wanted")
[ "$wanted" -eq "$all" ] || echo "$wanted of $all, ${sample:+which chance has drawn of those }that were not found before in these sources"
all=$(wc -l <"$state/keys")

workers=()
trap 'kill "${workers[@]}" 2>/dev/null; wait; exit 130' INT TERM
(
  trap 'kill "$child" 2>/dev/null; exit 143' TERM
  passes_without $(cut -d $'\x01' -f 5 "$state/wanted" | tr ' ' '\n' | sort -u)
) &
workers=($!)
wait "${workers[0]}" || exit 1
workers=()
for ((i = 1; i <= $(nproc) && i <= wanted; i++)); do
  worker $i &
  workers+=($!)
done
wait

count() { awk -F'\t' -v verdict="$1" 'NR == FNR { wanted[$1]; next } $1 in wanted { last[$1] = $2 }
                                       END { for (key in last) n += last[key] == verdict; print n + 0 }' "$state/keys" "$state/results"; }
found=$(count FOUND) survived=$(count SURVIVED) errors=$(count ERROR)
echo "$found found, $survived survived, $errors ERRORS, $((all - found - survived - errors)) not tried, in $SECONDS s"
[ "$found" -eq "$all" ]
