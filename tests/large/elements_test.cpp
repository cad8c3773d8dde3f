// Kernels on tensors whose elements' numbers do not fit 32 bits.

#include "frit/autograd/gradient.h"
#include "frit/graph/program.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"
#include "large/large_testing.h"

namespace frit {
namespace {

Tensor normal_tensor(const Shape& shape, DType dtype = DType::f16) {
  const Tensor tensor = Tensor::empty(shape);
  fill_normal(tensor, 0, 1, 1, 1);
  return tensor.to(dtype);
}

class CudaLarge : public LargeTest {};

TEST_F(CudaLarge, EveryElementwiseOperatorBeyond4Gi) {
  if (!has_free(60)) GTEST_SKIP() << "needs 60 GB";
  constexpr std::int64_t repeats = 4097;  // of 2^20 elements
  for (const Operator* op : ops::registry().all()) {
    Sample sample = op->samples().front();
    if (!op->elementwise || std::find(op->dtypes.begin(), op->dtypes.end(), DType::f16) == op->dtypes.end()) continue;
    SCOPED_TRACE(op->name);
    std::cout << "  " << op->name << std::endl;
    for (ops::SampleInput& input : sample.inputs) input.shape = {1, 1 << 10, 1 << 10};
    const std::vector<Tensor> small = sample_tensors(sample, DType::f16, 1);
    std::vector<Tensor> large, same;
    for (const Tensor& tensor : small) {
      large.push_back(repeated(tensor, repeats));
      same.push_back(tensor.to(first_gpu));
    }
    expect_repeats(ops::run(*op, large, sample.attributes)[0], ops::run(*op, same, sample.attributes)[0], 0);
  }
}

TEST_F(CudaLarge, CopiesAndBroadcastsBeyond2Gi) {
  if (!has_free(60)) GTEST_SKIP() << "needs 60 GB";
  const Tensor small = normal_tensor({8, 256, 512}), row = normal_tensor({1, 256, 1});
  const Tensor large = repeated(small, 2049);
  expect_repeats(large, small, 0);
  const Tensor turned = large.permute({2, 0, 1}).contiguous();
  expect_repeats(turned.permute({1, 2, 0}), small, 0);
  expect_repeats(large.to(DType::f32), small.to(DType::f32), 0);
  expect_repeats(ops::run("multiply", {turned.permute({1, 2, 0}), row.to(first_gpu)})[0], ops::run("multiply", {small, row})[0], 0);
}

TEST_F(CudaLarge, ReductionsOfOneLineSeeItsEnd) {
  if (!has_free(60)) GTEST_SKIP() << "needs 60 GB";
  const std::int64_t count = (std::int64_t{1} << 32) + 77;
  const Tensor x = Tensor::zeros({count}, DType::f16, first_gpu);
  const auto value_of = [&](const auto& function) {
    Graph graph;
    graph.output("y", function(graph.input("x", {count}, DType::f16)));
    Program program(std::move(graph), std::make_shared<State>(first_gpu));
    return program.run({{"x", x}}).output("y").item();
  };
  for (const std::int64_t place : {std::int64_t{0}, std::int64_t{1} << 31, std::int64_t{1} << 32, count - 1}) {
    const Tensor there = x.slice(0, place, place + 1);
    there.fill(2);
    EXPECT_EQ(value_of([](Value v) { return argmax(v, 0); }), static_cast<double>(place));
    EXPECT_EQ(value_of([](Value v) { return max(v, 0); }), 2);
    EXPECT_EQ(value_of([](Value v) { return max(v, Dims{}); }), 2);
    EXPECT_EQ(value_of([](Value v) { return sum(v); }), 2);
    there.fill(0);
  }
  EXPECT_NEAR(value_of([](Value v) { return logsumexp(cast(v, DType::f32), {0}); }), std::log(static_cast<double>(count)), 1e-5);
}

/// Rows that do not see each other, however many there are: results and gradients of sum(y * y * y), which a norm does not make zero.
struct RowCase {
  const char* name;
  Shape shape;
  std::function<Value(Value)> function;
  std::int64_t least_elements = (std::int64_t{1} << 31) + 1;
};

std::vector<RowCase> row_cases() {
  return {
      {"softmax", {1024, 1024}, [](Value x) { return softmax(x, 1); }},
      {"softmax over an outer axis", {16, 64, 1024}, [](Value x) { return softmax(x, 1); }},
      {"log_softmax", {1024, 1024}, [](Value x) { return log_softmax(x, 1); }},
      {"logsumexp", {16, 64, 1024}, [](Value x) { return logsumexp(x, {1}); }},
      {"max", {16, 64, 1024}, [](Value x) { return max(x, 1); }},
      {"amax",
       {16, 64, 1024},
       [](Value x) {
         return max(x, Dims{1, 2});
       }},
      {"mean", {16, 64, 1024}, [](Value x) { return mean(x, {2}); }},
      {"instance_norm", {16, 16, 64, 64}, [](Value x) { return instance_norm(x); }},
      {"group_norm", {16, 16, 64, 64}, [](Value x) { return group_norm(x, 4); }},
      {"layer_norm", {1024, 1024}, [](Value x) { return layer_norm(x, 1); }},
      {"max_pool2d", {16, 16, 64, 64}, [](Value x) { return max_pool2d(x, {.kernel_size = {3}, .stride = {2}, .padding = {1}}); }},
      {"avg_pool2d", {16, 16, 64, 64}, [](Value x) { return avg_pool2d(x, {.kernel_size = {2}}); }},
      {"pad",
       {16, 16, 64, 64},
       [](Value x) {
         return pad(x, {0, 0, 1, 1}, {0, 0, 1, 1});
       }},
      {"pad by reflection",
       {16, 16, 64, 64},
       [](Value x) {
         return pad(x, {0, 0, 1, 1}, {0, 0, 2, 1}, PaddingMode::reflect);
       }},
      {"slice", {16, 16, 64, 64}, [](Value x) { return slice(x, 3, 1, 63, 2); }},
      {"concatenate",
       {16, 16, 64, 64},
       [](Value x) {
         return concatenate(std::array{x, x}, 1);
       }},
      {"permute",
       {16, 16, 64, 64},
       [](Value x) {
         return permute(x, {0, 3, 1, 2});
       }},
      // More slices than a grid's y and z axes hold.
      {"instance_norm of many", {7, 10, 3, 3}, [](Value x) { return instance_norm(x); }, 70'000 * 10 * 9},
      {"group_norm of many", {7, 10, 3, 3}, [](Value x) { return group_norm(x, 5); }, 70'000 * 10 * 9},
      {"max_pool2d of many", {7, 10, 4, 4}, [](Value x) { return max_pool2d(x, {.kernel_size = {2}}); }, 70'000 * 10 * 16},
      {"logsumexp of many", {7, 10, 4}, [](Value x) { return logsumexp(x, {1}); }, 70'000 * 10 * 4},
  };
}

class CudaLargeRows : public LargeTest, public testing::WithParamInterface<RowCase> {};

TEST_P(CudaLargeRows, AreThoseOfASmallBatch) {
  if (!has_free(100)) GTEST_SKIP() << "needs 100 GB";
  const auto& [name, shape, function, least_elements] = GetParam();
  const Tensor small = normal_tensor(shape);
  const Tensor large = repeated(small, (least_elements + small.elements() - 1) / small.elements());
  const auto run = [&function = function](const Tensor& x) {
    Graph graph;
    const Value input = graph.input("x", x.shape(), x.dtype());
    const Value y = function(input);
    graph.output("y", y);
    graph.output("gradient", gradient(sum(y * y * y), std::span(&input, 1))[0]);
    auto program = std::make_unique<Program>(std::move(graph), std::make_shared<State>(first_gpu));
    program->run({{"x", x}});
    return program;
  };
  const auto few = run(small), many = run(large);
  for (const char* const output : {"y", "gradient"}) {
    SCOPED_TRACE(output);
    const Tensor result = few->run({{"x", small}}).output(output).clone();
    expect_repeats(many->run({{"x", large}}).output(output), result, 2e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaLargeRows, testing::ValuesIn(row_cases()), [](const testing::TestParamInfo<RowCase>& tested) {
  std::string name = tested.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST_F(CudaLarge, LossesAreMeansOfAllElements) {
  if (!has_free(60)) GTEST_SKIP() << "needs 60 GB";
  const auto losses = [](const Tensor& x, const Tensor& y, const Tensor& label) {
    Graph graph;
    const Value a = graph.input("a", x.shape(), x.dtype()), b = graph.input("b", y.shape(), y.dtype());
    const Value c = graph.input("c", label.shape(), label.dtype());
    graph.output("squared", mean_squared_error(a, b));
    graph.output("absolute", l1_loss(a, b));
    graph.output("crossed", cross_entropy(a, c));
    Program program(std::move(graph), std::make_shared<State>(first_gpu));
    const graph::Executable& run = program.run({{"a", x}, {"b", y}, {"c", label}});
    return std::array{run.output("squared").item(), run.output("absolute").item(), run.output("crossed").item()};
  };
  const Tensor x = normal_tensor({1024, 1024}), y = Tensor::full({1024, 1024}, 0.25, DType::f16);
  const Tensor label = Tensor::full({1024}, 77, DType::i64);
  const auto expected = losses(x, y, label), found = losses(repeated(x, 2049), repeated(y, 2049), repeated(label, 2049));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-3 * expected[i]) << i;
}

/// No batch to split: either right, or refused before anything runs.
TEST_F(CudaLarge, OneImageWhoseConvolutionHasMoreThan2GiElements) {
  if (!has_free(60)) GTEST_SKIP() << "needs 60 GB";
  constexpr std::int64_t size = 8194, corner = 66;
  const Tensor image = repeated(normal_tensor({241, size}), size / 241).reshape({1, 1, size, size}), weight = normal_tensor({33, 1, 3, 3});
  const auto convolve = [](const Tensor& x, const Tensor& w) {
    return ops::run("conv2d", {x.to(first_gpu), w.to(first_gpu)}, ops::Attributes(ConvolutionOptions{}))[0];
  };
  Tensor result;
  try {
    result = convolve(image, weight);
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::bug) << error.what();
    EXPECT_EQ(Tensor::full({3}, 1, DType::f32, first_gpu).to_vector<float>(), std::vector<float>(3, 1));
    GTEST_SKIP() << "refused: " << error.what();
  }
  ASSERT_GT(result.elements(), std::int64_t{1} << 31);
  const auto cut = [](const Tensor& tensor, std::int64_t begin, std::int64_t length) {
    return tensor.slice(2, begin, begin + length).slice(3, begin, begin + length);
  };
  for (const std::int64_t begin : {std::int64_t{0}, size / 2, size - corner}) {
    const Tensor expected = convolve(cut(image, begin, corner).contiguous(), weight).to(Device::cpu());
    const Tensor found = cut(result, begin, corner - 2).contiguous().to(Device::cpu());
    EXPECT_TRUE(near(found, expected, 2e-3, largest_finite(expected))) << "at " << begin;
  }
}

}  // namespace
}  // namespace frit
