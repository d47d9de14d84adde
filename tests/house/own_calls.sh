#!/usr/bin/env bash
# Functions of the library call each other directly. A shared library that is linked without -Bsymbolic-functions (client/CMakeLists.txt)
# calls its own exported functions by a table, lest the program has replaced one: making a small object took four such detours.
#
# usage: tests/house/own_calls.sh LIBRARY     exit status 1 and their names when there are calls by the table
set -u -o pipefail
library=$1
defined=$(nm -D --defined-only "$library" | awk '$2 ~ /^[TWi]$/ {print $3}' | sort -u)
by_table=$(readelf -Wr "$library" | awk '$3 ~ /JUMP_SLO/ {sub(/@.*/, "", $5); print $5}' | sort -u)
# Neither is empty in any libramspan: if it is, this has looked at something else.
if ! grep -q CreateObject <<<"$defined" || ! grep -q '^pthread_' <<<"$by_table"; then
  echo "$library does not look like libramspan"
  exit 1
fi
own=$(comm -12 <(echo "$defined") <(echo "$by_table"))
[ -z "$own" ] && echo "no function calls another one of the library by the table" && exit
c++filt <<<"$own"
exit 1
