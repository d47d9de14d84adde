#include "client/front/bundles.h"
#include "common/engine_call.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <string>

#include "client/front/pin_registry.h"
#include "client/front/session.h"
#include "client/front/take_off.h"
#include "client/front/throw_status.h"
#include "common/log.h"
#include "common/public_call.h"
#include "common/units.h"
#include "ramspan/errors.h"

namespace ramspan {

using detail::BundleHead;
using detail::Object;
using detail::SmallObject;

namespace {

constexpr uint32_t kPlaceBytes[] = {8,   16,  24,  32,   48,   64,   80,   96,   112,  128,  160,  192,  224,  256,  320, 384,
                                    448, 512, 640, 768,  896,  1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096};
constexpr uint16_t kNoPlace = UINT16_MAX;
constexpr uint64_t kTableBytesMin = 1024, kTableBytesMax = 64 << 10;
constexpr uint64_t kChunkBytesMin = 8 << 10, kChunkBytesMax = 64 << 10;
constexpr uint64_t kBundlesInLimit = 128;  // at least so many bundles can be pinned at one time
constexpr uint64_t kEmptyInLimit = 32;     // of the limit, what is kept of bundles without objects is at most this part

// The class of each size, in steps of 8 bytes.
constexpr auto kClassOf = [] {
  std::array<uint8_t, detail::kSmallBytesEnd / 8 + 1> classes{};
  for (size_t i = 0, c = 0; i < classes.size(); ++i) {
    while (kPlaceBytes[c] < i * 8) ++c;
    classes[i] = static_cast<uint8_t>(c);
  }
  return classes;
}();

// Threads take the shards in turn. As the pins' (resident.h): read wherever an object is made, so no call.
size_t ThisShard(size_t shards) {
  static std::atomic<size_t> last{0};
  static thread_local constinit size_t mine __attribute__((tls_model("initial-exec"))) = 0;  // 0: none yet
  if (__builtin_expect(mine == 0, 0)) mine = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return mine % shards;
}

}  // namespace

// The head of a table; the objects follow. What is not constant is guarded by the shard's mutex.
struct alignas(BundleHead::kBytes) Bundles::Bundle : BundleHead {
  uint16_t places;  // constant
  uint16_t live = 0;
  uint16_t fresh = 0;            // places from here on were never used
  uint16_t first_free = kNoPlace;
  uint8_t size_class, tag;  // constant
  bool open = false;        // in the shard's circle
  bool kept = false;        // it is empty, and counted in empty_bytes_
  Shard* shard;             // constant
  Bundle *prev = nullptr, *next = nullptr;

  SmallObject* objects() { return reinterpret_cast<SmallObject*>(this + 1); }
};

size_t Bundles::ClassOf(uint64_t bytes, uint64_t alignment) {
  static_assert(std::size(kPlaceBytes) == kClasses);
  size_t c = kClassOf[(bytes + 7) / 8];
  while ((kPlaceBytes[c] & (alignment - 1)) != 0) ++c;  // ends at a page; no %, which divides
  return c;
}

uint32_t Bundles::PlaceBytes(uint64_t bytes, uint64_t alignment) { return kPlaceBytes[ClassOf(bytes, alignment)]; }

uint64_t Bundles::ChunkBytesFor(uint64_t limit) {
  return std::clamp(std::bit_floor(limit / kBundlesInLimit), kChunkBytesMin, kChunkBytesMax);
}

Bundles::Bundle* Bundles::BundleOf(Object object) { return static_cast<Bundle*>(object.bundle()); }

Bundles::~Bundles() {
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    for (Bundle*& list : shard.open) {
      while (Bundle* bundle = list) {
        Unlink(&list, bundle);
        Destroy(bundle);
      }
    }
  }
}

// At the end of the circle: the first one is filled up before the others.
void Bundles::Link(Bundle** list, Bundle* bundle) {
  bundle->open = true;
  if (*list == nullptr) {
    *list = bundle->prev = bundle->next = bundle;
    return;
  }
  bundle->next = *list;
  bundle->prev = (*list)->prev;
  bundle->prev->next = bundle;
  (*list)->prev = bundle;
}

