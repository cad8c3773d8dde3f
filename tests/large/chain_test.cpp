// The second reference model on a batch whose convolution has more than 2^31 outputs: forward, and the gradients of its parameters.

#include "frit/autograd/gradient.h"
#include "frit/graph/program.h"
#include "frit/models/reference.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "large/large_testing.h"

namespace frit::chain_test {
namespace {

constexpr std::int64_t few = 100, many = 2200;

class CudaLargeChain : public LargeTest, public testing::WithParamInterface<DType> {};

struct Results {
  Tensor output;
  std::map<std::string, Tensor> gradients;
};

/// The loss is a mean, so that repeating all examples changes no gradient of a parameter.
Results run_block(const Tensor& input, const Tensor& target) {
  Graph graph;
  const Value x = graph.input("x", input.shape(), input.dtype());
  const Value y = models::conv_group_norm_pool(Scope(graph, "", input.dtype()), x);
  graph.output("y", y);
  const Value wanted = graph.input("target", y.shape(), input.dtype());
  // So large that no gradient is below what f16 holds.
  const Value scale = graph.constant(Tensor::full({}, 32768, input.dtype()));
  Values parameters;
  std::vector<std::string> names;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    parameters.push_back(graph.value(node->outputs[0]));
    names.push_back(node->name);
  }
  const Values gradients = gradient(mean_squared_error(y, wanted) * scale, parameters);
  for (std::size_t i = 0; i < names.size(); ++i) graph.output(names[i], gradients[i]);
  Program program(std::move(graph), std::make_shared<State>(first_gpu));
  const graph::Executable& run = program.run({{"x", input}, {"target", target}});
  Results results{run.output("y").clone(), {}};
  for (const std::string& name : names) results.gradients[name] = run.output(name).to(Device::cpu());
  return results;
}

TEST_P(CudaLargeChain, LearnsFromABatchOfAnySize) {
  const DType dtype = GetParam();
  if (!has_free(dtype == DType::f32 ? 80 : 40)) GTEST_SKIP() << "needs more memory";
  const Tensor input = Tensor::empty({few, 8, 128, 128}), target = Tensor::empty({few, 64, 31, 31});
  fill_normal(input, 0, 1, 1, 1);
  fill_normal(target, 0, 1, 1, 2);
  const Tensor x = input.to(dtype), y = target.to(dtype);
  const Results small = run_block(x.to(first_gpu), y.to(first_gpu));
  const Results large = run_block(repeated(x, many / few), repeated(y, many / few));
  const double tolerance = dtype == DType::f32 ? 1e-4 : 2e-2;
  expect_repeats(large.output, small.output, tolerance);
  // The example whose convolution holds element 2^31.
  const std::int64_t crossing = (std::int64_t{1} << 31) / (64 * 126 * 126);
  const Tensor expected = small.output.slice(0, crossing % few, crossing % few + 1).to(Device::cpu());
  EXPECT_TRUE(near(large.output.slice(0, crossing, crossing + 1).to(Device::cpu()), expected, tolerance, largest_finite(expected)));
  for (const auto& [name, gradient] : small.gradients) {
    EXPECT_TRUE(near(large.gradients.at(name), gradient, tolerance, std::max(1e-6, largest_finite(gradient)))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaLargeChain, testing::Values(DType::f32, DType::f16),
                         [](const testing::TestParamInfo<DType>& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace frit::chain_test
