#!/bin/sh
# expect.sh STATUS REGEX COMMAND...: runs the command; succeeds when its exit status is STATUS ("failure": any but 0;
# "any") and its output, or what it wrote into the file $RAMSPAN_TEST_REPORT, matches the extended regular expression.
wanted=$1
regex=$2
shift 2
RAMSPAN_TEST_REPORT=$(mktemp) || exit 1
export RAMSPAN_TEST_REPORT
# The command and all that it started, by their numbers: whoever has this run's report in its environment.
processes() {
  for folder in /proc/[0-9]*; do
    grep -qzxF "RAMSPAN_TEST_REPORT=$RAMSPAN_TEST_REPORT" "$folder/environ" 2>/dev/null && echo "${folder#/proc/}"
  done
}
# What each of them does now: state, what it waits for in the kernel, and where its threads are, as far as this system tells.
describe() {
  for pid in $(processes); do
    [ -e "/proc/$pid/exe" ] || continue
    echo "-- process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
    grep -E '^(State|PPid|Threads|SigPnd|ShdPnd|SigBlk|voluntary_ctxt_switches):' "/proc/$pid/status" 2>/dev/null | tr '\n\t' '  '
    echo
    for task in "/proc/$pid/task"/*; do
      echo "   thread ${task##*/} $(cat "$task/comm" 2>/dev/null): $(cut -d' ' -f3,14,15 "$task/stat" 2>/dev/null) (state, ticks), in $(cat "$task/wchan" 2>/dev/null) $(cat "$task/syscall" 2>/dev/null | cut -d' ' -f1-4)"
    done
    if command -v gdb >/dev/null; then
      timeout -s KILL 8 gdb -batch -nx -ex 'thread apply all bt 12' -p "$pid" 2>/dev/null | grep -E '^(Thread|#)'
    elif command -v eu-stack >/dev/null; then
      timeout -s KILL 8 eu-stack -p "$pid" 2>/dev/null
    fi
  done
}
# Shorter than the test's own limit, which would end this script with what has been said so far. What a process says goes into a file,
# so that what it has said is there although it does not end.
limit=${RAMSPAN_TEST_LIMIT:-220}
said=$(mktemp) || exit 1
"$@" >"$said" 2>&1 </dev/null &
command=$!
trap 'kill "$command" 2>/dev/null; exit 130' INT TERM HUP
end=$(($(date +%s) + limit))
while kill -0 "$command" 2>/dev/null && [ "$(date +%s)" -lt "$end" ]; do
  sleep 0.1
done
hangs=no
if kill -0 "$command" 2>/dev/null; then
  hangs=yes
  describe >"$said.state"
  kill "$command" 2>/dev/null
  sleep 1
  for pid in $(processes); do kill -KILL "$pid" 2>/dev/null; done
fi
wait "$command" 2>/dev/null
status=$?
output=$(cat "$said" "$RAMSPAN_TEST_REPORT")
rm -f "$RAMSPAN_TEST_REPORT"
printf '%s\n' "$output"
if [ "$hangs" = yes ]; then
  echo "it hangs: not ended within $limit s. Its processes at that moment:"
  cat "$said.state"
  rm -f "$said" "$said.state"
  exit 1
fi
rm -f "$said"
echo "exit status $status, expected $wanted and /$regex/"
if [ "$wanted" = failure ]; then
  [ "$status" -ne 0 ] || exit 1
elif [ "$wanted" != any ]; then
  [ "$status" -eq "$wanted" ] || exit 1
fi
printf '%s\n' "$output" | grep -Eq -- "$regex"