void Bundles::Unlink(Bundle** list, Bundle* bundle) {
  bundle->open = false;
  if (*list == bundle) *list = bundle->next == bundle ? nullptr : bundle->next;
  bundle->prev->next = bundle->next;
  bundle->next->prev = bundle->prev;
}

Object Bundles::TryNew(uint64_t bytes, uint64_t alignment) {
  const size_t size_class = ClassOf(bytes, alignment);
  Shard& shard = shards_[ThisShard(kShards)];
  MutexLock lock(shard.mutex);
  Bundle* const first = shard.open[size_class];
  if (first == nullptr || IsAway(first->chunk)) return Object();
  return TakePlace(&shard, first, bytes);
}

Result<Object> Bundles::New(uint64_t bytes, uint64_t alignment) {
  const size_t size_class = ClassOf(bytes, alignment);
  Shard& shard = shards_[ThisShard(kShards)];
  for (;;) {
    if (const Object object = TryNew(bytes, alignment)) return object;
    Object object;
    {
      MutexLock lock(shard.mutex);
      Bundle* const first = shard.open[size_class];
      if (first == nullptr) break;
      object = TakePlace(&shard, first, bytes);
    }
    const Status home = BringHome(object);
    if (home.ok()) return object;
    Free(object);
    if (home.code() != StatusCode::kDataLoss) break;  // memory is full of pins, or swap cannot be read now
  }
  const PublicCall call;  // here, in BringHome and Destroy, where the system may be asked: most objects need none of them
  Result<Bundle*> made = Make(size_class, &shard);
  if (!made.ok()) return made.status();
  MutexLock lock(shard.mutex);
  Bundle*& list = shard.open[size_class];
  Link(&list, made.value());
  list = made.value();  // before those that could not be brought home
  return TakePlace(&shard, made.value(), bytes);
}

// Whether the bytes are in swap only, and could be found to be lost when they are read.
bool Bundles::IsAway(const detail::ChunkHead* chunk) {
  const uint64_t word = chunk->state.load(std::memory_order_acquire);
  const Phase phase = PhaseOf(word);
  return phase == Phase::kLoading || phase == Phase::kLost || (phase == Phase::kSwapped && (word & kHasSlot) != 0);
}

// A new object has lost nothing yet, so it must not lie where data is lost, and only who reads a bundle knows that. Its first
// pull would read the bundle anyway. kDataLoss: the bundle takes no more objects. REQUIRES: `object` is there, which keeps it.
Status Bundles::BringHome(Object object) {
  const PublicCall call;
  auto* chunk = static_cast<Chunk*>(object.chunk());
  Status status = engine_->IsLost(chunk) ? DataLoss("") : engine_->AcquireCounted(chunk, false, Engine::WhenPinned::kReturn);
  if (status.ok()) {
    chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release);  // as UnpinCounted
  } else if (status.code() == StatusCode::kDataLoss) {
    Bundle* const bundle = BundleOf(object);
    Shard& shard = *bundle->shard;
    MutexLock lock(shard.mutex);
    if (bundle->open) Unlink(&shard.open[bundle->size_class], bundle);
  }
  return status;
}

