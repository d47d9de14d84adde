// PageSpace::CopyTo: all memory as it is, for a forked child (fork_copy.h).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

#include "client/engine/engine.h"
#include "client/pages/fork_copy.h"
#include "client/pages/page_space.h"

namespace ramspan {
namespace {

// An error number; 0: all is there. EFAULT: the kernel may not read it.
int TryWrite(int fd, const char* begin, size_t bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t wrote = pwrite(fd, begin + done, bytes - done, static_cast<off_t>(offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;
    done += static_cast<size_t>(wrote);
  }
  return 0;
}

constexpr size_t kRunsMost = 8192;  // what is between further ones is mapped, too

Status AsStatus(int error) { return error == 0 ? Status() : Unavailable(strerror(error)); }

}  // namespace

Status PageSpace::WriteTo(int fd, const void* begin, size_t bytes, uint64_t offset) { return AsStatus(TryWrite(fd, static_cast<const char*>(begin), bytes, offset)); }

Status PageSpace::CopyTo(int fd, std::vector<CopiedRun>* runs) {
  const size_t end = used_end_.load(std::memory_order_relaxed);
  for (size_t b = 0; b < end; ++b) {
    if (b % 64 == 0 && used_[b / 64].load() == 0) {
      b += 63;
      continue;
    }
    if (!IsUsed(b)) continue;
    const uint64_t home = b * block_bytes_;
    if (Status status = CopyBlockTo(fd, home, b); !status.ok()) return status;
    // Each is a mapping of the child's, of which there may be some ten thousand.
    const bool goes_on = !runs->empty() && (runs->back().home + runs->back().bytes == home || runs->size() == kRunsMost);
    if (!goes_on) runs->push_back({home, 0, home});
    runs->back().bytes = home + block_bytes_ - runs->back().home;
  }
  if (held_.load(std::memory_order_relaxed) > 0) AddProtections(end, runs);
  return ftruncate(fd, static_cast<off_t>(end * block_bytes_)) == 0 ? Status() : AsStatus(errno);
}

// Pages of the first `blocks` that the program has made read-only, or without access.
void PageSpace::AddProtections(size_t blocks, std::vector<CopiedRun>* runs) const {
  FILE* const maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return;
  const auto first = reinterpret_cast<uintptr_t>(homes_.begin), last = first + blocks * block_bytes_;
  char line[512], rights[5] = "";
  uintptr_t begin = 0, end = 0;
  while (fgets(line, sizeof(line), maps) != nullptr) {
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) != 3 || end <= first || begin >= last || (rights[0] == 'r' && rights[1] == 'w')) continue;
    const int protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0);
    begin = std::max(begin, first);
    end = std::min(end, last);
    for (uintptr_t at = begin, next; at < end; at = next) {  // what has left may have no rights either
      next = std::min(end, first + ((at - first) / block_bytes_ + 1) * block_bytes_);
      if (BlockAt(reinterpret_cast<void*>(at)).is_protected) runs->push_back({at - first, next - at, 0, protection});
    }
  }
  fclose(maps);
}

// Zeros are not written: the file is empty there.
Status PageSpace::CopyBlockTo(int fd, uint64_t offset, size_t number) {
  Block* const block = blocks_ + number;
  const auto since = Clock::now();
  for (bool told = false;;) {
    Chunk* const chunk = block->chunk.load(std::memory_order_acquire);
    if (chunk == nullptr) return Status();
    Status status = engine_->AcquireCounted(chunk, false, Engine::WhenPinned::kReturn, &block->chunk);
    if (status.ok()) {
      bool is_home = false, is_this = false;
      int error = 0;
      {
        const Locked locked(block);
        is_this = block->chunk.load(std::memory_order_relaxed) == chunk;
        is_home = is_this && block->home && !block->is_copied;
        if (is_this && block->is_copied) is_this = false;  // by another thread that forks: again
        if (is_home) {
          ++block->calls;  // at home until it has been read
          block->is_copied = true;
          in_calls_.fetch_add(1, std::memory_order_relaxed);
        } else if (is_this && !block->blank) {
          error = TryWrite(fd, static_cast<const char*>(chunk->frame), block_bytes_, offset);
        }
      }
      chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release);
      if (is_home) {
        error = CopyHomeTo(fd, offset, HomeOf(*block));
        {
          const Locked locked(block);
          block->is_copied = false;
        }
        UnpinForCall(HomeOf(*block), block_bytes_);
      }
      if (is_this) return AsStatus(error);
    } else if (block->chunk.load(std::memory_order_acquire) == chunk) {
      if (!PassesByItself(status) || !MayWaitOn(status, since, &told)) return status;
      std::this_thread::sleep_for(kPause);
    }
    // It was given back meanwhile.
  }
}

// Without a lock: a page that the program has given back behind Ramspan's back is brought while it is read. Pages that the program has made unreadable are read as a debugger does.
int PageSpace::CopyHomeTo(int fd, uint64_t offset, const char* home) const {
  int error = TryWrite(fd, home, block_bytes_, offset);
  if (error != EFAULT) return error;
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  for (size_t at = 0; at < block_bytes_; at += kPageBytes) {
    error = TryWrite(fd, home + at, kPageBytes, offset + at);
    char page[kPageBytes];
    if (error == EFAULT && pread(memory, page, kPageBytes, reinterpret_cast<off_t>(home + at)) == static_cast<ssize_t>(kPageBytes)) error = TryWrite(fd, page, kPageBytes, offset + at);
    if (error != 0 && error != EFAULT) break;
    error = 0;
  }
  close(memory);
  return error;
}

}  // namespace ramspan
