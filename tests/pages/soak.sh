#!/usr/bin/env bash
# The scenario `soak` for some time, by one way of bringing pages. Another seed (SOAK_SEED) is other work.
# usage: soak.sh RAMSPAN PRELOADED FAULTS MOVES SECONDS
set -u
export RAMSPAN_PAGE_FAULTS=$3 RAMSPAN_PAGE_MOVES=$4 SOAK_SECONDS=$5
"$1" run --pages --memory 8MiB --dry-run -- true >/dev/null || exit 77
exec "$1" run --pages --memory 8MiB -s 0 -- "$2" soak
