// PageSpace::CopyTo: all memory as it is, for a forked child (fork_copy.h).
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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
  bool are_protected = false;
  for (size_t u = 0; u < end;) {
    if (u % 64 == 0 && used_.AreNone64(u)) {
      u += 64;
      continue;
    }
    if (!IsUsed(u)) {
      ++u;
      continue;
    }
    // All of a unit that begins there: in blocks of it, or with others in one.
    uint64_t at = u * unit_bytes_;
    for (const uint64_t unit_end = at + unit_bytes_; at < unit_end;) {
      CopiedRun run;
      if (Status status = CopyBlockTo(fd, at, kAtHome, &run); !status.ok()) return status;
      run.bytes -= at - run.home;  // of a block of which some was copied already, when it was several
      run.home = run.offset = at;
      are_protected |= BlockAt(homes_.begin + at).is_protected;
      at += run.bytes;
      // Each is a mapping of the child's, of which there may be some ten thousand. Zeros that were never touched are none of the file's: on a file system in memory they would
      // take some when they are read.
      CopiedRun* const last = runs->empty() ? nullptr : &runs->back();
      const bool is_full = runs->size() == kRunsMost;
      if (is_full || (last != nullptr && last->is_zeros == run.is_zeros && last->home + last->bytes == run.home)) {
        last->is_zeros &= run.is_zeros;
        last->bytes = run.home + run.bytes - last->home;
      } else {
        runs->push_back(run);
      }
    }
    u = at / unit_bytes_;
  }
  if (are_protected) AddProtections(end, runs);
  return ftruncate(fd, static_cast<off_t>(end * unit_bytes_)) == 0 ? Status() : AsStatus(errno);
}

// Pages of the first `units` that the program has made read-only, or without access.
void PageSpace::AddProtections(size_t units, std::vector<CopiedRun>* runs) const {
  FILE* const maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return;
  const auto first = reinterpret_cast<uintptr_t>(homes_.begin), last = first + units * unit_bytes_;
  char line[512], rights[5] = "";
  uintptr_t begin = 0, end = 0;
  while (fgets(line, sizeof(line), maps) != nullptr) {
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) != 3 || end <= first || begin >= last || strncmp(rights, "rw-", 3) == 0) continue;
    const int protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) | (rights[2] == 'x' ? PROT_EXEC : 0);
    begin = std::max(begin, first);
    end = std::min(end, last);
    // What has left, or had when the line was read, may have no rights either: only what the program has made so counts.
    for (uintptr_t at = begin, next; at < end; at = next) {
      const LockedAt one(this, reinterpret_cast<void*>(at));
      next = one.block->is_protected ? at + kPageBytes : std::min(end, reinterpret_cast<uintptr_t>(one.end()));
      if (!one.block->is_protected || !rights_[(at - first) / kPageBytes] || (ComesWithRights() && !one.block->home)) continue;
      CopiedRun& before = runs->back();  // there is one: of the block's data
      if (before.protection == protection && before.home + before.bytes == at - first) {
        before.bytes += kPageBytes;
      } else {
        runs->push_back({at - first, kPageBytes, at - first, protection});
      }
    }
  }
  fclose(maps);
}

// Zeros are not written: the file is empty there.
Status PageSpace::CopyBlockTo(int fd, uint64_t at, uint64_t offset, CopiedRun* run) {
  const auto since = Clock::now();
  for (bool told = false;;) {
    const Sized one = At(homes_.begin + at);
    Block* const block = one.block;
    Chunk* const chunk = block->chunk.load();
    *run = {OffsetOf(one.home), one.bytes, offset == kAtHome ? OffsetOf(one.home) : offset, PROT_READ | PROT_WRITE, chunk == nullptr};
    if (chunk == nullptr && IsStill(one)) return Status();
    if (chunk == nullptr) continue;
    Status status = engine_->AcquireCounted(chunk, false, Engine::WhenPinned::kReturn, &block->chunk);
    if (status.ok()) {
      bool is_home = false, is_this = false;
      int error = 0;
      {
        const Locked locked(block);
        is_this = block->chunk.load(std::memory_order_relaxed) == chunk && chunk->bytes == one.bytes;
        is_home = is_this && block->home && !block->is_copied;
        if (is_this && block->is_copied) is_this = false;  // by another thread that forks: again
        if (is_home) {
          ++block->calls;  // at home until it has been read
          block->is_copied = true;
          in_calls_.fetch_add(one.bytes, std::memory_order_relaxed);
        } else if (is_this && block->blank) {
          run->is_zeros = true;
        } else if (is_this) {
          error = TryWrite(fd, static_cast<const char*>(chunk->frame), one.bytes, run->offset);
        }
      }
      chunk->state.fetch_sub(kOneCountedPin, std::memory_order_release);
      if (is_home) {
        error = CopyHomeTo(fd, run->offset, one.home, one.bytes);
        {
          const Locked locked(block);
          block->is_copied = false;
        }
        UnpinForCall(one.home, one.bytes);
      }
      if (is_this) return AsStatus(error);
    } else if (block->chunk.load(std::memory_order_acquire) == chunk) {
      if (!PassesByItself(status) || !MayWaitOn(status, since, &told)) return status;
      std::this_thread::sleep_for(kPause);
    }
    std::this_thread::sleep_for(kNap);  // it was given back meanwhile, or another thread that forks reads it
  }
}

// Without a lock: a page that the program has given back behind Ramspan's back is brought while it is read. Those that the program has made unreadable are read as a debugger does;
// where the process may not do that (no /proc, or not dumpable), they are readable meanwhile, which ends before the program changes it (ProtectIn).
int PageSpace::CopyHomeTo(int fd, uint64_t offset, char* home, uint64_t bytes) {
  int error = TryWrite(fd, home, bytes, offset);
  if (error != EFAULT) return error;
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  for (size_t at = 0; at < bytes; at += kPageBytes) {
    char* const there = home + at;
    if (!ComesWithRights()) userfault_.FillHole(there);  // one that was given back: it is zeros, and what is not there cannot be told from what may not be read
    error = TryWrite(fd, there, kPageBytes, offset + at);
    char page[kPageBytes];
    if (error == EFAULT && pread(memory, page, kPageBytes, reinterpret_cast<off_t>(there)) == static_cast<ssize_t>(kPageBytes)) {
      error = TryWrite(fd, page, kPageBytes, offset + at);
    } else if (error == EFAULT && rights_[PageOf(there)] && syscall(SYS_mprotect, there, kPageBytes, PROT_READ) == 0) {
      error = TryWrite(fd, there, kPageBytes, offset + at);
      if (syscall(SYS_mprotect, there, kPageBytes, PROT_NONE) != 0 && error == 0) error = errno;
    }
    if (error != 0) break;
  }
  if (memory >= 0) close(memory);
  return error;
}

}  // namespace ramspan
