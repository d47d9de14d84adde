#!/usr/bin/env bash
# Can the tests fail? Puts one bug at a time into a copy of the engine, builds the simulation, interleaving and unit
# tests, and says which of them finds it. Not part of ./check: each bug is a build (about 8 s; all of it 5 minutes).
# usage: tests/mutation/run.sh [WORDS]     only bugs whose name contains WORDS
# Exit status: 0 when every bug is found.
set -u -o pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
git -C "$root" ls-files -z | (cd "$root" && xargs -0 cp --parents -t "$scratch") || exit 1
cd "$scratch" || exit 1

# name @ file @ sed expression
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
a short read counts as whole @ client/engine/fetch.cc @ s/const bool moved = .*;/const bool moved = io.result == StatusCode::kOk; const_cast<IoRequest\&>(io).checksum = c->checksum;/
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
bringing one swap home waits for the others @ client/engine/limits.cc @ s/ \&\& chunk->slot \&\& leaving(chunk->slot)) PollOnce/) PollOnce/
room asked for goes back by its number @ client/engine/evict.cc @ s/    room = tier_->MakeRoom(.*/    Result<SlotRef> slot = tier_->Reserve(result->no_slot_yet); room = slot.status(); if (slot.ok()) tier_->Free(slot.value(), result->no_slot_yet);/
a table is never given up @ client/front/pin_registry.cc @ s/owned.store(false, std::memory_order_release)/owned.store(true, std::memory_order_release)/
a tier that fails is the first choice @ client/swap/tiered_swap.cc @ s/      rest_\[i\].store(kRestSlots, .*//
the search for victims wraps @ client/engine/evict.cc @ s/bytes = std::min(2 \* bytes, std::max(bytes, budget_.limit()))/bytes *= 2/
cached frames keep their addresses @ client/arena/arena.cc @ s/while (!unit \&\& GiveBackOne())/while (false)/
an exception leaves the mutex open @ common/mutex.h @ s/~MutexUnlock() RS_RELEASE() { mutex_.lock(); }/~MutexUnlock() RS_RELEASE() { if (!std::uncaught_exceptions()) mutex_.lock(); }/
who waits for memory does not look at the chunk again @ client/engine/memory.cc @ s/while (PhaseOf(chunk) == Phase::kSwapped \&\& !Has(chunk, kDoomed)) {/while (true) {/
memory goes to whoever comes @ client/engine/memory.cc @ s/  if (oldest_ != nullptr) return {};//
small chunks pass a large one for ever @ client/engine/memory.cc @ s/if (passes_ >= kPassesMax/if (false/
nobody may pass @ client/engine/memory.cc @ s/if (RoundUpToGranule(waiter.bytes) > arena_.available()) return false;/return false;/
counted pins are nobody's @ client/front/pin_registry.cc @ s/if (lives \&\& table->counted.load.*//
descriptors take all of the limit @ client/engine/limits.cc @ s/if (budget_.frames_limit() < FramesFloor()) {/if (false) {/
memory and swap fill up together @ client/engine/memory.cc @ s/if (!options_.keep_escape/if (true/
the last clean slots are taken @ client/engine/evict.cc @ s/ \&\& is_last) continue;/ \&\& false) continue;/
a wrong checksum is not read again @ client/engine/engine.cc @ s/constexpr uint32_t kRereadsMax = 1;/constexpr uint32_t kRereadsMax = 0;/
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
TXT
}

targets="sim_tests interleave_tests unit_tests"
build() { cmake --build build --target $targets >build.log 2>&1; }
echo "building what is right"
{ cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release >build.log 2>&1 && build; } || { tail -30 build.log; exit 1; }
run() {  # the first test that fails, or nothing
  local target out
  for target in $targets; do
    out=$(RAMSPAN_TEST_SEEDS=150 timeout 60 "build/bin/$target" --gtest_brief=1 --gtest_fail_fast \
      --gtest_filter='-Topology*:Log*:AioFile*:*Config*' 2>&1) && continue
    out=$(grep -m1 -oE '(FAILED  ?\] [^ ,]+|check failed: .*)' <<<"$out" | head -c 90)
    echo "$target: ${out:-crashed or hung}"
    return
  done
}
found=$(run)
[ -z "$found" ] || { echo "without any bug: $found"; exit 1; }

survived=0
while IFS= read -r line; do
  name=${line%% @ *} file=${line#* @ }
  expression=${file#* @ } file=${file%% @ *}
  [[ $name == *"${1:-}"* ]] || continue
  cp "$file" kept
  sed -i "$expression" "$file"
  if cmp -s kept "$file"; then
    result="NOT APPLIED: the code has changed, write the bug anew" survived=$((survived + 1))
  elif ! build; then
    result="DOES NOT COMPILE: $(grep -m1 error build.log)" survived=$((survived + 1))
  else
    result=$(run)
    [ -n "$result" ] || { result="SURVIVED" survived=$((survived + 1)); }
  fi
  cp kept "$file"
  printf '%-46s %s\n' "$name" "$result"
done < <(bugs)
[ $survived -eq 0 ]
