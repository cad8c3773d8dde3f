// Extremes of large images whose places nobody wants: see values_compiled in ops/elementwise/staged_kernel.cuh.

#include <gtest/gtest.h>

#include "first_gpu.h"
#include "frit/core/cuda/device.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "ops/elementwise/evaluation.h"

namespace frit::values_compiled_test {
namespace {

using ops::AxisReductionAttributes;
using ops::ReductionAttributes;

class CudaValuesCompiled : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }

  /// More than the kernels take by themselves, with a few NaNs and infinities.
  static Tensor image(const Shape& shape, DType dtype) {
    Tensor x = Tensor::empty(shape, DType::f64);
    fill_normal(x, 0, 1, 7, 0);
    double* const data = x.data<double>();
    const std::int64_t count = x.elements();
    for (std::int64_t i = 0; i < 40; ++i) data[i * (count / 41)] = i % 4 == 0 ? nan : i % 4 == 1 ? inf : -inf;
    return x.to(dtype);
  }

  /// Output 0 alone, and how it was computed.
  static std::pair<Tensor, std::string> values(const ops::Operator& op, const Tensor& x, const ops::Attributes& attributes) {
    const std::vector<TensorType> types = op.infer_types(ops::types_of({&x, 1}), attributes);
    const bool is_image = types[0].shape.rank() == x.rank() && x.layout() == Layout::channels_last;
    const std::vector<Tensor> outputs = {
        Tensor::empty(types[0].shape, types[0].dtype, x.device(), is_image ? Layout::channels_last : Layout::contiguous), Tensor()};
    const Tensor scratch = Tensor::empty({1 << 24}, DType::u8, x.device());
    const std::span<std::byte> memory(static_cast<std::byte*>(scratch.raw()), 1 << 24);
    ops::invoke(op, attributes, {&x, 1}, outputs, memory);
    return {outputs[0], ops::schedule_of(op, attributes, {&x, 1}, outputs, memory)};
  }

  static void expect_values(const char* name, const Shape& shape, const ops::Attributes& attributes) {
    const ops::Operator& op = ops::registry().find(name);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(concat(name, ' ', dtype, ' ', shape));
      const Tensor x = image(shape, dtype), there = Tensor::empty(shape, dtype, first_gpu, Layout::channels_last);
      copy(there, x);
      const auto [found, schedule] = values(op, there, attributes);
      EXPECT_EQ(schedule, "compiled for its sizes");
      const std::vector<double> expected = values(op, x, attributes).first.to_vector<double>();
      EXPECT_TRUE(equal_numbers(found.to_vector<double>(), expected));
    }
  }
};

TEST_F(CudaValuesCompiled, OfChannels) {
  for (const char* op : {"max", "min"}) expect_values(op, {3, 128, 61, 67}, AxisReductionAttributes{1, true});
  for (const char* op : {"amax", "amin"}) {
    expect_values(op, {3, 24, 121, 131}, ReductionAttributes{{1}, false});
    expect_values(op, {2, 64, 9, 31, 37}, ReductionAttributes{{1}, true});
  }
}

TEST_F(CudaValuesCompiled, OfWindows) {
  expect_values("max_pool2d", {3, 64, 83, 85}, PoolOptions{.kernel_size = {3}, .stride = {2}, .padding = {1}});
  expect_values("max_pool2d", {3, 64, 83, 85}, PoolOptions{.kernel_size = {2}, .ceil_mode = true});
  expect_values("max_pool3d", {1, 32, 33, 34, 35}, PoolOptions{.kernel_size = {2}, .dilation = {2}});
}

}  // namespace
}  // namespace frit::values_compiled_test
