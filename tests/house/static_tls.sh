#!/usr/bin/env bash
# A module that is loaded while the program runs keeps its thread_local variables in static TLS. In any other model (general or local
# dynamic) each thread's first use of one takes heap in the C library, on the way of a miss, and where there is none the C library ends
# the program. tls_model("initial-exec") makes a variable static; static TLS has room for some hundred bytes of such modules.
#
# usage: tests/house/static_tls.sh LIBRARY...     exit status 1 and the libraries when they have others
set -u -o pipefail
failed=0
for library in "$@"; do
  if ! readelf -dW "$library" | grep -q '(NEEDED).*libramspan\.so'; then  # of such a module; if not, this has looked at something else
    echo "$library does not look like a module of libramspan"
    failed=1
    continue
  fi
  # A relocation that names a version is of another library's variable (std::call_once has two in libstdc++).
  own=$(readelf -rW "$library" | awk '$3 ~ /DTPMOD|TLSDESC/ && $5 !~ /@/')
  [ -z "$own" ] && continue
  echo "$library reaches thread_local variables of its own by calls of the C library that may take heap:"
  echo "$own"
  failed=1
done
[ $failed = 0 ] && echo "no thread_local variable of a loaded module is reached by a call"
exit $failed
