#!/usr/bin/env bash
# usage: refused.sh CXX INCLUDE_FOLDER. The first error of a program that cannot be compiled so names the remedy.
set -u -o pipefail
cxx=$1 include=$2 failed=0

# Headers whose declarations C++14 has are as good to it alone; those that a program begins with are not.
# expect TEXT HEADER OPTION...
# Behind the first error nobody looks: what the headers of the standard library say to C++14 took most of the time.
expect() {
  local text=$1 header=$2 out
  shift 2
  out=$(echo "#include <$header>" | "$cxx" -fsyntax-only -Wfatal-errors -x c++ "$@" -I "$include" - 2>&1) && {
    [[ $header != */managed?tr.h && $header != */managed_ptr.h && $header != */options.h && $header != */mpi.h ]] && return
    echo "$header $*: it compiles"
    failed=1
  }
  grep -m1 error <<<"$out" | grep -qF "$text" && return
  echo "$header $*: the first error does not say \"$text\": $(grep -m1 error <<<"$out")"
  failed=1
}

cd "$include" || exit 1
for header in ramspan/*.h rambrain/*.h; do
  [ "$header" = ramspan/mpi.h ] || expect "Ramspan needs C++17 (-std=c++17)" "$header" -std=c++14
done
echo 'int main() {}' | "$cxx" -fsyntax-only -x c++ -include mpi.h - 2>/dev/null ||  # where it is always found, nothing is to be said
  { expect "pkg-config ramspan-mpi" ramspan/mpi.h -std=c++17
    # Nor what follows from it.
    errors=$(printf '#include <ramspan/mpi.h>\nint main() { return MPI_Barrier(MPI_COMM_WORLD); }\n' | "$cxx" -fsyntax-only -x c++ -std=c++17 -I "$include" - 2>&1 | grep -cE ' (fatal )?error: ')
    [ "$errors" = 2 ] || { echo "ramspan/mpi.h without <mpi.h>: $errors errors instead of 2"; failed=1; }; }

# An index on what cannot have one is told what to do instead, and nothing follows from that; what Rambrain has, and const adhereTos, have it.
# errors: what the compiler says of the program on standard input.
errors() {
  "$cxx" -fsyntax-only -x c++ -std=c++17 -Wall -I "$include" - 2>&1 | grep -E ': (error|warning): ' || true
}
# taught SPACE TEXT...: one message with each TEXT, in this order, and no other.
taught() {
  local space=$1 line text
  shift
  while read -r line; do
    text=${1-}
    [[ -n $text && $line == *"$text"* ]] || { echo "$space: not \"$text\" but: $line"; failed=1; }
    [ $# = 0 ] || shift
  done
  [ $# = 0 ] || { echo "$space: nobody says \"$1\""; failed=1; }
}
pull='pull a pointer first, T* x = glue; x[i]'
errors <<'END' | { taught ramspan 'adhereTo<T> glue(data); T* x = glue; x[i]' "$pull" "$pull"; exit $failed; } || failed=1
#include <ramspan/managed_ptr.h>
double OfData(ramspan::managedPtr<double>& data) { return data[3]; }
double OfGlue(ramspan::adhereTo<double>& glue) { return glue[3] + glue[size_t{3}]; }
END
errors <<'END' | { taught rambrain "$pull" "$pull"; exit $failed; } || failed=1
#include <rambrain/managedPtr.h>
double OfData(rambrain::managedPtr<double>& data, rambrain::managedPtr<double, 2>& rows) { return data[3] + rows[3][3]; }
double OfGlue(rambrain::adhereTo<double>& glue) { return glue[3] + glue[size_t{3}]; }
double OfConst(const rambrain::adhereTo<double>& a, const ramspan::adhereTo<double>& b) { return a[3] + b[size_t{3}]; }
END
# A pointer that outlives its pin: an error, and in Rambrain's programs a warning.
errors <<'END' | { taught ramspan 'dangles: the pin ends with the line' 'dangles: the pin ends with the line'; exit $failed; } || failed=1
#include <ramspan/managed_ptr.h>
const double* Read(const ramspan::managedPtr<double>& data) { return ramspan::adhereTo<double>(data); }
template <typename T> T Pass(T x) { return x; }
void Write(ramspan::managedPtr<int>& data) { int* x = ramspan::adhereTo<int>(data); *x = 1; }
END
errors <<'END' | { taught rambrain 'warning: '; exit $failed; } || failed=1
#include <rambrain/managedPtr.h>
void Write(rambrain::managedPtr<double>& data) { double* x = rambrain::adhereTo<double>(data); *x = 1; }
END
# The same of what pins and spans give, where the compiler knows of lifetimes; and no word of what is right.
for clang in clang++ clang++-14; do
  command -v $clang >/dev/null || continue
  clang_errors() { { "$clang" -fsyntax-only -x c++ -std=c++20 -Wall -I "$include" - 2>&1 | grep -E ': (error|warning): '; } || true; }
  dangles='will be destroyed at the end of the full-expression'
  clang_errors <<'END' | { taught lifetimes "$dangles" "$dangles" "$dangles" "$dangles" "$dangles" 'returning reference to local temporary'; exit $failed; } || failed=1
#include <ramspan/blocked_array.h>
#include <ramspan/managed_vector.h>
using namespace ramspan;
void Bad(managedVector<double>& x, managedPtr<double>& p, blockedArray<double, 2>& m) {
  double* a = p.write().data();
  double& b = x.view()[3];
  auto c = managedVector<double>(3).view();
  double* d = x.span(0, 3).begin();
  double& e = m.block({0, 0})(1, 1);
  *a = b = c[0] = *d = e;
}
struct Field { managedVector<double> x; double& operator()(size_t i) { return x.view()[i]; } };
END
  clang_errors <<'END' | { taught lifetimes; exit $failed; } || failed=1
#include <ramspan/loops.h>
#include <ramspan/managed_vector.h>
using namespace ramspan;
double Good(managedVector<double>& x, const managedVector<double>& c, managedPtr<double>& p, managedArray<double>& y) {
  const double e = x.cview()[3], g = c.view()[2];
  double sum = 0;
  for (double v : p.read()) sum += v;
  for (auto b : x.blocks()) for (double v : b) sum += v;
  auto b = x.blocks()[3];
  auto w = x.view();
  double& r = w[2];
  auto s = x.span(3, 4);
  sum += p.read()[2] + *p.write().begin() + y[3];
  std::fill(p.write().begin(), p.write().end(), 0.0);
  parallelFor(y.blocks(), [](auto& block) { block[0] = 1; });
  return e + g + sum + r + b[0] + s[0];
}
END
  break
done
# A class that is made before anybody said that it may be moved: one error each, where it is made, not where it is named.
moved='must survive a move of its bytes'
errors <<'END' | { taught moved "$moved" "$moved"; exit $failed; } || failed=1
#include <ramspan/managed_ptr.h>
#include <string>
struct Text { std::string words; };
struct Node { ramspan::managedPtr<Node> child{nullptr}; };
void MakeText(ramspan::managedPtr<Text>& named) { named = ramspan::managedPtr<Text>(3); }
void MakeNode() { ramspan::managedPtr<Node> root; }
END
exit $failed
