#!/usr/bin/env bash
# Programs that nobody here wrote, unmodified, under a limit far below what they use: their output is that of a run without Ramspan.
# usage: programs.sh RAMSPAN PRELOADED NO_USERFAULTFD
set -u
ramspan=$(realpath "$1") preloaded=$(realpath "$2") no_userfaultfd=$(realpath "$3")
. "$(dirname "$(realpath "$0")")/cases.sh"
python3 - >numbers <<'P'
import random
random.seed(1)
for i in range(100000): print(random.random(), i)
P
same sort 2MiB 'exec sort -S 32M numbers | md5sum'
same python 4MiB 'exec python3 -c "
import array, hashlib
a = array.array(\"d\", range(1_500_000))
for step in (1, 7919):
    h = hashlib.md5()
    for i in range(0, len(a), 65536): h.update(a[i:i+65536].tobytes())
    a = array.array(\"d\", (x * 2 for x in a))
    print(step, h.hexdigest(), sum(a[::step]))
"'
same perl 4MiB 'exec perl -e "
my \$s = join(\",\", map { \$_ * 3 } 1 .. 500_000); my \$r = reverse \$s; print length(\$s), \" \", unpack(\"%32C*\", \$r), \"\n\";
"'
same xz 8MiB 'head -c 300000 numbers | xz -2 -T1 -c | xz -dc | md5sum'
same gcc 4MiB 'for i in $(seq 300); do echo "int f$i(int a) { int b[$i+1]; for (int i = 0; i < a; ++i) b[i % $i] = a * i; return b[a % $i]; }"; done >many.c; exec gcc -O1 -S -o - many.c | md5sum'
# Their arguments, and their children's memory, was not there.
same xargs 8MiB 'seq 1 30000 | xargs echo | tr " " "\n" | md5sum'
cat >pool.py <<'P'
import multiprocessing
data = bytearray(i // 4096 % 251 for i in range(24_000_000))
def work(k): return sum(data[k * 1_000_000 : (k + 4) * 1_000_000])
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    with multiprocessing.Pool(3) as pool: print(pool.map(work, range(20)))
P
same python_pool 8MiB 'exec python3 pool.py'
# A program's own allocator, whose operator new did not go with the free here: it ended by an abort.
for allocator in libjemalloc.so.2 libmimalloc.so.2.0; do
  same "sort_$allocator" 8MiB 'set -o pipefail; LD_PRELOAD="${LD_PRELOAD:-} '$allocator'" exec sort -S 32M numbers | md5sum'
  same "python_$allocator" 8MiB 'LD_PRELOAD="${LD_PRELOAD:-} '$allocator'" exec python3 -c "print(sum(len(str(x)) for x in list(range(600000))))"'
done
# mimalloc has libc's names for its calls, and libc was asked how large what they had given was.
cat >usable.c <<'P'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main() {
  for (size_t n = 1; n < 3000000; n = n * 3 / 2 + 1) {
    char* p = malloc(n);
    size_t usable = malloc_usable_size(p);
    if (usable < n || usable > 2 * n + 65536) return 1;
    memset(p, 1, usable);
    p = realloc(p, 2 * n);
    memset(p, 2, 2 * n);
    free(p);
  }
  puts("good");
}
P
gcc -O1 -fno-builtin usable.c -o usable
for allocator in libjemalloc.so.2 libmimalloc.so.2.0 ""; do
  same "usable_$allocator" 8MiB 'LD_PRELOAD="${LD_PRELOAD:-} '$allocator'" exec ./usable'
done
# A program may replace the two basic operators only, with a header in front of each object: delete of a size did not come to the program's.
cat >own_operators.cc <<'P'
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
void* operator new(std::size_t n) { return static_cast<char*>(std::malloc(n + 16)) + 16; }
void operator delete(void* p) noexcept {
  if (p != nullptr) std::free(static_cast<char*>(p) - 16);
}
struct Node { int a[10]; };
int main() {
  for (int i = 0; i < 100; ++i) {
    delete new Node;
    delete[] new Node[100];
    delete[] new (std::nothrow) std::string[7];
  }
  std::puts("good");
}
P
g++ -std=c++17 -O1 own_operators.cc -o own_operators && same own_operators 8MiB './own_operators'
# Smaller allocations than 128 KiB were left to malloc until one was as large, whatever --pages-above said.
cat >rows.c <<'P'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char** argv) {
  (void)argv;
  static char* rows[3000];
  char* const large = argc > 1 ? memset(malloc(1 << 20), 1, 1 << 20) : NULL;
  for (int i = 0; i < 3000; ++i) memset(rows[i] = malloc(64000), i, 64000);
  for (int i = 0; i < 3000; ++i) {
    if (rows[i][i] != (char)i) return 1;
  }
  FILE* status = fopen("/proc/self/status", "r");
  char line[200];
  long peak = 0;
  while (fgets(line, sizeof(line), status)) sscanf(line, "VmHWM: %ld", &peak);
  if (large) sleep(1);
  puts(peak < 64 << 10 ? "good" : "too much");
}
P
gcc -O1 rows.c -o rows
printf '[default]\npagesAbove = 32 KiB\n' >rows.conf
for way in "--pages-above 32KiB" "--pages-above 4KiB --page-block 4KiB" ""; do
  config=/dev/null
  [ -n "$way" ] || config=$work/rows.conf
  if [ "$(RAMSPAN_CONFIG=$config "$ramspan" run --pages $way --memory 32MiB -- ./rows 2>err)" = good ]; then
    echo "ok: small rows, ${way:-by a file}"
  else
    fail "small rows, ${way:-by a file}" err
  fi
done
# It ran without a limit, and nobody heard of it.
if "$ramspan" run --pages --memory 32MiB -- ./rows 2>err | grep -q "too much" && grep -q "has swapped nothing" err; then
  echo "ok: small rows that are left to malloc are told of"
else
  fail "small rows that are left to malloc are told of" err
fi
# Where other allocations were large enough nobody heard of it either, and only of some programs' ends (a newcomer's matrix, by rows of 216 bytes).
if "$ramspan" run --pages --memory 32MiB -- ./rows with_large 2>err | grep -q "too much" && grep -q "the limit of 32 MiB holds only for what --pages takes" err; then
  echo "ok: small rows beside a large allocation are told of"
else
  fail "small rows beside a large allocation are told of" err
fi
# What is read of swap for what is used. Single bytes anywhere, under a limit below 16 MiB: descriptors had a twelfth of it, as where managedPtrs want the rest, and most of the data stayed units of
# 64 KiB (59 KiB for each fault). With memory that grows beside them: first touches in order made units (60 KiB). With a short sweep now and then: 50 KiB. Records of a unit, anywhere: large
# blocks, because units were full (225 KiB for each).
cat >lookups.c <<'P'
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  const char what = argc > 1 ? argv[1][0] : 0;
  const size_t n = (what == 'r' ? 192 : 28) << 20, piece = 256 << 10, record = 64 << 10;
  size_t filled = 0;
  unsigned char* p = malloc(n);
  for (; filled < (what == 'a' ? 14 << 20 : n); ++filled) p[filled] = filled >> 12;
  uint64_t x = 88172645463325252, bad = 0;
  for (int i = 0; i < (what == 'r' ? 12000 : 60000); ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    const size_t at = x % filled;
    bad += p[at] != (unsigned char)(at >> 12);
    if (what == 'r') {
      for (size_t k = at / record * record, end = k + record; k < end; k += 64) bad += p[k] != (unsigned char)(k >> 12);
    }
    if (i % 1200 != 0) continue;
    if (what == 'a' && i % 4800 == 0) {
      for (const size_t end = filled + 4 * piece; filled < end; ++filled) p[filled] = filled >> 12;
    }
    if (what == 's') {
      for (size_t k = x % 100 * piece, end = k + piece; k < end; ++k) bad += p[k] != (unsigned char)(k >> 12);
    }
  }
  puts(bad ? "bad" : "good");
}
P
gcc -O1 lookups.c -o lookups
few_bytes='
import json, sys
d = json.load(open(sys.argv[1]))
each = sum(t["bytes_in"] for t in d["tiers"].values()) / (12000 if sys.argv[2] == "records" else d["pages"]["faults"])
print(round(each), "bytes for each fault (records: each of them)")
sys.exit(each > (131072 if sys.argv[2] == "records" else 16384))'
if [ "${RAMSPAN_PAGE_BLOCK:-}" = restless ] || ! RAMSPAN_PAGE_FAULTS=signal "$ramspan" run --pages --memory 8MiB -s 0 -- true 2>err; then
  echo "skipped: bytes for each fault (by protect no block is smaller than 64 KiB, and restless ones are as large as it happens)"
else
  for what in bytes:8MiB appends:8MiB sweeps:8MiB records:64MiB; do
    if [ "$("$ramspan" run --pages --memory "${what#*:}" --stats lookups.json -s 0 -- ./lookups "${what%:*}" 2>err)" = good ] && python3 -c "$few_bytes" lookups.json "${what%:*}" >>err; then
      echo "ok: what is read for ${what%:*} anywhere"
    else
      fail "what is read for ${what%:*} anywhere" err
    fi
  done
fi
# Many descriptors beside what is locked: an error, and for what was locked before it was touched the end, with the reason.
for scenario in locks_beside_descriptors:good locks_before_they_are_touched:'has locked or protected'; do
  timeout 60 "$ramspan" run --pages --page-block 4KiB --memory 16MiB -s 0 -- "$preloaded" "${scenario%%:*}" >out 2>&1
  if grep -q "${scenario#*:}" out; then
    echo "ok: ${scenario%%:*}"
  else
    fail "${scenario%%:*}" out
  fi
done
if "$no_userfaultfd" "$ramspan" run --pages --memory 8MiB -- "$preloaded" children >out 2>err && grep -q 'SIGSEGV' err && grep -q good out; then
  echo "ok: without userfaultfd"
else
  fail "without userfaultfd" err
fi
export RAMSPAN_PAGE_BLOCK=2MiB
same sort_huge 16MiB 'exec sort -S 32M numbers | md5sum'
same python_huge 8MiB 'exec python3 pool.py'
unset RAMSPAN_PAGE_BLOCK
export RAMSPAN_PAGE_FAULTS=protect
same sort_by_protection 2MiB 'exec sort -S 32M numbers | md5sum'
same python_by_protection 8MiB 'exec python3 pool.py'
export RAMSPAN_PAGE_FAULTS=signal
same sort_by_signal 2MiB 'exec sort -S 32M numbers | md5sum'
export RAMSPAN_PAGE_MOVES=copy
same sort_by_copies 2MiB 'exec sort -S 32M numbers | md5sum'
finish
