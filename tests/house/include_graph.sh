#!/usr/bin/env bash
# The include graph: who may include whom. Fails with file, line and rule where a quoted #include goes in another direction
# than docs/architecture.md says, and where a folder is in no room of the table.
#   include_graph.sh [ROOT]     ROOT: the source tree; the one of this script by default
#   include_graph.sh --self-test    shows that each kind of mistake is found
set -u -o pipefail

# A line a room: its folder, then the rooms that its files may include beside their own. A room may name only rooms that
# stand above it, so the graph has no cycle as long as this table is obeyed. A room with a name in parentheses is a part of a folder:
# files that only some may include, see room_of.
rooms='
include/ramspan
include/rambrain   include/ramspan
common             include/ramspan
common(mpi)        common include/ramspan
client/transport   common include/ramspan
client/transport(doors) client/transport common include/ramspan
client/transport(mpi)   client/transport client/transport(doors) common common(mpi) include/ramspan
client/transport(ofi)   client/transport client/transport(doors) common include/ramspan
client/arena       common
client/chunk       common client/arena include/ramspan
client/swap        common client/transport include/ramspan
client/policy      common client/chunk include/ramspan
client/engine      common client/arena client/chunk client/policy client/swap include/ramspan
client/front       common client/engine client/chunk include/ramspan
client/pages       common client/engine client/chunk client/policy include/ramspan
client/rambrain    common include/ramspan include/rambrain
client/runtime     common client/arena client/chunk client/engine client/front client/pages client/policy client/swap client/transport client/transport(doors) include/ramspan
client/preload     common client/pages client/runtime include/ramspan
memserver          common
memserver(mpi)     memserver common common(mpi)
launch             common
examples           include/ramspan include/rambrain
bench              common common(mpi) include/ramspan include/rambrain
bench(policy)      bench common client/arena client/chunk client/engine client/policy
bench(targets)     bench bench(policy) common include/ramspan
bench(buddy)       bench common client/arena
bench(contention)  bench common client/chunk client/engine client/front client/policy client/swap client/transport memserver
'
# Includes that break the rule and are known: "FILE -> ROOM: why". They are printed at each run.
exceptions='
'

# The room of a path as an #include or git spells it. Public headers are included without their first folder.
# The simulator of policies, the one of contention and the comparison of allocators are the benchmarks that look inside. Above the port of the transports nobody knows a network: what swap may see of client/transport is the port and files, what the
# composition root may see besides is the doors; MPI and libfabric do not see each other. MPI's own headers come with common(mpi).
room_of() {
  case $1 in
    common/mpi_* | common/pmi.*) echo "common(mpi)" ;;
    client/transport/mpi_door.* | client/transport/ofi_door.*) echo "client/transport(doors)" ;;
    client/transport/mpi_*) echo "client/transport(mpi)" ;;
    client/transport/ofi_*) echo "client/transport(ofi)" ;;
    memserver/main.cc | memserver/mpi_*) echo "memserver(mpi)" ;;
    bench/policy*) echo "bench(policy)" ;;
    bench/swap_targets*) echo "bench(targets)" ;;
    bench/buddy*) echo "bench(buddy)" ;;
    bench/contention*) echo "bench(contention)" ;;
    ramspan/*) echo include/ramspan ;;
    rambrain/*) echo include/rambrain ;;
    client/*/* | include/*/*) echo "$1" | cut -d/ -f1-2 ;;
    */*) echo "${1%%/*}" ;;
    *) echo "" ;;
  esac
}

