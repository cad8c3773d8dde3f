#include "frit/ops/cpu/peak.h"

#include <algorithm>
#include <chrono>

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/simd.h"

namespace frit::ops {
namespace {

/// Sums that do not wait for each other: more than a processor has additions under way, and few enough for its registers.
constexpr int sums = 12;
constexpr int rounds = 100'000;

float multiply_and_add() {
  simd::Vector<float> sum[sums], factor = simd::broadcast(0.5f), addend = simd::broadcast(1.0f);
  for (int i = 0; i < sums; ++i) sum[i] = simd::broadcast(static_cast<float>(i));  // or the compiler takes them for one
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& s : sum) s = simd::multiply_add(s, factor, addend);
  }
  for (int i = 1; i < sums; ++i) sum[0] += sum[i];
  return sum[0][0];
}

}  // namespace

double measured_peak() {
  const int threads = thread_count();
  std::chrono::duration<double> best = std::chrono::hours(1);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    parallel_for(threads, 1, [](std::int64_t first, std::int64_t last) {
      [[maybe_unused]] volatile float read = 0;  // or the compiler leaves it all out
      for (; first < last; ++first) read = multiply_and_add();
    });
    best = std::min<std::chrono::duration<double>>(best, std::chrono::steady_clock::now() - begin);
  }
  return 2.0 * sums * simd::lanes<float> * rounds * threads / best.count();
}

}  // namespace frit::ops
