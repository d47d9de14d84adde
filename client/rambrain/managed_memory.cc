// Rambrain's managers over <ramspan/runtime.h> and <ramspan/extend.h>.
#include "rambrain/managedMemory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/rambrain/stack_mutex.h"
#include "client/rambrain/strategy.h"
#include "client/rambrain/without_heap.h"
#include "common/log.h"
#include "common/program_code.h"
#include "common/raise.h"
#include "rambrain/cyclicManagedMemory.h"
#include "rambrain/dummyManagedMemory.h"
#include "rambrain/managedPtr.h"
#include "ramspan/extend.h"

namespace rambrain {

namespace {
constexpr global_bytesize kLeastLimit = mib;
using ull = unsigned long long;
}  // namespace

std::mutex& StackMutex() {
  static auto* mutex = new std::mutex;  // used at exit, too
  return *mutex;
}

namespace {
// The program's managers, whether or not they are on the stack. Guarded by StackMutex.
std::vector<managedMemory*>& Living() {
  static auto* living = new std::vector<managedMemory*>;  // used at exit, too
  return *living;
}
}  // namespace

managedMemory* managedMemory::defaultManager = cyclicManagedMemory::TheConfigured();
std::atomic<bool> managedMemory::refuses_{false};

managedMemory::managedMemory(managedSwap* swap, global_bytesize size) : managedMemory(Kind::kProgram, swap, size) {}

managedMemory::managedMemory(Kind kind, managedSwap* swap, global_bytesize size) : kind_(kind), swap_(swap) {
  if (kind == Kind::kConfigured) return;
  if (ramspan::ProgramCode::running() != ramspan::ProgramCode::Of::kNobody) {  // before anything has changed: not all of it could be taken back
    Raise(incompleteSetupException("a manager was constructed within a call of a swap's or a strategy's, which has to return first"));
  }
  if (kind == Kind::kProgram && swap == nullptr) Raise(incompleteSetupException("a manager was constructed without a swap"));
  rambrain_detail::TranslatedAll([&] { ComeIntoForce(size); });
}

namespace {
constexpr const char* kNotAsBefore = "the limits of the manager before could not be put into force again";
}  // namespace

// Whole, or not at all: who is refused leaves no trace of this manager anywhere.
void managedMemory::ComeIntoForce(global_bytesize size) {
  defaultManager->Capture();
  settings_.loading = settings_.unloading = ConfiguredPreemptive();
  if (kind_ == Kind::kProgram) {
    settings_.memory = AtLeastLeast(size);
    swap_->Attach();
  }
  try {
    if (kind_ == Kind::kProgram) {
      // First the limit: what must leave belongs to the manager before, and goes to its swap.
      rambrain_detail::LetElementsGo();
      ramspan::SetMemoryLimit(settings_.memory);
      PutIntoForce();
    }
    if (kind_ != Kind::kDummy) base_ = ramspan::GetStatistics();
    {
      std::lock_guard lock(StackMutex());
      Living().reserve(Living().size() + 1);
    }
    SwitchStrategy();  // to Ramspan's: a derived class's own comes with its inCharge
  } catch (...) {
    if (kind_ == Kind::kProgram) {
      rambrain_detail::TryForAWhile(kNotAsBefore, [] { defaultManager->PutIntoForce(); });
      swap_->Detach();
    }
    throw;
  }
  {
    std::lock_guard lock(StackMutex());
    Living().push_back(this);
    previous_ = defaultManager;
    defaultManager = this;
  }
  refuses_.store(kind_ == Kind::kDummy, std::memory_order_relaxed);
}

managedMemory::~managedMemory() {
  if (kind_ == Kind::kConfigured) return;
  {
    std::lock_guard lock(StackMutex());
    std::erase(Living(), this);
  }
  if (!IsDefault()) {  // out of turn: nothing is in force but for its swap, where objects may be
    std::lock_guard lock(StackMutex());
    managedMemory* above = defaultManager;
    while (above != nullptr && above->previous_ != this) above = above->previous_;
    if (above != nullptr) above->previous_ = previous_;  // else the program has set defaultManager by itself
  } else {
    {
      std::lock_guard lock(StackMutex());
      defaultManager = previous_;
    }
    refuses_.store(previous_->kind_ == Kind::kDummy, std::memory_order_relaxed);
    rambrain_detail::TryForAWhile("the strategy of the manager before could not be put into force again, Ramspan chooses", [this] { previous_->SwitchStrategy(); });
    if (kind_ == Kind::kProgram) rambrain_detail::TryForAWhile(kNotAsBefore, [this] { previous_->PutIntoForce(); });
  }
  if (kind_ == Kind::kProgram && swap_ != nullptr) swap_->Detach();
}

void managedMemory::SwapGone(const managedSwap* swap) noexcept {
  std::lock_guard lock(StackMutex());
  for (managedMemory* manager : Living()) {
    if (manager->swap_ == swap) manager->swap_ = nullptr;
  }
}

bool managedMemory::ConfiguredPreemptive() {
  static const bool preemptive = *rambrain_detail::Translated([] { return ramspan::EffectiveOptions(); }).preemptive;
  return preemptive;
}

void managedMemory::Capture() {
  if (kind_ == Kind::kDummy) return;
  if (kind_ == Kind::kConfigured && !std::exchange(captured_, true)) {
    settings_.loading = settings_.unloading = ConfiguredPreemptive();
  }
  if (is_in_force_) settings_.memory = rambrain_detail::Translated([] { return ramspan::MemoryLimit(); });
}

void managedMemory::PutIntoForce() {
  if (kind_ == Kind::kDummy) return;
  is_in_force_ = false;
  ramspan::UseSwap(swap_ ? static_cast<ramspan::SwapId>(swap_->id_) : ramspan::SwapId::kConfigured);
  ramspan::SetPreemptive(settings_.loading, settings_.unloading);
  ramspan::SetWaitForPins(settings_.waits);
  if (ramspan::MemoryLimit() != settings_.memory) ramspan::SetMemoryLimit(settings_.memory);
  is_in_force_ = true;
}

void managedMemory::Enforce() {
  rambrain_detail::Translated([&] { PutIntoForce(); });
}

void managedMemory::WithConfigured(const std::function<void()>& change) {
  managedMemory* configured = cyclicManagedMemory::TheConfigured();
  if (defaultManager == configured) return change();
  change();
  configured->settings_.memory = ramspan::MemoryLimit();
  defaultManager->Enforce();
}

global_bytesize managedMemory::ConfiguredLimit() { return cyclicManagedMemory::TheConfigured()->getMemoryLimit(); }

void managedMemory::ThrowNoManager() {
  Raise(memoryException("no memory manager is in place: a dummyManagedMemory is the default one; construct a "
                        "cyclicManagedMemory, or let the dummy go"));
}

void managedMemory::closeSwap() {
  rambrain_detail::Translated([] { ramspan::CloseSwap(); });
}

global_bytesize managedMemory::AtLeastLeast(global_bytesize limit) {
  static std::atomic<bool> said{false};  // relaxed: publishes nothing
  if (limit >= kLeastLimit) return limit;
  if (!said.exchange(true, std::memory_order_relaxed)) {
    ramspan::LogWarning("a memory limit of %llu bytes is below 1 MiB, the least one: 1 MiB is used", static_cast<ull>(limit));
  }
  return kLeastLimit;
}

bool managedMemory::setMemoryLimit(global_bytesize size) {
  size = AtLeastLeast(size);
  rambrain_detail::LetElementsGo();
  try {
    if (IsDefault() && kind_ != Kind::kDummy) {
      ramspan::SetMemoryLimit(size);
      is_in_force_ = true;
    }
  } catch (const ramspan::Error& e) {
    ramspan::LogWarning("the memory limit stays as it was: %s", e.what());
    return false;
  }
  settings_.memory = size;
  return true;
}

global_bytesize managedMemory::getMemoryLimit() const {
  if (kind_ == Kind::kDummy) return 0;
  return IsDefault() ? rambrain_detail::Translated([] { return ramspan::MemoryLimit(); }) : settings_.memory;
}
global_bytesize managedMemory::getUsedMemory() const { return IsDefault() ? ramspan::GetStatistics().memory_used : 0; }
global_bytesize managedMemory::getSwappedMemory() const { return IsDefault() ? ramspan::GetStatistics().swapped : 0; }

global_bytesize managedMemory::getTotalSwapMemory() const {
  if (kind_ == Kind::kDummy) return 0;
  return swap_ ? swap_->getSwapSize() : ramspan::GetSwapUse(ramspan::SwapId::kConfigured).capacity;
}
global_bytesize managedMemory::getFreeSwapMemory() const {
  if (kind_ == Kind::kDummy) return 0;
  if (swap_) return swap_->getFreeSwap();
  const ramspan::SwapUse use = ramspan::GetSwapUse(ramspan::SwapId::kConfigured);
  return use.capacity > use.used ? use.capacity - use.used : 0;
}

bool managedMemory::setOutOfSwapIsFatal(bool fatal) {
  settings_.waits = !fatal;
  if (IsDefault()) rambrain_detail::Translated([&] { ramspan::SetWaitForPins(!fatal); });
  return std::exchange(settings_.fatal, fatal);
}

// ---- cyclicManagedMemory, dummyManagedMemory ----

cyclicManagedMemory::cyclicManagedMemory(managedSwap* swap, global_bytesize size)
    : managedMemory(Kind::kProgram, swap, size) {}
cyclicManagedMemory::cyclicManagedMemory(Configured) : managedMemory(Kind::kConfigured, nullptr, 0) {}
cyclicManagedMemory::~cyclicManagedMemory() = default;

managedMemory* cyclicManagedMemory::TheConfigured() {
  static auto* configured = new cyclicManagedMemory(Configured());
  return configured;
}

bool cyclicManagedMemory::setPreemptiveLoading(bool preemptive) {
  if (IsDefault()) Capture();
  const bool old = std::exchange(settings_.loading, preemptive);
  if (IsDefault()) rambrain_detail::Translated([&] { ramspan::SetPreemptive(settings_.loading, settings_.unloading); });
  return old;
}

bool cyclicManagedMemory::setPreemptiveUnloading(bool preemptive) {
  if (IsDefault()) Capture();
  const bool old = std::exchange(settings_.unloading, preemptive);
  if (IsDefault()) rambrain_detail::Translated([&] { ramspan::SetPreemptive(settings_.loading, settings_.unloading); });
  return old;
}

void cyclicManagedMemory::printCycle() const {
  std::printf("%s", ramspan::DescribePolicy().c_str());
  std::fflush(stdout);
}

void cyclicManagedMemory::printMemUsage() const {
  const ramspan::Statistics s = ramspan::GetStatistics();
  std::fprintf(stderr, "%llu\t%llu=%llu\t%llu\n", static_cast<ull>(s.memory_used), static_cast<ull>(s.swap_used),
               static_cast<ull>(s.swapped), static_cast<ull>(s.preemptive));
}

bool cyclicManagedMemory::checkCycle() const { return ramspan::CheckPolicy(); }

dummyManagedMemory::dummyManagedMemory() : managedMemory(Kind::kDummy, nullptr, 0) {}
dummyManagedMemory::~dummyManagedMemory() = default;

}  // namespace rambrain
