// Rambrain's hierarchy of objects: which one's constructor made which. Kept for objects with destructors, so that those
// that a program forgot are destroyed at its exit, and for all objects while it is tracked.
// Thread-safety: one mutex over the tree, never held while a program's code runs.
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "client/rambrain/without_heap.h"
#include "common/log.h"
#include "common/status.h"
#include "rambrain/managedPtr.h"

namespace rambrain {

namespace rambrain_detail {

std::atomic<int> g_object_tracking{0};

struct ObjectNode {
  memoryID id = managedMemory::root;
  ramspan::detail::Object object;  // null: under construction
  global_bytesize elements = 0;
  void (*destroy)(void*, size_t) = nullptr;
  ObjectNode* parent = nullptr;
  ObjectNode *first = nullptr, *last = nullptr;  // children, in the order of their making
  ObjectNode *prev = nullptr, *next = nullptr;   // siblings
};

namespace {

using ramspan::detail::Object;

// In a child of fork another thread of the parent's may have left the mutex locked for ever. What is made and goes there is not noted.
bool in_forked_child = false;  // the child's one thread writes it, before it can go on

struct Tree {
  Tree() { pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; }); }
  std::mutex mutex;
  ObjectNode root;
  memoryID next_id = managedMemory::root + 1;
  std::unordered_map<uintptr_t, ObjectNode*> by_object;  // by Object::word
  bool exit_hook = false;
};

Tree& TheTree() {
  static auto* tree = new Tree;  // outlives every static object of the program
  return *tree;
}

std::atomic<bool> destroy_forgotten{true};
thread_local ObjectNode* t_constructing = nullptr;

void Link(ObjectNode* parent, ObjectNode* node) {
  node->parent = parent;
  node->prev = parent->last;
  node->next = nullptr;
  (parent->last ? parent->last->next : parent->first) = node;
  parent->last = node;
}

void Unlink(ObjectNode* node) {
  (node->prev ? node->prev->next : node->parent->first) = node->next;
  (node->next ? node->next->prev : node->parent->last) = node->prev;
}

// Children that others share live on, one generation up.
void Remove(ObjectNode* node) {
  while (ObjectNode* child = node->first) {
    Unlink(child);
    Link(node->parent, child);
  }
  Unlink(node);
  delete node;
}

// Each object's elements are destroyed once, in the order of making: parents before their parts, which are still there
// for the parents' destructors. One more reference for each, so that no managedPtr among them destroys what it points to.
void DestroyForgotten() {
  if (!destroy_forgotten.load()) return;
  std::vector<ObjectNode> forgotten;
  {
    Tree& tree = TheTree();
    std::lock_guard lock(tree.mutex);
    try {
      forgotten.reserve(tree.by_object.size());
    } catch (const std::bad_alloc&) {
      return ramspan::LogWarning("objects that were forgotten are not destroyed: %s", ramspan::OutOfHeapText());
    }
    for (const auto& [word, node] : tree.by_object) {
      node->object.refs().fetch_add(1, std::memory_order_relaxed);
      forgotten.push_back(*node);
    }
  }
  std::sort(forgotten.begin(), forgotten.end(), [](const ObjectNode& a, const ObjectNode& b) { return a.id < b.id; });
  for (const ObjectNode& node : forgotten) {
    if (node.destroy == nullptr) continue;
    try {
      void* elements = ramspan::detail::AddUse(node.object, true);
      node.destroy(elements, node.elements);
      ramspan::detail::EndUses(node.object, 1);
    } catch (const std::exception& e) {
      ramspan::detail::ReportLostDestructors(node.object, e.what());
    }
  }
}

const char* StateOf(const ObjectNode* node) {
  return node->object ? ramspan::detail::DescribeChunk(node->object.chunk()) : "under construction";
}

ObjectNode* Find(ObjectNode* from, memoryID id) {
  if (from->id == id) return from;
  for (ObjectNode* child = from->first; child; child = child->next) {
    if (ObjectNode* found = Find(child, id)) return found;
  }
  return nullptr;
}

void Print(const ObjectNode* node, unsigned depth) {
  for (unsigned i = 0; i < depth; ++i) std::printf("  ");
  if (node->id == managedMemory::root) {
    std::printf("(%llu : root)\n", static_cast<unsigned long long>(node->id));
  } else {
    std::printf("(%llu : size %llu Bytes, %s)\n", static_cast<unsigned long long>(node->id),
                static_cast<unsigned long long>(node->object ? node->object.bytes() : 0), StateOf(node));
  }
  for (const ObjectNode* child = node->first; child; child = child->next) Print(child, depth + 1);
}

}  // namespace

