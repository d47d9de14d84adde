#!/usr/bin/env bash
# Tests signal other processes by SendSignal (tests/support/send_signal.h) only: one of them sent a signal to a server that was not there,
# process -1, and ended all processes of its user.
#   test_signals.sh ROOT          the source tree
#   test_signals.sh --self-test   shows that a call of kill() is found
set -u -o pipefail
calls() { (cd "$1" && grep -rnE '(^|[^a-zA-Z_.>])kill\(' tests --include='*.cc' --include='*.h' | grep -vE '^tests/support/send_signal.h:|kill\(getpid\(\)|: *//'); }
if [ "$1" = --self-test ]; then
  root=$(mktemp -d) && mkdir "$root/tests" && trap 'rm -rf "$root"' EXIT
  echo '  kill(getpid(), SIGUSR1);' >"$root/tests/own.cc"
  ! calls "$root" || exit 1
  echo '  ::kill(server, SIGKILL);' >"$root/tests/other.cc"
  calls "$root" >/dev/null
else
  ! calls "$1" || { echo "use SendSignal (tests/support/send_signal.h): kill() takes 0 and -1 for groups of processes"; exit 1; }
fi
