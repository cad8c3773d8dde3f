// Norms whose blocks have all rows of some columns, or a part of them, next to the CPU's results.

#include <gtest/gtest.h>

#include "first_gpu.h"
#include "frit/core/cuda/device.h"
#include "frit/ops/norm/norm_attributes.h"
#include "ops/operator_checks.h"

namespace frit::whole_columns_test {
namespace {

struct Norm {
  const char* op;
  ops::Attributes attributes;
  Shape shape;
  DType dtype;

  friend std::ostream& operator<<(std::ostream& out, const Norm& n) { return out << n.op << ' ' << n.dtype << ' ' << n.shape; }
};

Tensor on_gpu(const Tensor& tensor, DType dtype) {
  const Layout layout = tensor.shape().rank() < 4 ? Layout::contiguous : Layout::channels_last;
  const Tensor there = Tensor::empty(tensor.shape(), dtype, first_gpu, layout);
  copy(there, tensor.to(dtype));
  return there;
}

class CudaWholeColumns : public testing::TestWithParam<Norm> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  bool is_batch_norm() const { return std::string(GetParam().op) == "batch_norm"; }

  /// Numbers that the dtype holds, as f64.
  Tensor numbers(const Shape& shape, std::uint64_t seed, double offset = 0) const {
    const Tensor t = Tensor::empty(shape, DType::f64);
    fill_normal(t, offset, 1, seed, 0);
    return t.to(GetParam().dtype).to(DType::f64);
  }
  /// In float32 are the running statistics of halves.
  std::vector<Tensor> run(const ops::Operator& op, std::vector<Tensor> inputs, std::size_t in_dtype, bool there) const {
    if (!there) return run_with_updates(op, std::move(inputs), GetParam().attributes);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool statistic = op.name.ends_with("_backward") ? i == 2 || i == 3 : i >= in_dtype;
      inputs[i] = on_gpu(inputs[i], statistic ? (op.name.ends_with("_backward") ? DType::f64 : DType::f32) : GetParam().dtype);
    }
    return run_with_updates(op, std::move(inputs), GetParam().attributes);
  }
  void expect_near(const std::vector<Tensor>& found, const std::vector<Tensor>& expected) const {
    const double tolerance = GetParam().dtype == DType::f32 ? 2e-5 : 2e-3;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!found[i].defined()) continue;
      const Tensor here = found[i].to(Device::cpu()).to(DType::f64), there = expected[i].to(DType::f64);
      EXPECT_TRUE(near(here, there, tolerance, std::max(1.0, largest_finite(there)))) << "result " << i;
    }
  }
};

TEST_P(CudaWholeColumns, GiveTheSame) {
  const Norm& norm = GetParam();
  const ops::Operator &forward = ops::registry().find(norm.op), &backward = ops::registry().find(concat(norm.op, "_backward"));
  const Shape channels = {norm.shape[1]};
  const Tensor x = numbers(norm.shape, 1, 3), g = numbers(norm.shape, 2), weight = numbers(channels, 3), bias = numbers(channels, 4);
  std::vector<Tensor> inputs = {x, weight, bias};
  if (is_batch_norm()) {
    inputs.push_back(Tensor::full(channels, 0.5, DType::f64));
    inputs.push_back(Tensor::full(channels, 2, DType::f64));
  }
  const std::vector<Tensor> expected = run(forward, inputs, 3, false);
  expect_near(run(forward, inputs, 3, true), expected);

  const std::vector<Tensor> of_gradient = {g, x, expected[1], expected[2], weight};
  const std::vector<Tensor> found = run(backward, of_gradient, 5, true);
  expect_near(found, run(backward, of_gradient, 5, false));
  const std::vector<Tensor> again = run(backward, of_gradient, 5, true);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i].to(Device::cpu()), again[i].to(Device::cpu())));
}

std::vector<Norm> norms() {
  std::vector<Norm> all;
  for (const DType dtype : {DType::f32, DType::f16}) {
    // All of them, with and without few columns a channel; many rows, that no number of blocks divides.
    for (const Shape& shape :
         {Shape{4, 2112, 7, 7}, Shape{64, 512, 7, 7}, Shape{32, 256, 14, 14}, Shape{37, 128, 11, 13}, Shape{3, 16, 29, 31, 5}}) {
      all.push_back({"batch_norm", ops::BatchNormAttributes{}, shape, dtype});
    }
    // Channels that make up no vectors, where two launches take less time than one: 2, 4 and 8 rows are one.
    for (const Shape& shape : {Shape{24, 60, 28, 56}, Shape{24, 58, 28, 56}, Shape{40, 29, 40, 24}, Shape{32, 3, 64, 64}}) {
      all.push_back({"batch_norm", ops::BatchNormAttributes{}, shape, dtype});
    }
    all.push_back({"instance_norm", ops::InstanceNormAttributes{}, {3, 40, 61, 67}, dtype});
    all.push_back({"group_norm", ops::GroupNormAttributes{.num_groups = 8}, {2, 24, 83, 57}, dtype});
    all.push_back({"group_norm", ops::GroupNormAttributes{.num_groups = 4}, {3, 64, 48, 41}, dtype});
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Norms, CudaWholeColumns, testing::ValuesIn(norms()));

}  // namespace
}  // namespace frit::whole_columns_test
