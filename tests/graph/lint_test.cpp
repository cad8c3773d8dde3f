#include "frit/graph/lint.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frit/core/random.h"
#include "frit/models/nn.h"
#include "frit/models/reference.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/sample.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::lint_test {
namespace {

std::vector<std::string> found(Graph& graph, Value output) {
  graph.output("loss", output);
  std::vector<std::string> names;
  for (const graph::LintFinding& finding : graph::lint(graph, "loss")) names.push_back(finding.parameter);
  return names;
}

using Names = std::vector<std::string>;

TEST(Lint, FindsWhatTheReferenceModelsCannotLearn) {
  Graph a, b, c;
  EXPECT_EQ(found(a, models::conv_instance_norm_max(Scope(a), a.input("x", {2, 3, 4, 5, 5}), {.in_channels = 3, .out_channels = 4})),
            Names{"conv.bias"})
      << "the multiplier scales what comes after the norm too";
  EXPECT_EQ(found(b, models::conv_group_norm_pool(Scope(b), b.input("x", {2, 3, 9, 9}),
                                                  {.in_channels = 3, .out_channels = 4, .num_groups = 2, .pool_kernel_size = 2})),
            Names{})
      << "the norm of a group of channels shows how their biases differ";
  EXPECT_EQ(found(c, models::conv_transpose_logsumexp(Scope(c), c.input("x", {2, 3, 2, 3, 2}), {.in_channels = 3, .out_channels = 4})),
            Names{});
}

TEST(Lint, SaysWhy) {
  Graph graph;
  const Scope scope(graph);
  const Value x = graph.input("x", {2, 3, 4, 5, 5});
  graph.output("loss", instance_norm(nn::conv3d(scope / "conv", x, {.out_channels = 2, .kernel_size = {2}})));
  const std::vector<graph::LintFinding> findings = graph::lint(graph, "loss");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].parameter, "conv.bias");
  EXPECT_TRUE(findings[0].reason.starts_with("what it adds, instance_norm (%")) << findings[0].reason;
  EXPECT_THROW(graph::lint(graph, "nothing"), Error);
}

struct Net {
  Graph graph;
  Scope scope{graph};
  Value x = graph.input("x", {4, 6, 5, 5});
  Value parameter(const char* name, const Shape& shape) const { return scope.parameter(name, shape, init::ones()); }
};

TEST(Lint, FindsShiftsBeforeANorm) {
  Net batch, layer, group, wide, after;
  EXPECT_EQ(found(batch.graph, relu(nn::batch_norm(batch.scope / "norm", batch.x + batch.parameter("p", {6, 1, 1})))), Names{"p"});
  EXPECT_EQ(found(layer.graph, layer_norm(layer.x + layer.parameter("p", {}), 3)), Names{"p"});
  EXPECT_EQ(found(group.graph, group_norm(group.x * 2.0 - group.parameter("p", {6, 1, 1}), 6)), Names{"p"});
  EXPECT_EQ(found(wide.graph, group_norm(wide.x + wide.parameter("p", {6, 1, 1}), 3)), Names{});
  EXPECT_EQ(found(after.graph, instance_norm(relu(after.x + after.parameter("p", {6, 1, 1})))), Names{}) << "relu comes between";
}

TEST(Lint, FindsScalesBeforeANorm) {
  Net scale, divided, twice, data, biased;
  EXPECT_EQ(found(scale.graph, instance_norm(scale.x * scale.parameter("p", {6, 1, 1}))), Names{"p"});
  EXPECT_EQ(found(divided.graph, instance_norm(divided.x * divided.parameter("p", {1}) / 3.0)), Names{"p"});
  const Value p = twice.parameter("p", {6, 1, 1});
  EXPECT_EQ(found(twice.graph, instance_norm(twice.x * p) * p), Names{});
  EXPECT_EQ(found(data.graph, instance_norm(data.x * data.parameter("p", {6, 5, 5}))), Names{}) << "it is another number at each place";
  EXPECT_EQ(found(biased.graph, instance_norm(nn::group_norm(biased.scope / "norm", biased.x, {.num_groups = 6}))), Names{"norm.bias"})
      << "nor could the weight, but what stands next to a bias is not followed";
}

