#!/usr/bin/env bash
# What programs may do with memory that is swapped by pages, in one way of faults and moves: each scenario is a program of its own (preloaded*.cc).
# usage: scenarios.sh RAMSPAN PRELOADED PRELOADED_USER thread|signal|protect auto|copy
# The kernel's accesses are served (thread), or as for a user for whom they are not (signal), or as in a container without userfaultfd (protect); pages are
# moved where the kernel can, or as on one that cannot (copy).
set -u
ramspan=$(realpath "$1") preloaded=$(realpath "$2") preloaded_user=$(realpath "$3") faults=$4 moves=$5
. "$(dirname "$(realpath "$0")")/cases.sh"
export RAMSPAN_PAGE_FAULTS=$faults RAMSPAN_PAGE_MOVES=$moves
names=(
  guard_pages remaps calls signals stacks locks child children child_calls child_signals frees_during_forks ticks small_stack descriptors streams
  messages waiting masks cancelled devices appends blocking handler_calls refused answers own_faults rights rights_beside_readers rights_in_children
  locks_and_rights locks_of_kernel rights_of_calls arguments soak handlers_during_forks children_of_small_files waits_on_stacks late_messages
  child_handler_masks lengths locks_beside_allocations spawns restarts small_answers control_data more_names locks_of_stacks rooms_that_end environments
  signals_of_vfork signals_of_unknown_children words_of_clone bad_pointers terminals calls_on_stacks given_back_in_pieces forks_beside_devices
  splits_beside_discards children_without_standard_error forks_of_cancelled
  forks_beside_stacks forks_beside_stacks_in_pages
  starts_in_vfork grows_in_vfork message_queues deep_handlers exits_in_handlers other_folders cut_streams buffers_in_children asynchronous_files loaded_library grown_mappings
)
for name in "${names[@]}"; do
  children=copy
  [ $name != child ] || children=none
  scenario $name env RAMSPAN_PAGE_CHILDREN=$children "$ramspan" run --pages --memory 8MiB -s 0 -- "$preloaded" $name
done
scenario "descriptors beside a memory server" "$ramspan" run --pages --memory 8MiB -s 1 --server-memory 64MiB -- "$preloaded" descriptors
# Else the mover has mostly made room before the child needs it.
scenario "grows_in_vfork without the mover" env RAMSPAN_PREEMPTIVE=false "$ramspan" run --pages --memory 8MiB -s 0 -- "$preloaded" grows_in_vfork
scenario "other_folders beyond swapMemory" env RAMSPAN_SWAP_MEMORY=16MiB "$ramspan" run --pages --memory 8MiB -s 0 -- "$preloaded" other_folders
# What moves have no part in.
[ $moves = auto ] || finish

# What is done at the end comes from whatever stack exit() was called on.
scenario exits_on_stacks "$ramspan" run --pages --memory 8MiB --stats end.json -s 0 -- "$preloaded" exits_on_stacks
grep -q '"faults"' end.json || fail "exits_on_stacks: no report"
scenario faults_in_malloc "$ramspan" run --pages --memory 64MiB --page-block 4KiB -s 0 -- "$preloaded" faults_in_malloc
for name in mapped_files first_pages_in_children; do
  scenario $name "$ramspan" run --pages --memory 8MiB -s 0 -- "$preloaded_user" $name
done
# The end, with the reason.
timeout 60 "$ramspan" run --pages --memory 8MiB -s 0 -- "$preloaded_user" closes_all_unasked >out 2>err
if [ $? = 134 ] && [ ! -s out ] && grep -q 'so the process ends' err && grep -q descriptor err; then
  echo "ok: closes_all_unasked"
else
  fail closes_all_unasked out err
fi
scenario traced env RAMSPAN_TRACE="$work/trace" "$ramspan" run --pages --memory 8MiB -s 0 -- "$preloaded_user" traced
{ [ ! -s own ] && [ "$(stat -c %s trace)" -gt 1000 ]; } || fail "traced: the trace is not where it belongs"
# The first large allocation of all was libc's own buffer: it left, and what had been written was lost.
[ $faults = thread ] || scenario first_buffer "$ramspan" run --pages --pages-above 4KiB --page-block 4KiB --memory 8MiB -- "$preloaded" first_buffer
# What access rights, which are no part of a userfaultfd, cannot do.
[ $faults != protect ] || finish

scenario "forks_of_cancelled beside a memory server" "$ramspan" run --pages --memory 8MiB -s 1 --server-memory 64MiB -- "$preloaded" forks_of_cancelled
scenario zeros_that_children_read "$ramspan" run --pages --memory 32MiB -s 0 -- "$preloaded" zeros_that_children_read
# Far servers: the network library's sockets are Ramspan's, too.
HOME=$work "$ramspan" server --memory 64MiB --listen 127.0.0.1:0 >served 2>&1 &
server=$!
for i in $(seq 100); do grep -q ' at ' served && break || sleep 0.1; done
place=$(sed -n 's/.* at \([^ ]*\), .*/\1/p' served)
[ -n "$place" ] || fail "a far server has not started" served
scenario "descriptors beside a far server" env HOME="$work" RAMSPAN_SWAP=remote RAMSPAN_SERVERS="$place" RAMSPAN_TRANSPORT=ofi RAMSPAN_TEST_FAR=1 "$ramspan" run --pages --memory 8MiB -- "$preloaded" descriptors
kill $server
wait $server 2>/dev/null
finish
