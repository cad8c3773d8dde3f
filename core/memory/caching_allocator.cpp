#include "frit/core/memory/caching_allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string>

#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit {
namespace {

constexpr std::size_t small_pages = 16;           ///< a larger request has a segment of its own: rounding it to pages wastes 1/16 at most
constexpr std::size_t shared_segment_pages = 64;  ///< the smallest shared segment
constexpr std::size_t big_shared_segment = std::size_t{2} << 20;
constexpr unsigned char poison_byte = 0xff;
constexpr unsigned char red_byte = 0xa5;
constexpr std::size_t red_bytes = 256;  ///< of a zone: what is handed out stays aligned for any device

/// What a cached segment may exceed a large request by, and what all segments may exceed the memory in use by. Chosen by random workloads:
/// the peak reserved stayed below 1.25 times the peak in use.
constexpr std::size_t slack_of(std::size_t bytes) { return bytes / 8; }

/// `bytes` rounded up to a multiple of a power of two; 0 if there is none.
std::size_t round_up(std::size_t bytes, std::size_t unit) {
  std::size_t sum = 0;
  return __builtin_add_overflow(bytes, unit - 1, &sum) ? 0 : sum & ~(unit - 1);
}

}  // namespace

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source, bool guarded) : source_(std::move(source)), guard_(guarded) {
  FRIT_CHECK(std::has_single_bit(source_->alignment()) && source_->alignment() >= 64);
  FRIT_CHECK(std::has_single_bit(source_->page()) && source_->page() >= source_->alignment());
}

CachingAllocator::~CachingAllocator() { release_down_to(0); }

void* CachingAllocator::allocate(std::size_t bytes, StreamId stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  std::size_t needed = bytes;
  if (guard_ && __builtin_add_overflow(bytes, 2 * red_bytes, &needed)) out_of_memory(bytes);
  const bool large = needed > small_pages * source_->page();
  const std::size_t rounded = round_up(needed, large ? source_->page() : source_->alignment());
  if (rounded == 0) out_of_memory(bytes);
  Block* block = take_free(rounded, stream, large);
  if (block == nullptr) block = acquire(bytes, rounded, stream, large);
  if (!large) split(block, rounded);
  statistics_.in_use += block->bytes;
  statistics_.peak_in_use = std::max(statistics_.peak_in_use, statistics_.in_use);
  ++statistics_.allocations;
  return guard_ ? draw_red_zones(block, bytes) : block->memory;
}

void CachingAllocator::deallocate(void* memory) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  Block* block = block_in_use(memory);
  FRIT_CHECK(block != nullptr && "deallocate of a block in use");
  if (block->guarded) {
    source_->set_forbidden(block->memory, block->bytes, false);
    check_red_zones(*block);
    source_->fill(block->memory, poison_byte, block->bytes, block->stream);
    block->guarded.reset();
  }
  statistics_.in_use -= block->bytes;
  ++statistics_.frees;
  FreeBlocks& free = free_[{block->stream, block->large}];
  if (block->next != nullptr && block->next->free) {
    free.erase(block->next);
    block = join(block, block->next);
  }
  if (block->previous != nullptr && block->previous->free) {
    free.erase(block->previous);
    block = join(block->previous, block);
  }
  block->free = true;
  free.insert(block);
}

AllocatorStatistics CachingAllocator::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void CachingAllocator::reset_peaks() {
  const std::lock_guard lock(mutex_);
  statistics_.peak_in_use = statistics_.in_use;
  statistics_.peak_reserved = statistics_.reserved;
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  release_down_to(0);
}

void CachingAllocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  release_down_to(bytes);
}

void CachingAllocator::set_guarded(bool on) {
  const std::lock_guard lock(mutex_);
  guard_ = on;
}

/// The block whose memory was handed out; nullptr if there is none.
CachingAllocator::Block* CachingAllocator::block_in_use(void* memory) const {
  for (const bool guarded : {false, true}) {
    const auto found = blocks_.find(static_cast<std::byte*>(memory) - (guarded ? red_bytes : 0));
    if (found != blocks_.end() && !found->second->free && found->second->guarded.has_value() == guarded) return found->second.get();
  }
  return nullptr;
}

/// Fills the block, and returns what of it is handed out.
void* CachingAllocator::draw_red_zones(Block* block, std::size_t bytes) {
  std::byte* const memory = block->memory + red_bytes;
  source_->fill(block->memory, poison_byte, block->bytes, block->stream);
  source_->fill(block->memory, red_byte, red_bytes, block->stream);
  source_->fill(memory + bytes, red_byte, red_bytes, block->stream);
  source_->set_forbidden(block->memory, red_bytes, true);
  source_->set_forbidden(memory + bytes, red_bytes, true);
  block->guarded = bytes;
  return memory;
}

void CachingAllocator::check_red_zones(const Block& block) const {
  const std::size_t bytes = *block.guarded;
  for (const bool behind : {false, true}) {
    unsigned char zone[red_bytes];
    source_->read(zone, block.memory + (behind ? red_bytes + bytes : 0), red_bytes, block.stream);
    const auto* const damaged = std::find_if(zone, zone + red_bytes, [](unsigned char byte) { return byte != red_byte; });
    if (damaged == zone + red_bytes) continue;
    fail(ErrorKind::bug, source_->name(), ": something wrote beyond a block of ", bytes, " bytes: byte ", damaged - zone,
         " of the red zone ", behind ? "behind" : "before", " it is damaged");
  }
}

