#include "frit/core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "frit/core/error.h"

namespace frit {
namespace {

using Chunk = std::pair<std::int64_t, std::int64_t>;

class ThreadPoolTest : public testing::Test {
 protected:
  void TearDown() override { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

std::multiset<Chunk> chunks_of(std::int64_t count, std::int64_t grain) {
  std::mutex mutex;
  std::multiset<Chunk> chunks;
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    chunks.emplace(begin, end);
  });
  return chunks;
}

/// A sum kept per chunk and added in chunk order, of terms whose sum depends on the order.
double chunked_sum(std::int64_t count, std::int64_t grain) {
  std::vector<double> partial(static_cast<std::size_t>((count + grain - 1) / grain));
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum += std::sin(static_cast<double>(i)) / (1 + static_cast<double>(i % 7));
    partial[static_cast<std::size_t>(begin / grain)] = sum;
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

TEST_F(ThreadPoolTest, ChunksDependOnTheGrainAlone) {
  for (const int threads : {1, 2, 3, 8}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    EXPECT_EQ(chunks_of(10, 4), (std::multiset<Chunk>{{0, 4}, {4, 8}, {8, 10}}));
    EXPECT_EQ(chunks_of(8, 4), (std::multiset<Chunk>{{0, 4}, {4, 8}}));
    EXPECT_EQ(chunks_of(3, 4), (std::multiset<Chunk>{{0, 3}}));
    EXPECT_TRUE(chunks_of(0, 4).empty());
    EXPECT_TRUE(chunks_of(-5, 4).empty());
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(chunks_of(most, most - 1), (std::multiset<Chunk>{{0, most - 1}, {most - 1, most}}));
  }
}

TEST_F(ThreadPoolTest, SumsHaveTheSameBitsForAnyThreadCount) {
  set_thread_count(1);
  const double expected = chunked_sum(200'003, 977);
  for (const int threads : {2, 3, 8}) {
    set_thread_count(threads);
    for (int repeat = 0; repeat < 5; ++repeat) EXPECT_EQ(chunked_sum(200'003, 977), expected) << threads << " threads";
  }
}

TEST_F(ThreadPoolTest, SeveralThreadsTakePart) {
  set_thread_count(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  parallel_for(3, 1, [&](std::int64_t, std::int64_t) {
    const auto seen = [&] {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
      return ids.size();
    };
    while (seen() < 3 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(ids.size(), 3u);
}

TEST_F(ThreadPoolTest, NestedCallsRunOnTheSameThreadWithTheSameChunks) {
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    std::atomic<std::int64_t> elements{0}, chunks{0};
    std::atomic<bool> strayed{false};
    parallel_for(8, 1, [&](std::int64_t, std::int64_t) {
      const std::thread::id self = std::this_thread::get_id();
      parallel_for(100, 30, [&](std::int64_t begin, std::int64_t end) {
        if (std::this_thread::get_id() != self || begin % 30 != 0) strayed = true;
        elements += end - begin;
        ++chunks;
      });
    });
    EXPECT_FALSE(strayed);
    EXPECT_EQ(elements, 800);
    EXPECT_EQ(chunks, 32);
  }
}

TEST_F(ThreadPoolTest, TheFirstExceptionComesBackAfterAllChunksEnded) {
  for (const int threads : {1, 2, 8}) {
    set_thread_count(threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::atomic<int> ended{0};
      const auto body = [&](std::int64_t begin, std::int64_t) {
        ++ended;
        if (begin % 10 == 3) throw std::runtime_error("chunk " + std::to_string(begin % 10));
      };
      try {
        parallel_for(40, 1, body);
        ADD_FAILURE() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "chunk 3");
      }
      EXPECT_EQ(ended, 40);
    }
    EXPECT_EQ(chunks_of(10, 4).size(), 3u);
  }
}

TEST_F(ThreadPoolTest, AnExceptionPassesThroughANestedCall) {
  set_thread_count(2);
  const auto inner = [](std::int64_t begin, std::int64_t) {
    if (begin == 2) throw Error(ErrorKind::argument, "inner");
  };
  EXPECT_THROW(parallel_for(4, 1, [&](std::int64_t, std::int64_t) { parallel_for(4, 1, inner); }), Error);
  EXPECT_THROW(parallel_for(1, 1, [&](std::int64_t, std::int64_t) { parallel_for(4, 1, inner); }), Error);
  EXPECT_EQ(chunks_of(10, 4).size(), 3u);
}

TEST_F(ThreadPoolTest, ManyTinyCallsAndChunks) {
  for (const int threads : {2, 4}) {
    set_thread_count(threads);
    std::atomic<std::int64_t> sum{0};
    const auto add = [&](std::int64_t begin, std::int64_t end) { sum.fetch_add(end - begin, std::memory_order_relaxed); };
    for (int call = 0; call < 50'000; ++call) parallel_for(4, 1, add);
    EXPECT_EQ(sum, 200'000);
    parallel_for(1'000'000, 1, add);
    EXPECT_EQ(sum, 1'200'000);
  }
}

TEST_F(ThreadPoolTest, WorkersThatFellAsleepWakeAgain) {
  set_thread_count(4);
  for (int repeat = 0; repeat < 50; ++repeat) {
    EXPECT_EQ(chunks_of(64, 1).size(), 64u);
    std::this_thread::sleep_for(std::chrono::milliseconds(repeat % 3));
  }
}

TEST_F(ThreadPoolTest, ResizingWhileIdle) {
  for (int repeat = 0; repeat < 30; ++repeat) {
    set_thread_count(1 + repeat % 5);
    if (repeat % 3 == 0) continue;
    EXPECT_EQ(chunks_of(100, 9).size(), 12u);
  }
}

TEST_F(ThreadPoolTest, SeveralOutsideThreadsCallAtOnce) {
  set_thread_count(3);
  const double expected = chunked_sum(5'000, 100);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) wrong += chunked_sum(5'000, 100) != expected;
    });
  }
  for (int repeat = 0; repeat < 5; ++repeat) set_thread_count(2 + repeat % 2);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(ThreadPoolTest, RefusesBadArguments) {
  for (const int threads : {0, -3}) {
    try {
      set_thread_count(threads);
      ADD_FAILURE() << "no exception";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      EXPECT_EQ(std::string(error.what()), concat("set_thread_count: needs at least 1 thread, got ", threads));
    }
  }
  const auto nothing = [](std::int64_t, std::int64_t) {};
  EXPECT_THROW(parallel_for(10, 0, nothing), Error);
  EXPECT_THROW(parallel_for(4, 1, [](std::int64_t, std::int64_t) { set_thread_count(2); }), Error);
}

/// Its destructor runs after main, among the other static objects.
struct CallsAtExit {
  ~CallsAtExit() {
    std::atomic<int> chunks{0};
    parallel_for(8, 1, [&](std::int64_t, std::int64_t) { ++chunks; });
    if (chunks != 8) std::_Exit(3);
  }
};

TEST(ThreadPoolDeathTest, StaticDestructorsMayCallIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static const CallsAtExit before;
        set_thread_count(3);
        chunks_of(100, 1);
        static const CallsAtExit after;
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace frit
