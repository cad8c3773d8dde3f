#pragma once

// What the tests share that take a GPU's whole memory. Each runs by itself.

#include <gtest/gtest.h>

#include "first_gpu.h"
#include "frit/core/cuda/device.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "ops/operator_checks.h"

namespace frit {

/// What stands around it is exact, and the device's memory is free.
class LargeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    set_numerics({.tf32 = false, .deterministic = true});
    allocator_of(first_gpu).trim();
  }
  void TearDown() override {
    set_numerics({});
    if (cuda::device_count() > 0) allocator_of(first_gpu).trim();
  }
  /// Of the device. A test that needs more is skipped.
  static bool has_free(double gigabytes) { return static_cast<double>(cuda::free_memory(0)) >= 1e9 * gigabytes; }
};

/// `count` times the tensor, one after another along axis 0.
inline Tensor repeated(const Tensor& tensor, std::int64_t count) {
  Shape shape = tensor.shape();
  shape.insert(0, count);
  const Tensor all = tensor.to(first_gpu).expand(shape).contiguous();
  shape.erase(0);
  shape[0] *= count;
  return all.reshape(shape);
}

/// Looks at `large` where repeats of `small` begin, end, and hold the elements around 2^31 and 2^32: there it must be `small`, within
/// `tolerance` of the largest value.
inline void expect_repeats(const Tensor& large, const Tensor& small, double tolerance) {
  ASSERT_EQ(large.dim(0) % small.dim(0), 0);
  const std::int64_t rows = small.dim(0), last = large.dim(0) / rows - 1;
  const Tensor expected = small.to(Device::cpu());
  std::vector<std::int64_t> places = {0, last};
  for (const std::int64_t edge : {std::int64_t{1} << 31, std::int64_t{1} << 32}) {
    for (const std::int64_t element : {edge - 1, edge}) {
      if (element < large.elements()) places.push_back(element / small.elements());
    }
  }
  for (const std::int64_t place : places) {
    const Tensor found = large.slice(0, place * rows, (place + 1) * rows).to(Device::cpu());
    EXPECT_TRUE(near(found, expected, tolerance, std::max(1e-3, largest_finite(expected)))) << "repeat " << place << " of " << last + 1;
  }
}

}  // namespace frit