# Prints what breaks the rules; returns whether anything does.
check_tree() {
  local root=$1 bad=0 room sees above=" " file line target from to used=" " exception
  declare -A may=()
  while read -r room sees; do
    [ -n "$room" ] || continue
    for to in $sees; do
      [[ $above == *" $to "* ]] || { echo "the table: $room may see $to, which does not stand above it"; bad=1; }
    done
    may[$room]=" $room $sees "
    above+="$room "
  done <<<"$rooms"
  while IFS=: read -r file line target; do
    target=${target#*\"} target=${target%%\"*}
    from=$(room_of "$file")
    to=$(room_of "$target")
    if [ -z "${may[$from]+known}" ]; then
      echo "$file:$line: the folder $from is in no room; add it to the table in tests/house/include_graph.sh"
      bad=1
    elif [ -z "$to" ] && [ "$from" = examples ]; then
      continue  # who copies an example has its header beside it
    elif [ -z "$to" ]; then
      echo "$file:$line: \"$target\" is included without its folder, so its room is not known"
      bad=1
    elif [[ ${may[$from]} != *" $to "* ]]; then
      if [[ $exceptions == *"
$file -> $to: "* ]]; then
        echo "known exception: $file:$line includes \"$target\""
        used+="$file -> $to "
        continue
      fi
      echo "$file:$line: $from must not include $to (\"$target\"); $from may see:$(printf '%s' "${may[$from]# "$from"}")"
      bad=1
    fi
  done < <(cd "$root" && grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' --include='*.h' --include='*.cc' \
             include common client memserver launch examples bench 2>/dev/null)
  while IFS= read -r exception; do
    [ -z "$exception" ] || [[ $used == *" ${exception%%: *} "* ]] || {
      echo "the table: nothing needs the exception '${exception%%: *}' any more; delete it"
      bad=1
    }
  done <<<"$exceptions"
  return $bad
}

self_test() {
  local tree failed=0 exceptions=
  tree=$(mktemp -d) || return 1
  trap 'rm -rf "$tree"' RETURN
  # expect TEXT PATH INCLUDE [accepted]: a tree with this one include is refused, with TEXT in the message; or accepted.
  expect() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/$(dirname "$2")" && printf '// one\n#include "%s"\n' "$3" >"$tree/$2"
    local out status=0
    out=$(check_tree "$tree") || status=1
    local wanted=1
    [ "${4:-}" != accepted ] || wanted=0
    if [ $status -eq $wanted ] && [[ $out == *"$1"* ]]; then return; fi
    echo "self-test: $2 including $3: expected '$1', got '$out' (status $status)"
    failed=1
  }
  expect "client/front/pin.cc:2: client/front must not include client/runtime" client/front/pin.cc client/runtime/runtime.h
  expect "client/chunk/chunk.h:2: client/chunk must not include client/swap" client/chunk/chunk.h client/swap/swap_tier.h
  expect "common/status.h:2: common must not include client/chunk" common/status.h client/chunk/chunk.h
  expect "memserver must not include client/engine" memserver/server.cc client/engine/engine.h
  expect "client/front must not include client/stray" client/front/a.cc client/stray/a.h
  expect "client/swap must not include client/transport(mpi)" client/swap/remote_io.cc client/transport/mpi_rma.h
  expect "client/swap must not include client/transport(ofi)" client/swap/remote_io.cc client/transport/ofi_transport.h
  expect "client/swap must not include client/transport(doors)" client/swap/remote_io.cc client/transport/mpi_door.h
  expect "client/swap must not include common(mpi)" client/swap/remote_io.cc common/mpi_world.h
  expect "client/runtime must not include client/transport(mpi)" client/runtime/runtime.cc client/transport/mpi_transport.h
  expect "client/transport must not include client/transport(mpi)" client/transport/transport.h client/transport/mpi_rma.h
  expect "client/transport(ofi) must not include client/transport(mpi)" client/transport/ofi_lane.cc client/transport/mpi_rma.h
  expect "client/transport(mpi) must not include client/transport(ofi)" client/transport/mpi_rma.cc client/transport/ofi_lane.h
  expect "memserver must not include common(mpi)" memserver/server.cc common/mpi_control.h
  expect "bench must not include client/policy" bench/stream.cc client/policy/policy.h
  expect "" bench/policy_memory.h client/policy/policy.h accepted
  expect "" client/swap/remote_io.cc client/transport/transport.h accepted
  expect "" client/runtime/runtime.cc client/transport/mpi_door.h accepted
  expect "" memserver/main.cc common/mpi_world.h accepted
  expect "client/stray is in no room" client/stray/a.cc common/check.h
  expect "included without its folder" client/front/a.cc pin_registry.h
  expect "" client/engine/engine.cc client/swap/swap_tier.h accepted
  expect "" examples/sort_text.cc sorted_runs.h accepted
  expect "" client/front/front.cc ramspan/adhere_to.h accepted
  exceptions="
client/chunk/chunk.h -> client/swap: a reason"
  expect "known exception: client/chunk/chunk.h:2" client/chunk/chunk.h client/swap/swap_tier.h accepted
  expect "nothing needs the exception 'client/chunk/chunk.h -> client/swap'" client/chunk/chunk.h common/check.h
  exceptions=
  local kept=$rooms
  rooms="
client/a client/b
client/b client/a"
  expect "client/a may see client/b, which does not stand above it" client/a/a.h client/b/b.h
  rooms=$kept
  return $failed
}

if [ "${1:-}" = --self-test ]; then
  self_test && echo "the check finds what it has to find"
else
  check_tree "${1:-$(cd "$(dirname "$0")/../.." && pwd)}" && echo "every include goes in the direction of the table"
fi