bool guarded_by_environment() {
  const char* const wanted = std::getenv("FRIT_GUARD_MEMORY");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

/// The smallest free block that is big enough, but not much too big if it cannot be split; no longer free. nullptr if there is none.
CachingAllocator::Block* CachingAllocator::take_free(std::size_t bytes, StreamId stream, bool large) {
  const auto pool = free_.find({stream, large});
  if (pool == free_.end()) return nullptr;
  Block wanted;
  wanted.bytes = bytes;
  const auto found = pool->second.lower_bound(&wanted);
  if (found == pool->second.end() || (large && (*found)->bytes - bytes > slack_of(bytes))) return nullptr;
  Block* const block = *found;
  pool->second.erase(found);
  block->free = false;
  return block;
}

/// A segment from the source as one block. Cached segments that would exceed the slack go back to the source first, and all of them if
/// there is no other way.
CachingAllocator::Block* CachingAllocator::acquire(std::size_t asked, std::size_t bytes, StreamId stream, bool large) {
  const std::size_t needed = round_up(bytes, source_->page());
  if (needed == 0) out_of_memory(asked);
  std::size_t size = segment_size(needed, large);
  if (size <= limit_) {
    const std::size_t in_use = std::max(statistics_.peak_in_use, statistics_.in_use + bytes);
    const std::size_t allowed = in_use + slack_of(in_use);
    release_down_to(allowed > size ? allowed - size : 0);
  }
  void* memory = acquire_within_limit(size);
  if (memory == nullptr) {
    release_down_to(0);
    size = needed;
    memory = acquire_within_limit(size);
  }
  if (memory == nullptr) out_of_memory(asked);
  statistics_.reserved += size;
  statistics_.peak_reserved = std::max(statistics_.peak_reserved, statistics_.reserved);
  ++statistics_.source_allocations;
  return add_block({.memory = static_cast<std::byte*>(memory), .bytes = size, .stream = stream, .large = large});
}

/// Shared segments grow with the memory in use, so that a small process reserves little and a big one asks seldom.
std::size_t CachingAllocator::segment_size(std::size_t bytes, bool large) const {
  if (large) return bytes;
  const std::size_t smallest = shared_segment_pages * source_->page();
  return std::clamp(std::bit_floor(statistics_.in_use / 16 + 1), smallest, std::max(smallest, big_shared_segment));
}

void* CachingAllocator::acquire_within_limit(std::size_t bytes) {
  if (bytes > limit_ || statistics_.reserved > limit_ - bytes) return nullptr;
  return source_->acquire(bytes);
}

/// Cuts what `block` has beyond `bytes` off as a free block.
void CachingAllocator::split(Block* block, std::size_t bytes) {
  if (block->bytes == bytes) return;
  Block rest = *block;
  rest.memory += bytes;
  rest.bytes -= bytes;
  rest.free = true;
  rest.previous = block;
  Block* const added = add_block(rest);
  if (added->next != nullptr) added->next->previous = added;
  block->next = added;
  block->bytes = bytes;
  free_[{added->stream, added->large}].insert(added);
}

/// Makes one block of two neighbours and returns it.
CachingAllocator::Block* CachingAllocator::join(Block* first, Block* second) {
  first->bytes += second->bytes;
  first->next = second->next;
  if (first->next != nullptr) first->next->previous = first;
  blocks_.erase(second->memory);
  return first;
}

CachingAllocator::Block* CachingAllocator::add_block(const Block& block) {
  return (blocks_[block.memory] = std::make_unique<Block>(block)).get();
}

/// `block` is a free block that is a whole segment, already out of its pool.
void CachingAllocator::release_segment(Block* block) {
  source_->release(block->memory, block->bytes);
  statistics_.reserved -= block->bytes;
  ++statistics_.source_frees;
  blocks_.erase(block->memory);
}

/// Releases wholly free segments, the largest of each pool first, until no more than `reserved` bytes are reserved or none is left.
void CachingAllocator::release_down_to(std::size_t reserved) {
  for (auto& [key, free] : free_) {
    for (auto i = free.end(); i != free.begin() && statistics_.reserved > reserved;) {
      Block* const block = *--i;
      if (block->previous != nullptr || block->next != nullptr) continue;
      i = free.erase(i);
      release_segment(block);
    }
  }
}

void CachingAllocator::out_of_memory(std::size_t asked) const {
  std::size_t largest = 0;
  for (const auto& [key, free] : free_) {
    if (!free.empty()) largest = std::max(largest, (*free.rbegin())->bytes);
  }
  const bool limited = limit_ != std::numeric_limits<std::size_t>::max();
  const std::optional<std::size_t> left = source_->free_bytes();
  fail(ErrorKind::out_of_memory, source_->name(), ": out of memory: asked for ", bytes_text(asked), ", reserved ",
       bytes_text(statistics_.reserved), " (in use ", bytes_text(statistics_.in_use), ", cached ",
       bytes_text(statistics_.reserved - statistics_.in_use), ", largest free block ", bytes_text(largest), ")",
       limited ? ", limit " + bytes_text(limit_) : "", left ? ", free on the device " + bytes_text(*left) : "");
}

}  // namespace frit
