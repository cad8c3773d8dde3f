#include "frit/core/memory/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/memory/random_workload.h"
#include "frit/core/error.h"
#include "frit/core/memory/caching_allocator.h"

extern "C" [[gnu::weak]] int __asan_address_is_poisoned(const volatile void* address);

namespace frit {
namespace {

constexpr std::size_t kibibyte = 1024;
constexpr std::size_t mebibyte = 1024 * kibibyte;

/// Host memory that records what is asked for and fails on demand. It outlives the allocator, which owns only a MockSource.
struct MockMemory {
  std::map<void*, std::size_t> segments;
  int acquires = 0;
  int failing_acquire = 0;  ///< counted from 1; 0: none
  std::size_t total = std::numeric_limits<std::size_t>::max();
  std::vector<StreamId> filled_on;

  std::size_t reserved() const {
    std::size_t sum = 0;
    for (const auto& [memory, bytes] : segments) sum += bytes;
    return sum;
  }
};

class MockSource final : public MemorySource {
 public:
  explicit MockSource(MockMemory& state) : state_(state) {}
  std::string_view name() const override { return "mock"; }
  std::size_t alignment() const override { return 64; }
  std::size_t page() const override { return kibibyte; }
  void* acquire(std::size_t bytes) noexcept override {
    if (++state_.acquires == state_.failing_acquire || bytes > state_.total - state_.reserved()) return nullptr;
    void* memory = std::aligned_alloc(64, bytes);
    state_.segments[memory] = bytes;
    return memory;
  }
  void release(void* memory, std::size_t bytes) noexcept override {
    EXPECT_EQ(state_.segments.at(memory), bytes);
    state_.segments.erase(memory);
    std::free(memory);
  }
  void fill(void* memory, unsigned char byte, std::size_t bytes, StreamId stream) override {
    state_.filled_on.push_back(stream);
    std::memset(memory, byte, bytes);
  }
  void read(void* host, const void* memory, std::size_t bytes, StreamId) override { std::memcpy(host, memory, bytes); }

 private:
  MockMemory& state_;
};

/// A device whose memory the host cannot touch: addresses alone.
class MockDevice final : public MemorySource {
 public:
  std::string_view name() const override { return "mock device"; }
  std::size_t alignment() const override { return 256; }
  std::size_t page() const override { return 128 * kibibyte; }
  void* acquire(std::size_t bytes) noexcept override {
    if (bytes > total - used_) return nullptr;
    used_ += bytes;
    next_ += bytes;
    return reinterpret_cast<void*>(next_ - bytes);
  }
  void release(void*, std::size_t bytes) noexcept override { used_ -= bytes; }
  void fill(void*, unsigned char, std::size_t, StreamId) override { FAIL() << "memory of a device"; }
  void read(void*, const void*, std::size_t, StreamId) override { FAIL() << "memory of a device"; }
  std::optional<std::size_t> free_bytes() const override { return total - used_; }

  static constexpr std::size_t total = std::size_t{80} << 30;

 private:
  std::size_t used_ = 0;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
};

class CachingAllocatorTest : public testing::Test {
 protected:
  MockMemory memory;
  CachingAllocator allocator{std::make_unique<MockSource>(memory)};

  void TearDown() override {
    EXPECT_EQ(allocator.statistics().in_use, 0u);
    EXPECT_EQ(allocator.statistics().allocations, allocator.statistics().frees);
    EXPECT_EQ(allocator.statistics().reserved, memory.reserved());
    allocator.trim();
    EXPECT_EQ(allocator.statistics().reserved, 0u);
    EXPECT_TRUE(memory.segments.empty());
  }
};

std::string out_of_memory_text(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    return error.what();
  }
  return "no error";
}

TEST_F(CachingAllocatorTest, AlignsAndCounts) {
  EXPECT_EQ(allocator.allocate(0), nullptr);
  allocator.deallocate(nullptr);
  std::vector<void*> blocks;
  for (const std::size_t bytes : {1u, 63u, 64u, 65u, 1000u, 20'000u, 5'000'000u}) {
    blocks.push_back(allocator.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()) % 64, 0u) << bytes;
    std::memset(blocks.back(), 1, bytes);
  }
  const AllocatorStatistics statistics = allocator.statistics();
  EXPECT_EQ(statistics.in_use, 64u + 64 + 64 + 128 + 1024 + 20 * kibibyte + 4883 * kibibyte);
  EXPECT_EQ(statistics.allocations, 7u);
  EXPECT_EQ(statistics.reserved, memory.reserved());
  EXPECT_EQ(statistics.source_allocations, memory.segments.size());
  for (void* block : blocks) allocator.deallocate(block);
  EXPECT_EQ(allocator.statistics().peak_in_use, statistics.in_use);
  EXPECT_EQ(allocator.statistics().peak_reserved, statistics.reserved);
  allocator.trim();
  allocator.reset_peaks();
  EXPECT_EQ(allocator.statistics().peak_in_use, 0u);
  EXPECT_EQ(allocator.statistics().peak_reserved, 0u);
  EXPECT_EQ(allocator.statistics().source_frees, statistics.source_allocations);
}

TEST_F(CachingAllocatorTest, ReusesWhatCameBack) {
  for (const std::size_t bytes : {std::size_t{100}, 3 * mebibyte}) {
    void* const first = allocator.allocate(bytes);
    allocator.deallocate(first);
    const int acquires = memory.acquires;
    void* const second = allocator.allocate(bytes - bytes / 16);
    EXPECT_EQ(second, first);
    EXPECT_EQ(memory.acquires, acquires);
    allocator.deallocate(second);
  }
}

TEST_F(CachingAllocatorTest, SplitsAndJoinsNeighboursInAnyOrder) {
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(static_cast<std::byte*>(allocator.allocate(16 * kibibyte)));
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(blocks[i], blocks[i - 1] + 16 * kibibyte);
    for (const int i : order) allocator.deallocate(blocks[static_cast<std::size_t>(i)]);
    ASSERT_EQ(memory.segments.size(), 1u);
  } while (std::next_permutation(order.begin(), order.end()));
  // Joined to the whole segment of 64 KiB, or trim in TearDown would not give it back.
  EXPECT_EQ(memory.acquires, 1);
}

