#!/bin/sh
# expect.sh STATUS REGEX COMMAND...: runs the command; succeeds when its exit status is STATUS ("failure": any but 0;
# "any") and its output, or what it wrote into the file $RAMSPAN_TEST_REPORT, matches the extended regular expression.
wanted=$1
regex=$2
shift 2
RAMSPAN_TEST_REPORT=$(mktemp) || exit 1
export RAMSPAN_TEST_REPORT
# Shorter than the test's own limit, which would end this script with what has been said so far.
output=$(timeout 240 "$@" 2>&1 </dev/null)
status=$?
output=$(printf '%s\n' "$output"; cat "$RAMSPAN_TEST_REPORT")
rm -f "$RAMSPAN_TEST_REPORT"
printf '%s\n' "$output"
[ "$status" -ne 124 ] || { echo "it hangs"; exit 1; }
echo "exit status $status, expected $wanted and /$regex/"
if [ "$wanted" = failure ]; then
  [ "$status" -ne 0 ] || exit 1
elif [ "$wanted" != any ]; then
  [ "$status" -eq "$wanted" ] || exit 1
fi
printf '%s\n' "$output" | grep -Eq -- "$regex"
