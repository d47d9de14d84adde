# What programs.sh and scenarios.sh have in common; sourced. Makes a folder of its own the working one. Needs $ramspan (an absolute path).
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$ramspan" run --pages --dry-run -- true >/dev/null 2>why || { cat why; exit 77; }
failed=()
# fail NAME [FILE...]: with the ends of files that say why.
fail() {
  failed+=("$1")
  echo "FAILED: $1"
  [ $# -eq 1 ] || tail -qn5 "${@:2}"
}
# same NAME LIMIT COMMAND: runs COMMAND (a shell line that writes to standard output) with and without pages.
same() {
  local name=$1 limit=$2 line=$3
  bash -c "$line" >"$name.plain" 2>"$name.plain.err"
  local plain=$?
  RAMSPAN_STATS=$work/$name.json "$ramspan" run --pages --memory "$limit" -- bash -c "$line" >"$name.paged" 2>"$name.paged.err"
  local paged=$?
  if [ $plain -ne $paged ] || ! cmp "$name.plain" "$name.paged"; then
    fail "$name ($plain, $paged)" "$name.paged.err"
  else
    echo "ok: $name"
  fi
}
# scenario NAME COMMAND...: the command writes "good", within a minute. One that could not be tried says so.
scenario() {
  local name=$1 code
  shift
  timeout 60 "$@" >out 2>err
  code=$?
  if [ $code = 0 ] && [ "$(cat out)" = good ]; then
    echo "ok: $name$(sed -n 's/^skipped: / (skipped: /p' err | sed 's/$/)/')"
  else
    fail "$name (exit code $code)" out err
  fi
}
# The exit status; what has failed is said again, where it is seen.
finish() {
  [ ${#failed[@]} -eq 0 ] || printf 'FAILED in the end: %s\n' "${failed[@]}"
  exit $((${#failed[@]} > 0))
}
