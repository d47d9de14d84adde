#include "client/policy/use_history.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>
#include <utility>

namespace ramspan {

UseHistory::UseHistory(uint32_t uses) : mask_(uses - 1) {
  static_assert(sizeof(Use_) + std::size(kOrders) * sizeof(uint32_t) == kBytesAUse);
  if (!uses_.Grow(uses) || !found_[0].Grow(uses) || !found_[1].Grow(uses)) throw std::bad_alloc();
}

void UseHistory::Resize(uint32_t uses) noexcept {
  if (uses == this->uses()) return;
  ZeroArray<Use_> old;
  std::array<ZeroArray<uint32_t>, 2> found;
  if (!old.Grow(uses) || !found[0].Grow(uses) || !found[1].Grow(uses)) return;
  std::swap(uses_, old);
  const uint32_t mask = uses - 1, old_mask = std::exchange(mask_, mask);
  for (uint32_t i = 0, use = now_; i <= std::min(mask, old_mask) && use != kNone; ++i, --use) Entry(use) = old[use & old_mask];
  // A context's place is given by some bits of it, of which one more or less is looked at now. Of two that meet the later one stays.
  for (size_t order = 0; order < found.size(); ++order) {
    for (uint32_t i = 0; i <= std::max(mask, old_mask); ++i) {
      const uint32_t use = found_[order][i & old_mask];
      uint32_t& kept = found[order][i & mask];
      if (IsRemembered(use) && (kept == kNone || now_ - use < now_ - kept)) kept = use;
    }
  }
  found_ = std::move(found);
}

uint64_t UseHistory::Context(const Thread& thread, uint32_t chunk, size_t order) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  uint64_t hash = (chunk + 1) * kOdd;
  for (size_t i = 0; i < order; ++i) hash = (std::rotl(hash, 23) ^ thread.before[i]) * kOdd;
  return hash;
}

UseHistory::Contexts UseHistory::ContextsOf(const Thread& thread, uint32_t chunk) {
  Contexts contexts;
  for (size_t i = 0; i < contexts.size(); ++i) contexts[i] = Context(thread, chunk, kOrders[i]);
  return contexts;
}

// *known: not by the chunk alone.
uint32_t UseHistory::FindPlace(Thread* thread, uint32_t chunk, const Contexts& contexts, bool* known) {
  *known = true;
  if (IsRemembered(thread->place)) {
    const uint32_t next = Entry(thread->place).successor;
    if (IsRemembered(next) && next != now_ && Entry(next).chunk == chunk) {
      ++thread->run;
      return next;
    }
  }
  thread->run = 0;
  for (size_t i = 0; i < std::size(kOrders); ++i) {
    if (thread->used < kOrders[i]) continue;
    const uint32_t found = Found(i, contexts[i]);
    if (IsRemembered(found) && Entry(found).chunk == chunk) return found;
  }
  *known = false;
  return lasts_[chunk];
}

// Also behind a use that one of the passes has and the other one has not, but that is nothing that they have in common: a slower pass would do.
void UseHistory::Follow(Model* model, uint32_t chunk) const {
  const auto behind = [this](uint32_t use) {
    const uint32_t next = IsRemembered(use) ? Entry(use).successor : kNone;
    return IsRemembered(next) && next != now_ ? next : kNone;
  };
  const uint32_t next = behind(model->role), after = behind(next);
  if (next == kNone) {
    *model = {};
  } else if (Entry(next).chunk == chunk) {
    model->score = std::min(model->score + kModelGain, kModelMost);
    model->role = next;
  } else if (after != kNone && Entry(after).chunk == chunk) {
    model->role = after;
  } else if (Entry(model->role).chunk != chunk) {
    model->role = next;
    --model->score;
  }
}

// Of nested loops the outermost one is the best model: its passes are the longest ago.
void UseHistory::FollowModels(Thread* thread, uint32_t chunk, uint32_t place) const {
  Model &model = thread->model, &rival = thread->rival;
  Follow(&model, chunk);
  Follow(&rival, chunk);
  const auto is_older = [this](const Model& one, const Model& other) { return other.score <= 0 || now_ - one.role > now_ - other.role; };
  if (rival.trusted() && is_older(rival, model)) model = std::exchange(rival, {});
  const Model own = {place, kModelBegin};
  if (rival.score <= 0 && place != kNone && is_older(own, model)) rival = own;
}

// Who had this role and has not been used for longer than this chunk would be may never be: twice as long is later than what is known to come.
uint32_t UseHistory::IntervalOfRole(Model* model, uint32_t chunk, uint32_t own) const {
  if (!model->trusted() || !IsRemembered(model->role) || Entry(model->role).chunk == chunk) return own;
  const uint32_t interval = Entry(model->role).interval;
  if (interval != 0) {
    const bool agrees = std::max(own, interval) - std::min(own, interval) <= std::max(own, interval) / 4;
    model->kinship = std::clamp(model->kinship + (agrees ? 1 : -1), -kKinshipMost, kKinshipMost);
  }
  if (model->kinship <= 0) return own;
  const uint32_t unused = now_ - model->role;
  return interval != 0 ? interval : own < unused ? 2 * unused : own;
}

uint32_t UseHistory::Use(uint32_t chunk, uint32_t thread_number, bool in_time) {
  Thread& thread = Of(thread_number);
  if (++now_ == kNone) ++now_;
  const uint32_t last = lasts_[chunk];
  if (last != kNone && IsRemembered(last)) Entry(last).interval = now_ - last;
  bool known = false;
  const Contexts contexts = ContextsOf(thread, chunk);
  const uint32_t place = FindPlace(&thread, chunk, contexts, &known);
  FollowModels(&thread, chunk, place);
  Entry(now_) = {.chunk = chunk};
  if (IsRemembered(thread.last)) Entry(thread.last).successor = now_;
  for (size_t i = 0; i < std::size(kOrders); ++i) {
    if (thread.used >= kOrders[i]) Found(i, contexts[i]) = now_;
  }
  std::shift_right(thread.before.begin(), thread.before.end(), 1);
  thread.before[0] = chunk;
  thread.used = std::min<uint32_t>(thread.used + 1, static_cast<uint32_t>(thread.before.size()));
  thread.last = now_;
  thread.place = place;
  lasts_[chunk] = now_;
  if (last == kNone) return 0;
  const uint32_t interval = IsRemembered(place) && Entry(place).chunk == chunk ? Entry(place).interval : 0;
  const uint32_t own = interval != 0 ? interval : now_ - last;
  if (known) return own;
  const uint32_t role = IntervalOfRole(&thread.model, chunk, own);
  return in_time ? std::max(own, role) : role;
}

}  // namespace ramspan
