#!/usr/bin/env bash
# A name in namespace ramspan is one class or struct: two would be one to the linker wherever a program has both, and it would take either's destructor
# for the other's. Looks at what stands at the beginning of a line, outside of unnamed namespaces; forward declarations aside.
#   one_name.sh ROOT          the source tree
#   one_name.sh --self-test   shows that a second class is found, and what is none is not
set -u -o pipefail
check() {  # ROOT; prints a line for each name that is taken twice
  (cd "$1" && find client common include/ramspan launch memserver -name '*.h' -o -name '*.cc' | sort | xargs awk '
    FNR == 1 { unnamed = 0 }
    /^namespace \{/ { unnamed = 1 }
    /^}  \/\/ namespace$/ { unnamed = 0 }
    !unnamed && /^(class|struct|union|enum)[ \t][^;]*[:{]/ {
      line = $0
      sub(/^enum[ \t]+(class|struct)[ \t]/, "enum ", line)
      gsub(/\[\[[a-z_]*\]\]|alignas\([^)]*\)|RS_[A-Z_]+(\([^)]*\))?|RAMSPAN_[A-Z]+/, "", line)
      split(line, word, /[ \t:{<]+/)
      name = word[2]
      if (line ~ /^[a-z]+[ \t]+[A-Za-z_]+(<|::)/) next  # a specialisation; a class within another
      if (name in first && first[name] != FILENAME) print name ": " first[name] " and " FILENAME
      else first[name] = FILENAME
    }')
}

if [ "${1:-}" = --self-test ]; then
  root=$(mktemp -d "${TMPDIR:-/tmp}/one-name.XXXXXX")
  trap 'rm -rf "$root"' EXIT
  mkdir -p "$root"/{client,common,include/ramspan,launch,memserver}
  printf 'class Twice;\nstruct Twice::Part {\n};\nclass Twice : public Base {\n};\nstruct alignas(64) Lined {\n};\nenum class Kind : int { kOne };\n' >"$root/client/a.h"
  printf 'class Twice;\nnamespace {\nstruct Lined {\n};\n}  // namespace\ntemplate <>\nstruct Kind<int> {\n};\n' >"$root/common/b.cc"
  printf 'struct Twice {\n};\nenum class Kind { kOne };\n' >"$root/memserver/c.h"
  printf 'struct Lined {};\n' >"$root/launch/d.h"
  said=$(check "$root")
  expected=$'Lined: client/a.h and launch/d.h\nTwice: client/a.h and memserver/c.h\nKind: client/a.h and memserver/c.h'
  [ "$said" = "$expected" ] || { printf 'said:\n%s\nexpected:\n%s\n' "$said" "$expected"; exit 1; }
  exit 0
fi
said=$(check "$1")
[ -z "$said" ] || { echo "one name, two classes:"; echo "$said"; exit 1; }