TEST_F(CachingAllocatorTest, TakesTheSmallestBlockThatFits) {
  void* const big = allocator.allocate(8 * kibibyte);
  void* const wall = allocator.allocate(64);
  void* const small = allocator.allocate(2 * kibibyte);
  void* const end = allocator.allocate(64);
  allocator.deallocate(big);
  allocator.deallocate(small);
  void* const again = allocator.allocate(2 * kibibyte);
  EXPECT_EQ(again, small);
  for (void* block : {again, wall, end}) allocator.deallocate(block);
}

TEST_F(CachingAllocatorTest, LimitFailureSaysWhatIsWhereAndTheProcessGoesOn) {
  allocator.set_limit(10 * mebibyte);
  void* const held = allocator.allocate(3 * mebibyte + mebibyte / 8);
  EXPECT_EQ(
      out_of_memory_text([&] { allocator.allocate(12 * mebibyte); }),
      "mock: out of memory: asked for 12.0 MiB, reserved 3.1 MiB (in use 3.1 MiB, cached 0 B, largest free block 0 B), limit 10.0 MiB");
  void* const small = allocator.allocate(16 * kibibyte);
  EXPECT_EQ(out_of_memory_text([&] { allocator.allocate(8 * mebibyte); }),
            "mock: out of memory: asked for 8.0 MiB, reserved 3.2 MiB (in use 3.1 MiB, cached 112.0 KiB, largest free block 112.0 KiB), "
            "limit 10.0 MiB");
  void* const fits = allocator.allocate(6 * mebibyte);
  EXPECT_LE(memory.reserved(), 10 * mebibyte);
  for (void* block : {held, small, fits}) allocator.deallocate(block);
  allocator.set_limit(mebibyte);
  EXPECT_LE(memory.reserved(), mebibyte);
}

TEST_F(CachingAllocatorTest, ALimitBelowASharedSegmentStillServesSmallRequests) {
  allocator.set_limit(4 * kibibyte);
  void* const block = allocator.allocate(100);
  EXPECT_EQ(memory.reserved(), kibibyte);
  allocator.deallocate(block);
}

TEST_F(CachingAllocatorTest, FailureOfTheSourceReleasesTheCacheAndRetries) {
  memory.total = 10 * mebibyte;
  allocator.deallocate(allocator.allocate(6 * mebibyte));
  allocator.deallocate(allocator.allocate(64));
  EXPECT_EQ(memory.segments.size(), 2u);
  void* const block = allocator.allocate(9 * mebibyte);
  EXPECT_EQ(memory.segments.size(), 1u);
  EXPECT_EQ(out_of_memory_text([&] { allocator.allocate(2 * mebibyte); }),
            "mock: out of memory: asked for 2.0 MiB, reserved 9.0 MiB (in use 9.0 MiB, cached 0 B, largest free block 0 B)");
  allocator.deallocate(block);
  void* const after = allocator.allocate(2 * mebibyte);
  allocator.deallocate(after);
}

TEST_F(CachingAllocatorTest, OneFailedAcquireIsRetried) {
  for (int n = 1; n <= 4; ++n) {
    memory.acquires = 0;
    memory.failing_acquire = n;
    std::vector<void*> blocks;
    for (const std::size_t bytes : {64 * kibibyte, 100 * std::size_t{1}, 2 * mebibyte}) blocks.push_back(allocator.allocate(bytes));
    for (void* block : blocks) allocator.deallocate(block);
    allocator.trim();
  }
}

