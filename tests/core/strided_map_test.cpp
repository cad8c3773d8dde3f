#include "frit/core/strided_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frit/core/random.h"

namespace frit {
namespace {

Tensor drawn(const Shape& shape, DType dtype = DType::f64, std::uint64_t seed = 1) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  fill_normal(tensor, 0, 1, seed, 0);
  return tensor;
}

/// a + factor b, of numbers of different sizes.
void combine(const void* factor, void* output, const void* const* operands, const MapRows& rows) {
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    double* const to = static_cast<double*>(output) + row * rows.output_step;
    const double* const a = static_cast<const double*>(operands[0]) + row * rows.steps[0];
    const float* const b = static_cast<const float*>(operands[1]) + row * rows.steps[1];
    for (std::int64_t i = 0; i < rows.length; ++i) to[i] = a[i] + *static_cast<const double*>(factor) * b[i];
  }
}

void expect_combined(const Tensor& output, const Tensor& a, const Tensor& b) {
  const std::vector<double> left = a.expand(output.shape()).to_vector<double>(), right = b.expand(output.shape()).to_vector<double>();
  strided_map(output, std::array{a, b}, {combine, std::make_shared<double>(-2)});
  const std::vector<double> results = output.to_vector<double>();
  ASSERT_EQ(results.size(), left.size());
  for (std::size_t i = 0; i < results.size(); ++i) ASSERT_EQ(results[i], left[i] - 2 * right[i]) << "element " << i;
}

/// Around what is copied at a time, and what a thread takes.
TEST(StridedMap, TakesOperandsSideBySide) {
  for (const std::int64_t size : {0, 1, 2, 63, 2047, 2048, 2049, 16383, 16384, 16385, 50000}) {
    expect_combined(Tensor::empty({size}, DType::f64), drawn({size}), drawn({size}, DType::f32, 2));
  }
}

TEST(StridedMap, TakesOperandsOfAnyStrides) {
  const Tensor output = Tensor::empty({3, 40, 50, 7}, DType::f64);
  const Tensor turned = drawn({7, 50, 40, 3}).permute({3, 2, 1, 0});
  const Tensor part = drawn({3, 40, 60, 7}, DType::f32, 2).slice(2, 5, 55);
  expect_combined(output, turned, part);
  expect_combined(output, drawn({40, 1, 1}), drawn({}, DType::f32, 2));
  expect_combined(output, drawn({1, 1, 1, 1}), drawn({3, 1, 50, 7}, DType::f32, 2));
}

/// Of a larger tensor, or the same in every row; a thread's part begins and ends inside rows.
TEST(StridedMap, TakesRowsAsTheyLie) {
  const Tensor output = Tensor::empty({1500, 40}, DType::f64), part = drawn({1500, 100}).slice(1, 20, 60);
  const Tensor row = drawn({40}, DType::f32, 2);
  expect_combined(output, part, row);
  expect_combined(output, part, drawn({1500, 90}, DType::f32, 3).slice(1, 50, 90));
  expect_combined(output, part, drawn({1500, 40}, DType::f32, 4));
  expect_combined(output, part, drawn({1500, 1}, DType::f32, 5));
  expect_combined(output, part, drawn({}, DType::f32, 6));
  const Tensor image = Tensor::empty({1, 64, 20, 30}, DType::f64, Device::cpu(), Layout::channels_last);
  copy(image, drawn({1, 64, 20, 30}));
  const Tensor half = Tensor::empty({1, 32, 20, 30}, DType::f64, Device::cpu(), Layout::channels_last);
  expect_combined(half, image.slice(1, 32, 64), drawn({32, 1, 1}, DType::f32, 7));
}

TEST(StridedMap, WritesWhereTheOutputLies) {
  const Tensor a = drawn({40, 70}), b = drawn({40, 70}, DType::f32, 2);
  const Tensor larger = Tensor::zeros({70, 90}, DType::f64);
  expect_combined(larger.slice(1, 20, 60).permute({1, 0}), a, b);
  EXPECT_EQ(larger.slice(1, 0, 20).clone().to_vector<double>(), std::vector<double>(70 * 20, 0.0));
  EXPECT_EQ(larger.slice(1, 60, 90).clone().to_vector<double>(), std::vector<double>(70 * 30, 0.0));
}

TEST(StridedMap, OneLayoutForAll) {
  const Shape shape{2, 24, 9, 11};
  const Tensor b = drawn(shape, DType::f32, 2);
  const Tensor last = Tensor::empty(shape, DType::f64, Device::cpu(), Layout::channels_last);
  expect_combined(last, drawn(shape), b);
  const Tensor image = Tensor::empty(shape, DType::f64, Device::cpu(), Layout::channels_last);
  copy(image, drawn(shape));
  expect_combined(Tensor::empty(shape, DType::f64), image, b);
}

TEST(StridedMap, TheOutputMayLieOnAnOperand) {
  for (const bool strided : {false, true}) {
    const Tensor memory = drawn({70, 90}), a = strided ? memory.slice(1, 20, 60).permute({1, 0}) : memory;
    expect_combined(a, a, drawn(a.shape(), DType::f32, 2));
  }
}

}  // namespace
}  // namespace frit