ObjectNode* BeginObject(global_bytesize elements, void (*destroy)(void*, size_t)) {
  if (in_forked_child) return nullptr;
  auto* node = TranslatedAll([] { return new ObjectNode; });
  node->elements = elements;
  node->destroy = destroy;
  Tree& tree = TheTree();
  std::lock_guard lock(tree.mutex);
  // From the first object on whose elements have a destructor, and no earlier: what is static and older than that may be used
  // by those destructors, so it has to be destroyed after them.
  if (destroy != nullptr && !std::exchange(tree.exit_hook, true)) ramspan::detail::CallBeforeEnd(DestroyForgotten);
  node->id = tree.next_id++;
  Link(t_constructing ? t_constructing : &tree.root, node);
  t_constructing = node;
  return node;
}

void EndObject(ObjectNode* node, Object object) noexcept {
  if (in_forked_child) return;  // its constructor has forked
  Tree& tree = TheTree();
  std::lock_guard lock(tree.mutex);
  t_constructing = node->parent == &tree.root ? nullptr : node->parent;
  if (!object) return Remove(node);
  node->object = object;
  try {
    tree.by_object.emplace(object.word(), node);
  } catch (const std::bad_alloc&) {  // as if tracking had been off: the object lives, and the tree does not know it
    Remove(node);
  }
}

void ObjectGone(Object object) noexcept {
  if (in_forked_child) return;
  Tree& tree = TheTree();
  std::lock_guard lock(tree.mutex);
  const auto it = tree.by_object.find(object.word());
  if (it == tree.by_object.end()) return;  // made before tracking was on
  Remove(it->second);
  tree.by_object.erase(it);
}

}  // namespace rambrain_detail

bool managedMemory::trackHierarchy(bool on) {
  const int old = rambrain_detail::g_object_tracking.load();
  rambrain_detail::g_object_tracking.store(on ? 2 : old == 0 ? 0 : 1);
  return old == 2;
}

bool managedMemory::destroyForgotten(bool on) { return rambrain_detail::destroy_forgotten.exchange(on); }

void managedMemory::printTree(managedMemoryChunk* current, unsigned int nspaces) {
  rambrain_detail::Tree& tree = rambrain_detail::TheTree();
  std::lock_guard lock(tree.mutex);
  const rambrain_detail::ObjectNode* node = current ? rambrain_detail::Find(&tree.root, current->id) : &tree.root;
  if (node) rambrain_detail::Print(node, nspaces);
  std::fflush(stdout);
}

unsigned int managedMemory::getNumberOfChildren(const memoryID& id) {
  rambrain_detail::Tree& tree = rambrain_detail::TheTree();
  std::lock_guard lock(tree.mutex);
  const rambrain_detail::ObjectNode* node = rambrain_detail::Find(&tree.root, id);
  unsigned count = 0;
  for (const rambrain_detail::ObjectNode* child = node ? node->first : nullptr; child; child = child->next) ++count;
  return count;
}

memoryID managedMemory::IdOf(ramspan::detail::Object object) {
  rambrain_detail::Tree& tree = rambrain_detail::TheTree();
  std::lock_guard lock(tree.mutex);
  const auto it = tree.by_object.find(object.word());
  return it == tree.by_object.end() ? invalid : it->second->id;
}

}  // namespace rambrain
