#!/usr/bin/env bash
# Can the tests fail? Puts one bug at a time into a copy of the sources, builds the tests that have to find it, and says which
# one does. Each bug is a build (some 10 s; one in a header that all include takes minutes), so this is a part of
# `./check long`. With ccache a second run costs little more than the tests.
# usage: tests/mutation/run.sh [WORDS]     only bugs whose name contains WORDS
# The last line counts them. Exit status: 0 when every bug is found.
set -u -f -o pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
git -C "$root" ls-files -z | (cd "$root" && xargs -0 cp --parents -t "$scratch") || exit 1
cd "$scratch" || exit 1
export CCACHE_BASEDIR=$scratch CCACHE_NOHASHDIR=1  # the next run's folder has another name
# Seconds. A bug's build is within build_limit, and each program that has to find it within test_limit: nothing here can hang.
configure_limit=300 build_limit=900 test_limit=60
bounded() { timeout --kill-after=5 "$@"; }

# name @ file @ sed expression @ tests
# tests: who has to find it, as [tsan/|fence/]TARGET[:GTEST_FILTER] separated by blanks, the likeliest first (the others are
# then not built); left out: $usual. "tsan/" for what x86 hides, because it orders plain loads and stores more strictly than
# the language does. "fence/" runs as where there is no membarrier, and 20 times, because a missing fence is found by chance:
# one run in three finds it.
#
# Bugs of that kind that no test here can find, since neither an x86 nor TSan shows them:
# - Barrier's fence on machines without membarrier weaker than seq_cst: TSan does not model fences, and g++ compiles any fence
#   behind a locked operation into nothing. detail/resident.h says what it is for.
# - the store before the fence of StorePinAnywhere (front.cc) relaxed: x86 knows no weaker one, and TSan would have to run
#   without membarrier and meet the few instructions until StorePin stores the same address once more, with release.
# - fetch_or of a first touch relaxed instead of acquire (front.cc): it could only stamp a touch with the epoch before.
usual="sim_tests interleave_tests unit_tests"
bugs() {
  cat <<'TXT'
an evictor ignores pins @ client/engine/evict.cc @ s/if (keep\[i\]) continue;//
a finished write ignores who came @ client/engine/evict.cc @ s/Has(c, kReadable | kDoomed)/Has(c, kDoomed)/
a reader during a write is not noted @ client/engine/fetch.cc @ s/feed_.Touch(chunk, kReadable, write);/feed_.Touch(chunk, 0, write);/
the pin tables are not scanned @ client/front/pin_registry.cc @ s/pinned\[i\] = pinned\[i\] || chunks\[i\] == held/static_cast<void>(held)/
counted pins are overlooked @ client/engine/evict.cc @ s/keep\[i\] = keep\[i\] || HasCountedPins(victims\[i\]);//
victims stay open @ client/engine/evict.cc @ s/for (Chunk\* c : victims) ClearBits(c, kReadable | kWritable);//
a dirty chunk is dropped @ client/engine/evict.cc @ s/if (!Has(c, kDirty)) {  \/\/ the slot/if (true) { \/\//
a failed write counts as done @ client/engine/evict.cc @ s/const bool ok = .*;/const bool ok = true;/
a short read counts as whole @ client/engine/fetch.cc @ /^void Engine::FinishRead/,/^}/s/ \&\& io.bytes_done == io.bytes;/;/
wrong checksums pass @ client/engine/fetch.cc @ s/  return moved \&\& options_.checksum .*/  return false;/
a write does not make dirty @ client/engine/engine.cc @ s/kReadable | kWritable | (write ? kDirty : 0)/kReadable | kWritable/
a writer does not wait for the chunk's write @ client/engine/fetch.cc @ s/        if (!write) return Status();/        return Status();/
a chunk freed in flight is never forgotten @ client/engine/evict.cc @ s/^    if (Has(c, kDoomed)) Forget(c);//
one victim that has to stay ends the search @ client/engine/evict.cc @ s/    seen += n;/    seen = chunks_.live();/
a thread seems to wait for ever @ client/engine/memory.cc @ s/      if (set) pins->SetWaiting(nullptr);//
one look makes a deadlock @ client/engine/memory.cc @ s/kDeadlock \&\& again \&\& /kDeadlock \&\& /
one chunk that is lost keeps the others away @ client/engine/limits.cc @ s/      first_failure = status;  .*/      { mutex_.unlock(); return status; }/
descriptors exceed the limit @ client/engine/limits.cc @ s/  if (arena_.committed() + budget_.metadata() <= budget_.total()) {/  if (true) {/
tables that do not fit stay charged @ client/engine/limits.cc @ s/^  budget_.ChargeMetadata(-bytes);//
a place is given to two objects @ client/front/bundles.cc @ s/    bundle->first_free = object->bytes;//
a bundle that was full stays closed @ client/front/bundles.cc @ s/if (!bundle->open \&\& bundle->live <= .*) Link(list, bundle);//
a slot is freed with transfers in flight @ client/engine/engine.cc @ s/if (chunk->op != nullptr || chunk == vacating_) {/if (chunk == vacating_) {/
metadata is not charged @ client/arena/budget.h @ s/    return std::min(limit(), total() > apart .*/    return limit() + 0 * apart;/
a clean chunk of a dead server is dropped @ client/engine/evict.cc @ s/tier_->IsLost(c->slot, c->bytes)/false/
a dirty chunk stays with a dead tier @ client/engine/evict.cc @ s/if (c->slot \&\& tier_->IsLost(c->slot, c->bytes)) {/if (!Has(c, kDirty) \&\& c->slot \&\& tier_->IsLost(c->slot, c->bytes)) {/
a retired tier has lost nothing @ client/swap/retirable_tier.cc @ s/return !use || use->IsLost/return use \&\& use->IsLost/
a write that ends with its tier has succeeded @ client/swap/retirable_tier.cc @ s/      if (request->is_write) request->result = .*//
bringing one swap home waits for the others @ client/engine/limits.cc @ s/ \&\& slot_leaves()) PollOnce/) PollOnce/
room asked for goes back by its number @ client/engine/room.cc @ s/    room = tier_->MakeRoom(.*/    Result<SlotRef> slot = tier_->Reserve(bytes); room = slot.status(); if (slot.ok()) tier_->Free(slot.value(), bytes);/
a table is never given up @ client/front/pin_registry.cc @ s/owned.store(false, std::memory_order_release)/owned.store(true, std::memory_order_release)/
a tier that fails is the first choice @ client/swap/tiered_swap.cc @ s/      rest_\[i\].store(kRestSlots, .*//
the search for victims wraps @ client/engine/evict.cc @ s/bytes = std::min(2 \* bytes, std::max(bytes, budget_.limit()))/bytes *= 2/
cached frames keep their addresses @ client/arena/arena.cc @ s/while (!unit \&\& GiveBackOne())/while (false)/
an exception leaves the mutex open @ common/mutex.h @ s/~MutexUnlock() RS_RELEASE() { mutex_.lock(); }/~MutexUnlock() RS_RELEASE() { if (!std::uncaught_exceptions()) mutex_.lock(); }/
who waits for memory does not look at the chunk again @ client/engine/memory.cc @ s/while (PhaseOf(chunk) == Phase::kSwapped \&\& !Has(chunk, kDoomed) \&\& /while (/
memory goes to whoever comes @ client/engine/memory.cc @ s/  if (!queue_.empty()) return {};//
small chunks pass a large one for ever @ client/engine/memory.cc @ s/if (passes_ >= kPassesMax/if (false/
nobody may pass @ client/engine/memory.cc @ s/if (RoundUpToGranule(waiter.bytes) > arena_.available()) return false;/if (waiter.bytes > 0) return false;/
all that wait look for memory @ client/engine/memory.cc @ s/  return watcher != nullptr \&\& watcher != /  return false \&\& watcher != / @ interleave_tests:WaitForPins.*
who waits for memory sleeps on when it is there @ client/engine/memory.cc @ s/^  queue_.Wake(waiter);// @ interleave_tests:*Crowds*
who waits for memory is not told that its chunk has come @ client/engine/memory_queue.cc @ s/if (waiter->chunk == chunk) Wake(waiter);// @ interleave_tests:*Crowds*
nobody watches for those that sleep @ client/engine/memory_queue.h @ s/if (awake_ == 0 \&\& oldest_ != nullptr) Wake(oldest_);// @ interleave_tests:Sleepers.*
nobody takes over from a watcher that is held up @ client/engine/memory_queue.cc @ s/  if (watches_ == watches) watcher_ = nullptr;// @ interleave_tests:HeldUp.*
who sleeps takes over from a watcher that looks @ client/engine/memory_queue.cc @ s/  if (watches_ == watches) watcher_ = nullptr;/  watcher_ = nullptr;/ @ interleave_tests:HeldUp.*
a watcher remains one while it writes a message @ client/engine/memory.cc @ s/^  if (TellWait(waiter->bytes, wait)) return Status();.*// @ interleave_tests:HeldUp.*
nobody looks while a watcher writes a message @ client/engine/memory.cc @ s/^  queue_.WakeOne();// @ interleave_tests:HeldUp.*
all that wait write a message, and get stuck there @ client/engine/memory.cc @ s/ || telling_wait_ || / || / @ interleave_tests:HeldUp.*
a late answer of a store is taken for a new one @ client/swap/store_swap.cc @ s/  if (question < answered_) return;// @ unit_tests:StoreSwap.*
nobody polls for those that sleep @ client/engine/fetch.cc @ s/  if (!polling_ \&\& sleepers_ != nullptr) .*// @ interleave_tests:Sleepers.*
who sleeps until a transfer ends is not woken @ client/engine/fetch.cc @ s/sleeper->wake.NotifyAll();/static_cast<void>(sleeper);/ @ interleave_tests:Sleepers.*
who cannot leave a full swap sleeps on @ client/engine/memory.cc @ s/^      WakeSlotless();// @ interleave_tests:MemoryQueue.*
counted pins are nobody's @ client/front/pin_registry.cc @ s/forgotten_pins |= all.generation.*//
counted pins that were handed over hide others @ client/front/pin_registry.cc @ s/all.pins + handed_over > counted_by_waiting/all.pins > counted_by_waiting/ @ unit_tests:PinRegistry.*
counted pins that were handed over are never forgotten @ client/front/pin_registry.cc @ s/if (after.pins == 0) ++after.generation;// @ unit_tests:PinRegistry.*
descriptors take all of the limit @ client/engine/limits.cc @ s/if (budget_.frames_limit() < FramesFloor()) {/if (false) {/
memory and swap fill up together @ client/engine/room.cc @ s/if (!options_.keep_room) return 0;/return 0;/
descriptors take what objects need to come back @ client/engine/limits.cc @ s/if (Status status = KeepRoom(); !status.ok()) {/if (Status status; !status.ok()) {/
an empty slot counts as written @ client/engine/fetch.cc @ s/if (chunk->slot) SetBits(chunk, kDirty);.*//
the last clean slots are taken @ client/engine/room.cc @ s/  return Excess(slotless, leaving, RoomFor(kept_sizes_, false)) == 0;/  return slotless + leaving > 0;/
a wrong checksum is not read again @ client/engine/engine.cc @ s/constexpr uint32_t kRereadsMax = 1;/constexpr uint32_t kRereadsMax = 0;/
a batch of transfers is a vector of its own @ client/swap/file_swap.cc @ s/  std::vector<AioTransfer>\& parts = ThreadScratch.*/  std::vector<AioTransfer> parts;/
a returned frame stays in use @ client/arena/arena.cc @ s/^  in_use_ -= bytes;//
read-ahead forgets its budget @ client/policy/cyclic.cc @ s/preemptive_bytes_max_ = memory_bytes \/ kWindowPart/preemptive_bytes_max_ = memory_bytes/
random access keeps the window @ client/policy/cyclic.cc @ s/  window_bytes_ = std::max(window_bytes_ \/ 2, chunk_bytes);//
an order is never looked for again @ client/policy/cyclic.cc @ s/  if (window_bytes_ <= chunk_bytes) {/  if (window_bytes_ <= chunk_bytes) { return;/
the window does not grow again @ client/policy/cyclic.cc @ s/  if (ordered_) window_bytes_ = .*//
a moved run breaks the cycle @ client/policy/cyclic.cc @ s/  At(chunk->next)->prev = chunk->prev;//
policy: every name makes the first one @ client/policy/policy_factory.cc @ s/if (name == kMemoryManagers\[i\]) return kMakers\[i\]/if (true) return kMakers[0]/
policy: an unknown name is taken for the default @ client/policy/policy_factory.cc @ s/return InvalidArgument(.*/return kMakers[0](chunks);/
policy: no second chance @ client/policy/second_chance.cc @ s/if (word & kReferenced) {/if (false) {/
policy: a chunk that came back is not in the ring @ client/policy/second_chance.cc @ s/^  Link(chunk);//
policy: a pin's first touch is not noted @ client/front/front.cc @ s/if (!(before & kReferenced)) NoteTouch/if (false) NoteTouch/
policy: every slow pin is a first touch @ client/front/front.cc @ s/if (!(before & kReferenced)) NoteTouch/NoteTouch/
policy: a touch at the engine is told each time @ client/engine/policy_feed.cc @ s/if ((before & kReferenced) || epoch() == 0) return;/if (epoch() == 0) return;/
policy: touches are taken twice @ client/engine/touch_ring.h @ s/begin_.store(begin, std::memory_order_release);//
policy: a full ring overwrites @ client/engine/touch_ring.h @ s/if (end - begin_.load(std::memory_order_acquire) == kCapacity) return false;//
policy: touches are another thread's @ client/front/pin_registry.cc @ s/touches.Take(thread, out)/touches.Take(0, out)/
policy: an epoch clears nothing @ client/engine/policy_feed.cc @ s/if (Has(chunk, kReferenced)) ClearBits(chunk, kReferenced);/static_cast<void>(chunk);/
policy: a miss is a touch besides @ client/engine/fetch.cc @ s/  SetBits(chunk, kReferenced);  \/\/ the miss is the touch//
policy: a hit is a touch besides @ client/engine/engine.cc @ s/    SetBits(chunk, kReferenced);  \/\/ the hit is the touch//
policy: what was touched is forgotten at its end @ client/engine/engine.cc @ /^void Engine::Free/,/^}/s/feed_.Drain();//
policy: costs are one tier's @ client/policy/tier_costs.h @ s/return 2 \* slot_bits::TierPlusOne(slot) + .*/static_cast<void>(slot); return 0; }/
pins: the barrier is not issued @ client/engine/evict.cc @ s/  pins_->Barrier();// @ interleave_tests:*PinAgainst*
pins: the barrier does nothing @ client/front/pin_registry.cc @ /^void PinRegistry::Barrier/,/^}/s/  const long failed = .*/  const long failed = 0;/ @ interleave_tests:PinBarrierDeath*
pins: the state is looked at before the slot is stored @ include/ramspan/detail/resident.h @ /^inline bool StorePin/,/^}/{s/  table->slots\[slot\].store(chunk, .*/  const uint64_t word = chunk->state.load(std::memory_order_acquire); table->slots[slot].store(chunk, std::memory_order_release);/;s/(chunk->state.load(std::memory_order_acquire) & kNeed)/(word \& kNeed)/} @ resident_tests
pins: the compiler may change the order of the two @ include/ramspan/detail/resident.h @ s/  std::atomic_signal_fence(.*// @ resident_tests
pins: no slot is stored @ include/ramspan/detail/resident.h @ s/  table->slots\[slot\].store(chunk, .*// @ resident_tests
pins: a slot is stored without release @ include/ramspan/detail/resident.h @ s/slots\[slot\].store(chunk, std::memory_order_release)/slots[slot].store(chunk, std::memory_order_relaxed)/ @ resident_tests
pins: the state is looked at without acquire @ include/ramspan/detail/resident.h @ s/chunk->state.load(std::memory_order_acquire) & kNeed/chunk->state.load(std::memory_order_relaxed) \& kNeed/ @ resident_tests
pins: an empty slot is taken without acquire @ include/ramspan/detail/resident.h @ s/slots\[i\].load(std::memory_order_acquire)/slots[i].load(std::memory_order_relaxed)/ @ resident_tests
pins: an unpin does not release @ include/ramspan/detail/resident.h @ s/store(nullptr, std::memory_order_release)/store(nullptr, std::memory_order_relaxed)/ @ resident_tests
pins: writers need not find the chunk writable @ include/ramspan/detail/resident.h @ s/kWrite ? kWritable | kDirty : 0/kWrite ? kDirty : 0/ @ resident_tests
pins: writers need not find the chunk dirty @ include/ramspan/detail/resident.h @ s/kWrite ? kWritable | kDirty : 0/kWrite ? kWritable : 0/ @ resident_tests
pins: a pin needs no reference @ include/ramspan/detail/resident.h @ s/kNeed = kReadable | kReferenced | /kNeed = kReadable | / @ resident_tests
pins: the scan does not acquire @ client/front/pin_registry.cc @ /^void PinRegistry::FindPinned/,/^}/s/slot.load(std::memory_order_acquire)/slot.load(std::memory_order_relaxed)/ @ tsan/interleave_tests:PinBarrier.Who*
pins: a pin without membarrier has no fence @ client/front/front.cc @ /^bool StorePinAnywhere/,/^}/s/atomic_thread_fence(std::memory_order_seq_cst)/atomic_thread_fence(std::memory_order_acq_rel)/ @ fence/interleave_tests:PinBarrier.Between*
pins: a counted pin ends without release @ client/front/front.cc @ s/fetch_sub(kOneCountedPin, std::memory_order_release)/fetch_sub(kOneCountedPin, std::memory_order_relaxed)/ @ tsan/interleave_tests:PinBarrier.Who*
policy: touches are put without release @ client/engine/touch_ring.h @ s/end_.store(end + 1, std::memory_order_release)/end_.store(end + 1, std::memory_order_relaxed)/ @ tsan/unit_tests:TouchRing.*
policy: touches are taken without acquire @ client/engine/touch_ring.h @ s/end_.load(std::memory_order_acquire)/end_.load(std::memory_order_relaxed)/ @ tsan/unit_tests:TouchRing.*
policy: room for touches is made without release @ client/engine/touch_ring.h @ s/begin_.store(begin, std::memory_order_release)/begin_.store(begin, std::memory_order_relaxed)/ @ tsan/unit_tests:TouchRing.*
policy: room for touches is found without acquire @ client/engine/touch_ring.h @ s/begin_.load(std::memory_order_acquire)/begin_.load(std::memory_order_relaxed)/ @ tsan/unit_tests:TouchRing.*
every access fails @ client/engine/fetch.cc @ /^Status Engine::Acquire(/,/^}/s/  return AcquireLocked(.*/  return AcquireLocked(chunk, write, when_pinned).ok() ? Unavailable("") : Unavailable("");/ @ sim_tests:*Schedules*
ofi: any secret will do @ common/handshake.cc @ s/if (sodium_memcmp(right.data(), in_.data(), kProofBytes) != 0) {/if (false) {/ @ ofi_tests:Handshake.*
ofi: a challenge is always the same @ common/handshake.cc @ s/  randombytes_buf(mine_.data() + kNonceAt, kNonceBytes);// @ ofi_tests:Handshake.*
ofi: a broken seal will do @ common/link.cc @ s/error == 0 ? DecodeFrame/true ? DecodeFrame/ @ ofi_tests:LinkPair.*
ofi: strangers may stay @ memserver/ofi_endpoint.cc @ s/now > visitor->greeting_ends) late.push_back(id);/false) late.push_back(id);/ @ ofi_tests:Isolation.AStranger*
ofi: a lease's key outlives it @ memserver/ofi_endpoint.cc @ s/  provided_.erase(lease.id);.*// @ ofi_tests:Isolation.AKey*
ofi: a lease's memory outlives it @ memserver/lease_memory.cc @ s/  const void\* again = mmap(memory.data().*/  const void* again = memory.data();/ @ ofi_tests:LeaseMemory.*
ofi: a lease's addresses are the next one's @ memserver/lease_memory.cc @ s/    Entomb({made->second.begin, made->second.bytes});/    munmap(made->second.begin, made->second.bytes);/ @ ofi_tests:LeaseMemory.*
ofi: a near lease's memory outlives it @ memserver/lease_memory.cc @ s/    fallocate(made->second.shared.number(), FALLOC_FL_PUNCH_HOLE.*// @ ofi_tests:Isolation.AMemoryFile*
ofi: memory files are not sealed @ memserver/lease_memory.cc @ s/F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL/F_SEAL_GROW | F_SEAL_SEAL/ @ ofi_tests:Isolation.AMemoryFile*
ofi: files that could shrink are mapped @ client/transport/ofi_server.cc @ s/  if (seals < 0 || .*// @ ofi_tests:NearServer.*
ofi: grants over others are taken @ client/transport/ofi_server.cc @ s/  if (Overlaps(grant.offset, grant.bytes)) return .*// @ ofi_tests:NearServer.*
ofi: a silent server is waited for @ client/transport/ofi_transport.cc @ s/    if (now - watched.last_arrival > options_.silence_max) .*// @ ofi_tests:Isolation.AServer*
TXT
}

# folder_of SPEC, target_of SPEC, filter_of SPEC
folder_of() { [[ $1 == tsan/* ]] && echo build-tsan || echo build; }
target_of() { local spec=${1#*/}; echo "${spec%%:*}"; }
filter_of() { [[ $1 == *:* ]] && echo "${1#*:}" || echo '-Topology*:Log*:AioFile*:*Config*'; }
build() {  # SPEC
  local folder configure=(-DCMAKE_BUILD_TYPE=Release)
  folder=$(folder_of "$1")
  [[ $1 != tsan/* ]] || configure=(--preset tsan)
  if [ ! -e "$folder/build.ninja" ]; then
    bounded "$configure_limit" cmake -S . -B "$folder" -G Ninja "${configure[@]}" >build.log 2>&1 || return
  fi
  bounded "$build_limit" cmake --build "$folder" --target "$(target_of "$1")" >build.log 2>&1
}
run() {  # SPEC; prints the first test that fails, or nothing
  local target out variant=(UCX_MEM_MMAP_HOOK_MODE=none RAMSPAN_TEST_SEEDS=150) repeat=1
  target=$(target_of "$1")
  [[ $1 != fence/* ]] || { variant+=(RAMSPAN_TEST_NO_MEMBARRIER=1) repeat=20; }
  out=$(bounded "$test_limit" env "${variant[@]}" "$(folder_of "$1")/bin/$target" --gtest_brief=1 --gtest_fail_fast \
    --gtest_repeat=$repeat --gtest_filter="$(filter_of "$1")" 2>&1) && return
  out=$(grep -m1 -oE '(FAILED  ?\] [^ ,]+|check failed: .*|WARNING: ThreadSanitizer: .*)' <<<"$out" | head -c 90)
  echo "$target: ${out:-crashed or hung}"
}
declare -A right=()
right() {  # SPEC; without a bug it builds and passes, which is looked at before its first bug
  [ -z "${right[$1]:-}" ] || return 0
  local found
  build "$1" || { tail -30 build.log; exit 1; }
  found=$(run "$1")
  [ -z "$found" ] || { echo "without any bug: $found"; exit 1; }
  right[$1]=yes
}
look() {  # SPEC...; sets result and counts it; the first that finds the bug is enough
  local spec
  for spec; do
    build "$spec" || { result="DOES NOT COMPILE: $(grep -m1 error build.log)" not_compiled=$((not_compiled + 1)); return; }
    result=$(run "$spec")
    [ -z "$result" ] || { found=$((found + 1)); return; }
  done
  result="SURVIVED" survived=$((survived + 1))
}

found=0 survived=0 not_applied=0 not_compiled=0
while IFS= read -r line; do
  IFS=$'\x01' read -r name file expression tests <<<"${line// @ /$'\x01'}"
  tests=${tests:-$usual}
  [[ $name == *"${1:-}"* ]] || continue
  for spec in $tests; do right "$spec"; done
  begin=$SECONDS
  cp "$file" kept
  sed -i "$expression" "$file"
  if cmp -s kept "$file"; then
    result="NOT APPLIED: the code has changed, write the bug anew" not_applied=$((not_applied + 1))
  else
    look $tests
  fi
  cp kept "$file"
  printf '%-64s %3d s  %s\n' "$name" $((SECONDS - begin)) "$result"
done < <(bugs)
echo "$found found, $survived survived, $not_applied not applied, $not_compiled do not compile, in $SECONDS s"
[ $found -gt 0 ] && [ $((survived + not_applied + not_compiled)) -eq 0 ]