TEST(Lint, FindsShiftsOfLogits) {
  Net net, used;
  const Value shift = net.parameter("p", {1});
  EXPECT_EQ(found(net.graph, cross_entropy(nn::linear(net.scope / "linear", flatten(net.x), {.out_features = 3}) + shift,
                                           net.graph.input("y", {4}, DType::i64))),
            Names{"p"});
  EXPECT_EQ(found(used.graph, softmax(flatten(used.x) + used.parameter("p", {150}), 1)), Names{});
}

TEST(Lint, FindsWhatLeadsNowhere) {
  Net net;
  const Value unused = net.x * net.parameter("p", {6, 1, 1});
  net.graph.output("other", unused);
  EXPECT_EQ(found(net.graph, sum(net.x)), Names{"p"});
  EXPECT_EQ(graph::lint(net.graph, "loss")[0].reason, "no way leads from it to \"loss\"");
}

double difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

/// A tensor that is the same within each block of that shape.
Tensor blockwise(const Shape& shape, const Dims& block) {
  Tensor result = Tensor::empty(shape, DType::f64);
  for (std::int64_t i = 0; i < result.elements(); ++i) {
    std::uint64_t number = 0;
    std::int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      number = number * 1000 + static_cast<std::uint64_t>(rest % shape[axis] / block[axis]);
      rest /= shape[axis];
    }
    result.data<double>()[i] = 1 + philox(3, 0, number)[0] * 0x1p-32;
  }
  return result;
}

/// What operators say of themselves holds for their samples.
TEST(Lint, OperatorsTellTheTruth) {
  int invariant = 0, addends = 0;
  for (const ops::Operator* op : ops::registry().all()) {
    for (const ops::Sample& sample : op->samples()) {
      const ops::Attributes& attributes = sample.attributes;
      std::vector<Tensor> inputs = ops::sample_tensors(sample, DType::f64, 1);
      if (inputs.empty() || inputs[0].elements() == 0) continue;
      const auto result = [&](const std::vector<Tensor>& given) {
        std::vector<Tensor> copies;
        for (const Tensor& tensor : given) {
          copies.push_back(Tensor::empty(tensor.shape(), tensor.dtype()));
          copy(copies.back(), tensor);
        }
        return ops::run(op->name, copies, attributes)[0];
      };
      if (op->invariance) {
        const ops::Invariance claim = op->invariance(inputs[0].shape(), attributes);
        if (!claim.block.empty()) {
          ++invariant;
          std::vector<Tensor> changed = inputs;
          changed[0] = ops::run("add", {inputs[0], blockwise(inputs[0].shape(), claim.block)})[0];
          EXPECT_LT(difference(result(inputs), result(changed)), 1e-9) << op->name << " with " << sample.attributes.text();
          if (claim.scale) {
            std::vector<Tensor> large = inputs, larger = inputs;
            large[0] = ops::run("multiply", {inputs[0], Tensor::full({}, 1e6, DType::f64)})[0];
            larger[0] = ops::run("multiply", {large[0], blockwise(inputs[0].shape(), claim.block)})[0];
            EXPECT_LT(difference(result(large), result(larger)), 1e-6) << op->name << " with " << sample.attributes.text();
          }
        }
      }
      for (const ops::LinearInput& linear : op->linear_inputs) {
        const auto i = static_cast<std::size_t>(linear.input);
        if (linear.role != ops::LinearInput::addend || i >= inputs.size()) continue;
        ++addends;
        std::vector<Tensor> changed = inputs;
        changed[i] = ops::run("add", {inputs[i], Tensor::full({}, 0.5, inputs[i].dtype())})[0];
        const Tensor before = result(inputs), after = result(changed);
        const double expected = op->name == "subtract" && i == 1 ? -0.5 : 0.5;
        EXPECT_LT(difference(ops::run("subtract", {after, before})[0], Tensor::full(before.shape(), expected, DType::f64)), 1e-9)
            << op->name;
      }
    }
  }
  EXPECT_GT(invariant, 20);
  EXPECT_GT(addends, 30);
}

}  // namespace
}  // namespace frit::lint_test
