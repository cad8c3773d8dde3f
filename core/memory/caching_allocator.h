#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "frit/core/memory/allocator.h"

namespace frit {

/// Where a caching allocator takes its segments from. Called under the allocator's lock.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  /// Stands in error messages: "cpu", "cuda:0".
  virtual std::string_view name() const = 0;
  /// Every block is a multiple of this and aligned to it: a power of two, 64 at least.
  virtual std::size_t alignment() const = 0;
  /// Every segment is a multiple of this: a power of two, a multiple of the alignment. Requests up to 16 pages share segments of 64
  /// pages or more, so a source whose every call is expensive has big pages.
  virtual std::size_t page() const = 0;
  /// nullptr if there is not that much.
  virtual void* acquire(std::size_t bytes) noexcept = 0;
  /// Work that still uses the memory must be waited for.
  virtual void release(void* memory, std::size_t bytes) noexcept = 0;
  /// Sets each byte, in the order of the stream's work.
  virtual void fill(void* memory, unsigned char byte, std::size_t bytes, StreamId stream) = 0;
  /// Copies to the host, after the stream's work so far.
  virtual void read(void* host, const void* memory, std::size_t bytes, StreamId stream) = 0;
  /// Whether AddressSanitizer, if it watches, reports who touches the memory.
  virtual void set_forbidden(void* /*memory*/, std::size_t /*bytes*/, bool /*forbidden*/) {}
  /// What could still be acquired, for messages; nothing if that is not known.
  virtual std::optional<std::size_t> free_bytes() const { return {}; }
};

/// Keeps freed memory for the next request. Small requests share segments: a free block is split to the size asked for and joined with
/// its free neighbours when it comes back. A large request has a segment of its own, which is never split, as a small block left in it
/// would hold all of it. A stream reuses only what was freed on it. What is known about a block is kept outside its memory, which the
/// host may be unable to read.
class CachingAllocator final : public Allocator {
 public:
  explicit CachingAllocator(std::unique_ptr<MemorySource> source, bool guarded = false);
  ~CachingAllocator() override;  ///< blocks still in use stay with their owner and are never released

  void* allocate(std::size_t bytes, StreamId stream = 0) override;
  void deallocate(void* memory) noexcept override;  ///< ends the process if `memory` is not a block in use
  AllocatorStatistics statistics() const override;
  void reset_peaks() override;
  void trim() override;
  void set_limit(std::size_t bytes) override;
  void set_guarded(bool on) override;

 private:
  /// A part of a segment. previous and next are its neighbours there; a free block without either is a whole segment.
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    StreamId stream = 0;
    bool large = false;
    bool free = false;
    std::optional<std::size_t> guarded = {};  ///< the bytes between the red zones, if it has any
    Block* previous = nullptr;
    Block* next = nullptr;
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const { return std::pair(a->bytes, a->memory) < std::pair(b->bytes, b->memory); }
  };
  using FreeBlocks = std::set<Block*, BySize>;
  using PoolKey = std::pair<StreamId, bool>;  ///< stream, large

  Block* take_free(std::size_t bytes, StreamId stream, bool large);
  Block* acquire(std::size_t asked, std::size_t bytes, StreamId stream, bool large);
  std::size_t segment_size(std::size_t bytes, bool large) const;
  void* acquire_within_limit(std::size_t bytes);
  void split(Block* block, std::size_t bytes);
  Block* join(Block* first, Block* second);
  void release_segment(Block* block);
  void release_down_to(std::size_t reserved);
  Block* add_block(const Block& block);
  Block* block_in_use(void* memory) const;
  void* draw_red_zones(Block* block, std::size_t bytes);
  void check_red_zones(const Block& block) const;
  [[noreturn]] void out_of_memory(std::size_t asked) const;

  mutable std::mutex mutex_;
  std::unique_ptr<MemorySource> source_;
  std::unordered_map<void*, std::unique_ptr<Block>> blocks_;  ///< by first byte
  std::map<PoolKey, FreeBlocks> free_;
  AllocatorStatistics statistics_;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  bool guard_;
};

/// Whether the environment asks for guarded memory.
bool guarded_by_environment();

}  // namespace frit
