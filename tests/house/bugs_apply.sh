#!/usr/bin/env bash
# Each bug of tests/mutation/bugs.txt still changes the source that it names: an expression that does not match any more says nothing about the
# tests, and only a run of many minutes (./check long) would tell.
#   bugs_apply.sh ROOT          the source tree
#   bugs_apply.sh --self-test   shows that each kind of mistake is found
set -u -f -o pipefail
check() {  # ROOT; prints a line a mistake
  local root=$1 name file expression rest changed seen=' '
  while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; esac
    IFS=$'\x01' read -r name file expression rest <<<"${line// @ /$'\x01'}"
    [[ $seen != *"|$name|"* ]] || echo "bugs.txt: two bugs are named \"$name\""
    seen+="|$name|"
    [ -e "$root/$file" ] || { echo "bugs.txt: \"$name\": there is no $file"; continue; }
    changed=$(sed "$expression" "$root/$file" 2>&1 | cmp -s - "$root/$file" || echo yes)
    [ "$changed" = yes ] || echo "bugs.txt: \"$name\" changes nothing in $file: the code has changed, write the bug anew"
    sed -n "$expression" /dev/null 2>/dev/null || echo "bugs.txt: \"$name\" is no expression of sed's: $expression"
  done <"$root/tests/mutation/bugs.txt"
}

if [ "${1:-}" = --self-test ]; then
  root=$(mktemp -d "${TMPDIR:-/tmp}/bugs-apply.XXXXXX")
  trap 'rm -rf "$root"' EXIT
  mkdir -p "$root/tests/mutation"
  echo 'int one = 1;' >"$root/a.cc"
  cat >"$root/tests/mutation/bugs.txt" <<'TXT'
# a comment
applies @ a.cc @ s/one = 1/one = 2/ @ unit_tests
does not apply @ a.cc @ s/two = 1/two = 2/
no file @ b.cc @ s/one/two/
no expression @ a.cc @ s/one/
applies @ a.cc @ s/int/long/
TXT
  said=$(check "$root")
  status=0
  for mistake in '"does not apply" changes nothing' '"no file": there is no b.cc' '"no expression" is no expression' 'two bugs are named "applies"'; do
    [[ $said == *"$mistake"* ]] || { echo "not found: $mistake"; status=1; }
  done
  [ "$(wc -l <<<"$said")" -eq 4 ] || { echo "too much is found:"; echo "$said"; status=1; }
  exit $status
fi
said=$(check "$1")
[ -z "$said" ] || { echo "$said"; exit 1; }
