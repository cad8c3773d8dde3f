#include <gtest/gtest.h>

#include <numeric>

#include "frit/ops/cpu/elementwise.h"

namespace frit {
namespace {

using ops::element_function;

Tensor counting(const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, DType::f64);
  std::iota(tensor.span<double>().begin(), tensor.span<double>().end(), 1.0);
  return tensor;
}

const auto subtract = [](double a, double b) { return a - b; };

TEST(ElementFunction, ReadsStridedAndBroadcastOperands) {
  const Tensor base = counting({4, 6});
  const Tensor operands[] = {base.transpose(0, 1), base.slice(1, 0, 6, 2).slice(0, 0, 1).reshape({3}).slice(0, 0, 1),
                             Tensor::full({6, 1}, 0.5, DType::f64), Tensor::full({}, 3, DType::f64), base.slice(0, 1, 2).transpose(0, 1)};
  for (const Tensor& a : operands) {
    for (const Tensor& b : operands) {
      const Tensor output = Tensor::full({6, 4}, -1, DType::f64);
      strided_map(output, std::array{a, b}, element_function<double, double, double>(subtract));
      const std::vector<double> left = a.expand({6, 4}).to_vector<double>(), right = b.expand({6, 4}).to_vector<double>();
      for (std::size_t i = 0; i < left.size(); ++i) EXPECT_EQ(output.span<double>()[i], left[i] - right[i]) << i;
    }
  }
}

TEST(ElementFunction, MayWriteOverAnInput) {
  const Tensor first = counting({50'000}), second = counting({50'000}), one = Tensor::full({}, 1, DType::f64);
  strided_map(first, std::array{first, one}, element_function<double, double, double>(subtract));
  EXPECT_EQ(first.span<double>()[0], 0);
  EXPECT_EQ(first.span<double>()[49'999], 49'999);
  strided_map(second, std::array{first, second}, element_function<double, double, double>(subtract));
  for (const double value : second.span<double>()) ASSERT_EQ(value, -1);
  strided_map(second, std::array{second, second}, element_function<double, double, double>(subtract));
  for (const double value : second.span<double>()) ASSERT_EQ(value, 0);
}

TEST(ElementFunction, MixesTypesAndTakesThreeOperands) {
  const Tensor condition = Tensor::from<std::uint8_t>({1, 0, 1}, {3}), index = Tensor::from<std::int64_t>({10, 20, 30}, {3});
  const Tensor output = Tensor::empty({2, 3});
  const auto choose = [](std::uint8_t c, std::int64_t i, double x) { return static_cast<float>(c != 0 ? static_cast<double>(i) : x); };
  strided_map(output, std::array{condition, index, counting({2, 1})}, element_function<float, std::uint8_t, std::int64_t, double>(choose));
  EXPECT_EQ(output.to_vector<float>(), (std::vector<float>{10, 1, 30, 10, 2, 30}));
}

/// Of vectors, which rows need not fill: what lies between them is neither read into results nor written.
TEST(ElementFunction, ComputesRowsOfAnyLength) {
  const ElementFunction function = ops::vector_function<float, 2>([](ops::simd::Lanes a, ops::simd::Lanes b) { return a * b - a; });
  for (const std::int64_t length : {1, 7, 15, 16, 17, 32, 48, 64, 80, 131}) {
    for (const std::int64_t rows : {1, 2, 3, 5}) {
      const std::int64_t step = length + 1, output_step = length + 3;
      std::vector<float> a(static_cast<std::size_t>(rows * step)), b(static_cast<std::size_t>(length));
      std::iota(a.begin(), a.end(), 1.0f);
      std::iota(b.begin(), b.end(), 0.5f);
      std::vector<float> actual(static_cast<std::size_t>(rows * output_step), -1.0f), expected = actual;
      for (std::int64_t i = 0; i < rows * length; ++i) {
        const float x = a[static_cast<std::size_t>(i / length * step + i % length)];
        expected[static_cast<std::size_t>(i / length * output_step + i % length)] = x * b[static_cast<std::size_t>(i % length)] - x;
      }
      const void* const operands[] = {a.data(), b.data()};
      function(actual.data(), operands, {rows, length, output_step, {step, 0}});
      EXPECT_EQ(actual, expected) << rows << " rows of " << length;
    }
  }
}

TEST(ElementFunction, LeavesEmptyTensorsAlone) {
  const Tensor output = Tensor::empty({0, 3}, DType::f64);
  strided_map(output, std::array{output, counting({3})}, element_function<double, double, double>(subtract));
  EXPECT_EQ(output.elements(), 0);
}

}  // namespace
}  // namespace frit
