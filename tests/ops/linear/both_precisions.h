#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "frit/core/thread_pool.h"
#include "frit/ops/operator/run.h"

namespace frit {

inline void expect_near(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = actual.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(values[i] - expected[i]));
  }
  EXPECT_LE(error, tolerance * largest);
}

/// Near in float64 and in float32, and the same bits for any number of threads.
inline void expect_in_both_precisions(const std::string& op, const std::vector<Tensor>& inputs, const ops::Attributes& attributes,
                                      const std::vector<double>& expected) {
  SCOPED_TRACE(op);
  expect_near(ops::run(op, inputs, attributes)[0], expected, 1e-13);
  std::vector<Tensor> floats;
  for (const Tensor& input : inputs) floats.push_back(input.to(DType::f32));
  const Tensor result = ops::run(op, floats, attributes)[0];
  expect_near(result, expected, 2e-6);
  const int threads = thread_count();
  for (const int count : {1, 3}) {
    set_thread_count(count);
    const Tensor again = ops::run(op, floats, attributes)[0];
    EXPECT_EQ(std::memcmp(again.raw(), result.raw(), static_cast<std::size_t>(result.bytes())), 0) << count << " threads";
  }
  set_thread_count(threads);
}

}  // namespace frit