// Whether an empty bundle stays for the objects to come; then it is counted.
bool Bundles::MayKeep(Bundle* bundle) {
  if (engine_->IsLost(static_cast<Chunk*>(bundle->chunk))) return false;
  const uint64_t bytes = bundle->chunk->bytes;
  if (empty_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > engine_->budget()->limit() / kEmptyInLimit) {
    empty_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  return bundle->kept = true;
}

void Bundles::UseKept(Bundle* bundle) {
  if (std::exchange(bundle->kept, false)) empty_bytes_.fetch_sub(bundle->chunk->bytes, std::memory_order_relaxed);
}

// One that is kept empty, out of its list; null: there is none.
Bundles::Bundle* Bundles::TakeKept(Shard* shard, size_t size_class) {
  MutexLock lock(shard->mutex);
  Bundle** const list = &shard->open[size_class];
  Bundle* bundle = *list;
  if (bundle == nullptr) return nullptr;
  while (!bundle->kept) {
    bundle = bundle->next;
    if (bundle == *list) return nullptr;
  }
  Unlink(list, bundle);
  UseKept(bundle);
  return bundle;
}

void Bundles::FreeEmpty() noexcept {
  for (Shard& shard : shards_) {
    for (size_t size_class = 0; size_class < kClasses; ++size_class) {
      while (Bundle* const bundle = TakeKept(&shard, size_class)) Destroy(bundle);
    }
  }
}

Object Bundles::TakePlace(Shard* shard, Bundle* bundle, uint64_t bytes) {
  SmallObject* object = bundle->objects();
  if (bundle->first_free != kNoPlace) {
    object += bundle->first_free;
    bundle->first_free = object->bytes;
  } else {
    object = new (object + bundle->fresh++) SmallObject;
  }
  object->refs.store(1, std::memory_order_relaxed);
  object->bytes = static_cast<uint16_t>(bytes);
  object->uses.store(0, std::memory_order_relaxed);
  ++shard->objects;
  if (bundle->live == 0) UseKept(bundle);
  if (++bundle->live == bundle->places) Unlink(&shard->open[bundle->size_class], bundle);
  return Object(object, bundle->tag);
}

void Bundles::Free(Object object) noexcept {
  Bundle* const bundle = BundleOf(object);
  Shard& shard = *bundle->shard;
  {
    MutexLock lock(shard.mutex);
    object.small()->bytes = std::exchange(bundle->first_free, static_cast<uint16_t>(object.index()));
    --shard.objects;
    Bundle** const list = &shard.open[bundle->size_class];
    if (--bundle->live > 0) {
      const bool has_room = !bundle->open && bundle->live <= bundle->places * 3 / 4;
      if (has_room && !engine_->IsLost(static_cast<Chunk*>(bundle->chunk))) Link(list, bundle);
      return;
    }
    const bool others_have_room = bundle->open ? bundle->next != bundle : *list != nullptr;
    if (!others_have_room && MayKeep(bundle)) {
      if (!bundle->open) Link(list, bundle);
      return;
    }
    if (bundle->open) Unlink(list, bundle);
  }
  Destroy(bundle);
}

Result<Bundles::Bundle*> Bundles::Make(size_t size_class, Shard* shard) {
  const uint64_t place = kPlaceBytes[size_class];
  const uint64_t wanted = std::max<uint64_t>(2, ChunkBytesFor(engine_->budget()->limit()) / place);
  const uint64_t table_bytes =
      std::clamp(std::bit_floor(sizeof(Bundle) + wanted * sizeof(SmallObject)), kTableBytesMin, kTableBytesMax);
  Result<void*> table = tables_.Take(table_bytes);
  if (!table.ok()) return table.status();
  const uint64_t places = std::min(wanted, (table_bytes - sizeof(Bundle)) / sizeof(SmallObject));
  Result<Chunk*> chunk = engine_->Create(places * place);
  if (!chunk.ok()) {
    tables_.Put(table.value(), table_bytes);
    return chunk.status();
  }
  static_assert(sizeof(Bundle) == BundleHead::kBytes);
  auto* bundle = new (table.value()) Bundle;
  bundle->chunk = chunk.value();
  bundle->object_bytes = static_cast<uint32_t>(place);
  bundle->places = static_cast<uint16_t>(places);
  bundle->size_class = static_cast<uint8_t>(size_class);
  bundle->shard = shard;
  bundle->tag = static_cast<uint8_t>(std::countr_zero(table_bytes / Object::TableBytes(0)));
  return bundle;
}

void Bundles::Destroy(Bundle* bundle) {
  const PublicCall call;
  engine_->Free(static_cast<Chunk*>(bundle->chunk));
  tables_.Put(bundle, Object::TableBytes(bundle->tag));
}

uint64_t Bundles::objects() const {
  uint64_t sum = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    sum += shard.objects;
  }
  return sum;
}

bool Bundles::IsValid() const {
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mutex);
    for (Bundle* const first : shard.open) {
      Bundle* bundle = first;
      while (bundle != nullptr) {
        uint32_t free = bundle->places - bundle->fresh;
        for (uint16_t i = bundle->first_free; i != kNoPlace; i = bundle->objects()[i].bytes) {
          if (i >= bundle->fresh || ++free > bundle->places) return false;
        }
        if (!bundle->open || free != uint32_t{bundle->places} - bundle->live || bundle->next->prev != bundle) return false;
        bundle = bundle->next == first ? nullptr : bundle->next;
      }
    }
  }
  return true;
}

