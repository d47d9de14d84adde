#!/bin/sh
# usage: with_server.sh LAUNCHER PROGRAM: runs the program beside a `ramspan server` of this host, which it finds at a TCP place and, unless
# RAMSPAN_TEST_FAR is set, reaches by load and store. Exit status: the program's.
scratch=$(mktemp -d) || exit 1
export HOME="$scratch"  # for the key, and so that no configuration file is there
"$1" server --memory 64MiB --listen 127.0.0.1:0 >"$scratch/out" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server"; rm -rf "$scratch"' EXIT
while ! grep -q ' at ' "$scratch/out"; do
  kill -0 "$server" 2>/dev/null || { cat "$scratch/out"; exit 1; }
  sleep 0.05
done
export RAMSPAN_SERVERS="$(sed -n 's/.* at \([^ ]*\), .*/\1/p' "$scratch/out")" RAMSPAN_TRANSPORT=ofi RAMSPAN_MEMORY=4MiB
"$2"
