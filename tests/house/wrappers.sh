#!/usr/bin/env bash
# A class that stands before another one of its interface overrides each virtual call, also those that have a default: the default would answer in place
# of the one behind it. (Views kept their blocks because PageScanner did not pass on a call that the engine made.)
#   wrappers.sh ROOT          the source tree
#   wrappers.sh --self-test   shows that a call that is forgotten is found
set -u -o pipefail
check() {  # INTERFACE WRAPPER [EXCEPTED...]; prints a line for each call that is forgotten
  local interface=$1 wrapper=$2 name names
  shift 2
  names=$(sed -n 's/^ *virtual [^(]*[ *&]\([A-Za-z_0-9]*\)(.*/\1/p' "$interface" | sort -u)
  [ -n "$names" ] || echo "$interface has no virtual calls"
  for name in $names; do
    case " $* " in *" $name "*) continue ;; esac
    grep -qE "[ *&]$name\(.*override" "$wrapper" || echo "$wrapper forgets $name"
  done
}

if [ "${1:-}" = --self-test ]; then
  root=$(mktemp -d "${TMPDIR:-/tmp}/wrappers.XXXXXX")
  trap 'rm -rf "$root"' EXIT
  printf 'struct A {\n  virtual ~A() = default;\n  virtual int* One() = 0;\n  virtual void Two(int /*n*/) {}\n  virtual bool Three() const { return false; }\n};\n' >"$root/a.h"
  printf 'struct B : A {\n  int* One() override { return inner_->One(); }\n  bool Four() { return inner_->Two(); }\n};\n' >"$root/b.h"
  said=$(check "$root/a.h" "$root/b.h" Three)
  [ "$said" = "$root/b.h forgets Two" ] || { printf 'said:\n%s\n' "$said"; exit 1; }
  exit 0
fi
cd "$1" || exit 1
said=$(
  check client/engine/pin_scanner.h client/pages/page_scanner.h
  check client/policy/policy.h client/policy/trace_policy.h Consult decides_in_consult  # it stands before the library's own, which do not consult
  check client/policy/policy.h tests/support/recording_policy.h
  check client/swap/swap_tier.h client/swap/retirable_tier.h
  check client/swap/swap_tier.h client/swap/tiered_swap.h
)
[ -z "$said" ] || { echo "$said"; exit 1; }