namespace detail {

// What a small object does not need stays out of the functions that all objects go through: it would cost those registers.
[[gnu::noinline]] static Object CreateChunk(Engine* engine, size_t bytes) {
  const EngineCall call;
  Result<Chunk*> chunk = engine->Create(bytes);
  if (!chunk.ok()) ThrowStatus(chunk.status());
  return Object(chunk.value());
}

// A handler may end the program by exit(), which destroys static objects.
[[gnu::noinline]] static void FreeChunk(Engine* engine, Object object) noexcept {
  if (EngineCall::IsInterrupted()) return;
  const PublicCall call;
  engine->Free(static_cast<Chunk*>(object.chunk()));
}

// One whose bundle has to be made, or brought home.
[[gnu::noinline]] static Object CreateSmall(Bundles* bundles, size_t bytes, size_t alignment) {
  Result<Object> object = bundles->New(bytes, alignment);
  if (!object.ok()) ThrowStatus(object.status());
  return object.value();
}

Object CreateObject(size_t bytes, size_t alignment) {
  RefuseWithinProgramCode("a managedPtr was made");
  const Session& session = Session::Get();
  if (bytes < kSmallBytesEnd && session.bundles != nullptr) {
    const Object object = session.bundles->TryNew(bytes, alignment);
    return object ? object : CreateSmall(session.bundles, bytes, alignment);
  }
  return CreateChunk(session.engine, bytes);
}

// An adhereTo that outlives its object reads and writes another one's.
static void WarnIfAdheredTo(Object object) {
  const PublicCall call;
  if (!PinRegistry::Get().IsAdheredTo(static_cast<Chunk*>(object.chunk()))) return;
  LogWarning("debug: an object of %s (chunk %u) was destroyed while an adhereTo holds it; what is read or written through "
             "that from now on is another object's. Let the managedPtr outlive its adhereTos: declare it before them",
             WithinHeap([object] { return FormatBytes(object.bytes()); }, std::string()).c_str(), object.chunk()->id);
}

static void FreeIn(const Session& session, Object object) noexcept {
  if (object.is_small()) {
    session.bundles->Free(object);
  } else {
    FreeChunk(session.engine, object);
  }
}

[[gnu::noinline]] static void FreeInDebug(const Session& session, Object object) noexcept {
  WarnIfAdheredTo(object);
  FreeIn(session, object);
}

void FreeObject(Object object) noexcept {
  const Session* session = Session::IfStarted();
  if (session == nullptr) return;  // a forked child: the data is the parent's
  session->debug ? FreeInDebug(*session, object) : FreeIn(*session, object);
}

void* AddUse(Object object, bool write) {
  const EngineCall call;
  RefuseWithinProgramCode("a pull of an object");
  if (object.is_small() && !PutOn(object.small()->uses)) {
    ThrowStatus({StatusCode::kAborted, StaticText("an object is pinned more than 65535 times at once")});
  }
  auto* chunk = static_cast<Chunk*>(object.chunk());
  if (Status status = Session::Get().engine->AcquireCounted(chunk, write); !status.ok()) {
    if (object.is_small()) object.small()->uses.fetch_sub(1, std::memory_order_relaxed);
    ThrowStatus(status);
  }
  PinRegistry::NoteCounted(1);
  return ElementsAt<void>(chunk->frame, object.offset());
}

// A small object's pins are among those of its chunk, which others hold as well: each object has a count of its own.
bool EndUses(Object object, uint32_t n) noexcept {
  ChunkHead* const chunk = object.chunk();
  if (object.is_small()) {
    if (n > UINT16_MAX || !TakeOff(object.small()->uses, static_cast<uint16_t>(n), std::memory_order_relaxed)) return false;
    chunk->state.fetch_sub(n * kOneCountedPin, std::memory_order_release);  // as UnpinCounted
  } else if (!TakeOff(chunk->state, n * kOneCountedPin, std::memory_order_release)) {
    return false;
  }
  PinRegistry::NoteCounted(-static_cast<int32_t>(n));
  return true;
}

}  // namespace detail
}  // namespace ramspan
