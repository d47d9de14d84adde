#!/usr/bin/env bash
# usage: unit.sh SOURCE BUILD CMAKE. The systemd unit as it is installed: systemd finds nothing wrong with it, it is closed to what it does
# not need, and its line starts a memory server.
set -u -o pipefail
source=$1 build=$2 cmake=$3
scratch=$(mktemp -d) || exit 1
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null
  rm -rf "$scratch"
}
trap finish EXIT
fail() { echo "$@"; exit 1; }

"$cmake" --install "$build" --prefix "$scratch/prefix" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
unit=$scratch/prefix/lib/systemd/system/ramspan-server.service
[ -e "$unit" ] || fail "the unit is not installed"
! grep -n '@' <(grep -v 'SystemCallFilter\|^#' "$unit") || fail "something was not filled in"

# Its line, with the settings of the example but what depends on the host, and %S as systemd would say it.
line=$(sed -n 's/^ExecStart=//p' "$unit")
program=${line%% *}
[ -x "$program" ] || fail "$program is no program"
set -a
. "$source/configs/ramspan-server.env.example"
set +a
[ -n "$MEMORY" ] && [ -n "$LISTEN" ] || fail "the example of the environment does not say what the unit needs"
LISTEN=127.0.0.1:0 MEMORY=64MiB
mkdir -p "$scratch/state/ramspan"
export LD_LIBRARY_PATH=$scratch/prefix/lib
eval "exec ${line//%S/$scratch/state}" >"$scratch/out" 2>&1 &
server=$!
for ((i = 0; i < 5000; i++)); do  # 100 s: only what hangs takes so long
  grep -q "lends 64 MiB at 127.0.0.1:" "$scratch/out" && break
  sleep 0.02
done
grep -q "lends 64 MiB at 127.0.0.1:" "$scratch/out" || fail "the unit's line starts no server: $(cat "$scratch/out")"
[ "$(stat -c %a "$scratch/state/ramspan/key")" = 600 ] || fail "the key is not its owner's alone"
kill -TERM "$server"
wait "$server" || fail "it does not end well: status $?"
server=
echo "the line: fine"

command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is not installed"; exit 77; }
cp "$source/configs/ramspan-server.env.example" "$scratch/env"
systemd-analyze verify --man=no "$unit" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "systemd-analyze verify: status $?"; }
# Of other units of this host it may complain as much as it likes.
! grep -i 'ramspan' "$scratch/log" || fail "systemd-analyze verify has something to say"
sed 's/^ProtectHome=.*/ProtectHoem=yes/' "$unit" >"$scratch/ramspan-server.service"
systemd-analyze verify --man=no "$scratch/ramspan-server.service" 2>&1 | grep -q ProtectHoem || fail "verify finds no mistake that is there"
echo "systemd-analyze verify: fine"

# 0 is closed to everything, 10 open; systemd calls below 2 "OK" or better.
if systemd-analyze security --help 2>/dev/null | grep -q -- --offline; then
  systemd-analyze security --offline=yes --threshold=20 "$unit" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "it is open to more than it needs"; }
  tail -1 "$scratch/log"
fi