TEST_F(CachingAllocatorTest, SizesNearTheEndOfTheAddressSpaceNeverWrap) {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  memory.total = 10 * mebibyte;
  for (const std::size_t bytes : {most, most - 1, most - 62, most - 64, most - 1023, most - 1024, most / 2 + 1}) {
    EXPECT_NE(out_of_memory_text([&] { allocator.allocate(bytes); }), "no error") << bytes;
  }
  EXPECT_EQ(out_of_memory_text([&] { allocator.allocate(most); }),
            "mock: out of memory: asked for 16.0 EiB, reserved 0 B (in use 0 B, cached 0 B, largest free block 0 B)");
  void* const block = allocator.allocate(64);
  EXPECT_THROW(allocator.allocate(most), Error);
  allocator.deallocate(block);
}

TEST_F(CachingAllocatorTest, GuardingFillsFreshAndFreedMemory) {
  allocator.set_guarded(true);
  auto* const bytes = static_cast<unsigned char*>(allocator.allocate(1000, 7));
  EXPECT_EQ(std::count(bytes, bytes + 1000, 0xff), 1000);
  float value = 0;
  std::memcpy(&value, bytes, sizeof value);
  EXPECT_NE(value, value);
  std::memset(bytes, 0, 1000);
  allocator.deallocate(bytes);
  EXPECT_EQ(std::count(bytes, bytes + 1000, 0xff), 1000);  // still cached, so it may be read here
  EXPECT_EQ(memory.filled_on, std::vector<StreamId>(4, 7)) << "all, two red zones, all";
  allocator.set_guarded(false);
  std::memset(bytes, 0, 1000);
  void* const again = allocator.allocate(1000, 7);
  EXPECT_EQ(std::count(bytes, bytes + 700, 0xff), 0);
  allocator.deallocate(again);
}

TEST_F(CachingAllocatorTest, GuardedBlocksOfAnySizeStayAlignedAndMayOutliveTheMode) {
  allocator.set_guarded(true);
  std::vector<void*> blocks;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{255}, std::size_t{256}, 20 * kibibyte, 3 * mebibyte + 1}) {
    blocks.push_back(allocator.allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back()) % 64, 0u);
    std::memset(blocks.back(), 0, bytes);
  }
  EXPECT_NE(out_of_memory_text([&] { allocator.allocate(std::numeric_limits<std::size_t>::max() - 100); }), "no error");
  allocator.set_guarded(false);
  for (void* block : blocks) allocator.deallocate(block);
}

TEST(CpuAllocator, ASanitizerWatchesTheEndsOfAGuardedBlock) {
  if (__asan_address_is_poisoned == nullptr) GTEST_SKIP() << "without AddressSanitizer";
  Allocator& allocator = allocator_of(Device::cpu());
  allocator.set_guarded(true);
  auto* const bytes = static_cast<std::byte*>(allocator.allocate(13));
  allocator.set_guarded(false);
  EXPECT_TRUE(__asan_address_is_poisoned(bytes - 1) && __asan_address_is_poisoned(bytes + 13));
  EXPECT_FALSE(__asan_address_is_poisoned(bytes) || __asan_address_is_poisoned(bytes + 12));
  allocator.deallocate(bytes);
  EXPECT_FALSE(__asan_address_is_poisoned(bytes - 1) || __asan_address_is_poisoned(bytes + 13));
}

TEST_F(CachingAllocatorTest, AStreamReusesOnlyItsOwnBlocks) {
  void* const held = allocator.allocate(64 * mebibyte);  // so much in use that all the rest may stay cached
  for (const std::size_t bytes : {std::size_t{100}, 2 * mebibyte}) {
    void* const first = allocator.allocate(bytes, 1);
    allocator.deallocate(first);
    void* const other = allocator.allocate(bytes, 2);
    EXPECT_NE(other, first);
    void* const same = allocator.allocate(bytes, 1);
    EXPECT_EQ(same, first);
    allocator.deallocate(other);
    allocator.deallocate(same);
  }
  allocator.deallocate(held);
}

TEST_F(CachingAllocatorTest, TheCacheIsBoundedByWhatIsInUse) {
  for (std::size_t i = 1; i <= 100; ++i) {
    allocator.deallocate(allocator.allocate(i * mebibyte));
    EXPECT_LE(allocator.statistics().reserved, i * mebibyte * 9 / 8);
  }
}

