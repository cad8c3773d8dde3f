#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "frit/core/device.h"

namespace frit {

/// Counters of one allocator, in bytes and calls.
struct AllocatorStatistics {
  std::size_t in_use = 0;    ///< handed out, rounded to the size class
  std::size_t reserved = 0;  ///< taken from the source: in use plus cached
  std::size_t peak_in_use = 0;
  std::size_t peak_reserved = 0;
  std::uint64_t allocations = 0;  ///< calls of allocate that returned
  std::uint64_t frees = 0;
  std::uint64_t source_allocations = 0;  ///< of those, how often the source was asked
  std::uint64_t source_frees = 0;
};

/// Work on one stream may reuse a block freed on the same stream at once. The CPU has the one stream 0.
using StreamId = std::uintptr_t;

/// Memory of one device. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// At least `bytes` bytes, aligned to 64. Zero bytes give nullptr. Throws ErrorKind::out_of_memory saying what was asked, what is
  /// reserved, how much of that is in use or cached, the largest free block, and what the device has free.
  virtual void* allocate(std::size_t bytes, StreamId stream = 0) = 0;
  virtual void deallocate(void* memory) noexcept = 0;

  virtual AllocatorStatistics statistics() const = 0;
  virtual void reset_peaks() = 0;
  /// Gives cached memory back to the source.
  virtual void trim() = 0;
  /// The most bytes to reserve; the default is no limit.
  virtual void set_limit(std::size_t bytes) = 0;
  /// While on, fresh and freed memory is filled with NaN (bytes 0xFF), so that a read of either shows, and what is handed out lies between
  /// two red zones of 256 bytes, which are looked at when it comes back: a damaged one ends the process and says where. AddressSanitizer
  /// reports who touches them on the CPU.
  virtual void set_guarded(bool on) = 0;
};

/// The allocator of a device; lives as long as the process. Guarded from the beginning if the environment has FRIT_GUARD_MEMORY=1.
Allocator& allocator_of(Device device);

/// Bytes that could still be taken from the device, by this process: on the CPU what the system says is available, within the limits of
/// its control group.
std::size_t available_memory(Device device);

}  // namespace frit