/// Of both ends and a few bytes between, so that a long block costs no more than a short one.
void write_pattern(const LiveBlock& block) {
  for (std::size_t i = 0; i < block.bytes; i += 1 + block.bytes / 16) block.memory[i] = std::byte{block.pattern};
  block.memory[block.bytes - 1] = std::byte{block.pattern};
}
bool holds_pattern(const LiveBlock& block) {
  for (std::size_t i = 0; i < block.bytes; i += 1 + block.bytes / 16) {
    if (block.memory[i] != std::byte{block.pattern}) return false;
  }
  return block.memory[block.bytes - 1] == std::byte{block.pattern};
}

TEST_F(CachingAllocatorTest, RandomWorkload) {
  const auto check = [](const LiveBlock& block) { ASSERT_TRUE(holds_pattern(block)); };
  const WorkloadResult result = run_random_workload(
      allocator, {.steps = 100'000, .most_live = 256 * mebibyte, .largest = 4e6, .mark = write_pattern, .check = check});
  const AllocatorStatistics statistics = allocator.statistics();
  expect_frugal(statistics, result);
  EXPECT_LT(statistics.source_allocations, statistics.allocations / 2);  // blocks of one stream do not serve another
}

TEST_F(CachingAllocatorTest, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (unsigned char thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      std::mt19937 generator(thread);
      std::vector<LiveBlock> live;
      for (int step = 0; step < 3000; ++step) {
        const std::size_t bytes = 1 + generator() % 50'000;
        live.push_back({static_cast<std::byte*>(allocator.allocate(bytes)), bytes, thread});
        write_pattern(live.back());
        if (live.size() < 20) continue;
        std::swap(live[generator() % live.size()], live.back());
        EXPECT_TRUE(holds_pattern(live.back()));
        allocator.deallocate(live.back().memory);
        live.pop_back();
      }
      for (const LiveBlock& block : live) allocator.deallocate(block.memory);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CachingAllocatorDeathTest, ForeignAndFreedPointersEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MockMemory memory;
  CachingAllocator allocator(std::make_unique<MockSource>(memory));
  int foreign = 0;
  EXPECT_DEATH(allocator.deallocate(&foreign), "deallocate of a block in use");
  void* const block = allocator.allocate(100);
  allocator.deallocate(block);
  EXPECT_DEATH(allocator.deallocate(block), "deallocate of a block in use");
}

TEST(CachingAllocatorDeathTest, ADamagedRedZoneEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MockMemory memory;
  CachingAllocator allocator(std::make_unique<MockSource>(memory), /*guarded=*/true);
  auto* const block = static_cast<unsigned char*>(allocator.allocate(1000));
  for (const int place : {1000, 1255, -1, -256}) {
    const unsigned char before = std::exchange(block[place], static_cast<unsigned char>(0));
    EXPECT_DEATH(allocator.deallocate(block), "beyond a block of 1000 bytes: byte [0-9]+ of the red zone (behind|before) it is damaged");
    block[place] = before;
  }
  allocator.deallocate(block);
}

TEST(CachingAllocatorOnADevice, RandomWorkload) {
  CachingAllocator allocator(std::make_unique<MockDevice>());
  std::map<std::byte*, std::size_t> live;
  const auto mark = [&](const LiveBlock& block) {
    const auto next = live.lower_bound(block.memory);
    ASSERT_TRUE(next == live.end() || block.memory + block.bytes <= next->first);
    ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= block.memory);
    live[block.memory] = block.bytes;
  };
  const auto check = [&](const LiveBlock& block) { ASSERT_EQ(live.erase(block.memory), 1u); };
  const WorkloadResult result =
      run_random_workload(allocator, {.steps = 100'000, .most_live = std::size_t{24} << 30, .mark = mark, .check = check});
  expect_frugal(allocator.statistics(), result);
  EXPECT_EQ(allocator.statistics().in_use, 0u);
  EXPECT_EQ(allocator.statistics().allocations, allocator.statistics().frees);
  allocator.trim();
  EXPECT_EQ(allocator.statistics().reserved, 0u);
  EXPECT_NE(out_of_memory_text([&] { allocator.allocate(MockDevice::total + 1); }).find("free on the device 80.0 GiB"), std::string::npos);
}

TEST(CpuAllocator, ServesTheCpuAlone) {
  Allocator& allocator = allocator_of(Device::cpu());
  EXPECT_EQ(&allocator, &allocator_of(Device::cpu()));
  const std::size_t before = allocator.statistics().in_use;
  void* const block = allocator.allocate(1 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
  std::memset(block, 0, 1 << 20);
  allocator.deallocate(block);
  EXPECT_EQ(allocator.statistics().in_use, before);
  EXPECT_NE(out_of_memory_text([&] { allocator.allocate(std::size_t{1} << 62); }).find("cpu: out of memory: asked for 4.0 EiB"),
            std::string::npos);
  try {
    allocator_of({DeviceKind::cuda, 4096});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
  }
}

}  // namespace
}  // namespace frit
