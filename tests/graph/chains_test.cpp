// Elementwise operations before and after one that reads an image become one operation with it.

#include "frit/core/cuda/device.h"
#include "frit/graph/layouts.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/chains_checks.h"

namespace frit {
namespace {

using Reduce = Value (*)(Value, const Dims&, bool);
constexpr Reduce reduces[] = {max, min, sum, mean, logsumexp};

TEST_F(Chains, TakeInTheGradientOfAnActivation) {
  graph_.output("dx", backward(g_ * sigmoid(input("y", image_)), x_));
  EXPECT_NE(grown(graph_).find("before=y0 = sigmoid(x0); y1 = multiply(x1, y0); return y1 input=0 centre=batch_norm_backward"),
            std::string::npos)
      << grown(graph_);
}

/// x is read by the norm anyway: its activation is computed again, although the graph gives it too.
TEST_F(Chains, ComputeAgainWhatIsAtHand) {
  const Value scale = input("scale", {4, 1, 1}), y = relu(x_ * scale + 0.5);
  graph_.output("y", y);
  graph_.output("dx", backward(where(greater(y, input("bound", {})), g_, g_ * 0.5), x_));
  const std::string text = grown(graph_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_NE(text.find("multiply("), std::string::npos) << text;
}

/// A pool takes in what its windows are made of, and what becomes of them; its gradient what becomes of that.
TEST_F(Chains, GrowAroundPools) {
  const Value y = hard_swish(x_ - 0.5), pooled = mish(max_pool2d(y, {.kernel_size = {2, 2}, .padding = {1, 1}}));
  graph_.output("y", pooled);
  const std::string text = grown(graph_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("hard_swish(y0); return y1"), std::string::npos) << text;
  EXPECT_NE(text.find("centre=max_pool2d"), std::string::npos) << text;
  EXPECT_NE(text.find("after=y0 = mish(x0)"), std::string::npos) << text;

  Graph training;
  const Value x = training.input("x", image_);
  const Values gradients = gradient(sum(square(max_pool2d(hard_swish(x), {.kernel_size = {2, 2}}))), std::vector{x});
  training.output("dx", gradients[0]);
  const std::string backward = grown(training);
  EXPECT_NE(backward.find("centre=max_pool2d_backward"), std::string::npos) << backward;
  EXPECT_NE(backward.find("after=y0 = hard_swish_backward(x0, x1)"), std::string::npos) << backward;
}

/// A result that only the program reads may be read by several of its operators.
TEST_F(Chains, GrowOverWhatIsReadTwice) {
  const Value x = max_pool2d(x_, {.kernel_size = {2}}), y = ((x + input("bias", {4, 1, 1})) + x) * x + x, z = y * sigmoid(y);
  graph_.output("z", z);
  const std::string text = grown(graph_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("centre=max_pool2d"), std::string::npos) << text;
  EXPECT_NE(text.find("; return y5"), std::string::npos) << text;

  graph_.output("y", y);  // another reader, so that the program ends there
  const std::string shorter = grown(graph_);
  EXPECT_NE(shorter.find("; return y3"), std::string::npos) << shorter;
  graph_.output("x", x);
  EXPECT_EQ(grown(graph_), "");
}

TEST_F(Chains, GrowAroundSoftmax) {
  const Value bias = input("bias", {4, 1, 1}), scale = input("scale", {});
  graph_.output("y", sigmoid((softmax(x_, 1) + bias) * scale));
  const std::string text = grown(graph_);
  EXPECT_NE(text.find("centre=softmax"), std::string::npos) << text;
  EXPECT_NE(text.find("y2 = sigmoid(y1)"), std::string::npos) << text;
}

TEST_F(Chains, LeaveSoftmaxAlongOtherAxesAsItIs) {
  graph_.output("y", sigmoid(softmax(x_ * 2, -1)));
  EXPECT_EQ(grown(graph_), "");
}

TEST_F(Chains, GrowBeforeReductionsOfChannels) {
  for (const Reduce reduce : reduces) {
    for (const Shape& shape : {Shape{2, 8, 3, 5}, Shape{2, 16, 2, 3, 5}}) {
      for (const bool keep_dims : {false, true}) {
        Graph graph;
        Shape both = Shape::filled(shape.rank(), 1);
        both[0] = shape[0], both[1] = shape[1];
        const Value x = graph.input("x", shape), scale = graph.input("scale", both);
        graph.output("y", reduce(hard_swish(x * scale), {1}, keep_dims));
        const std::string text = grown(graph);
        EXPECT_NE(text.find("y1 = hard_swish(y0); return y1 input=0 centre="), std::string::npos) << text;
      }
    }
  }
}

/// Whose kernels read no programs.
TEST_F(Chains, LeaveReductionsOverOtherAxes) {
  const Value x = input("images", {2, 8, 3, 5});
  for (const Dims& axes : {Dims{0}, Dims{3}, Dims{1, 2}, Dims{0, 1, 2, 3}}) graph_.output(concat(axes), sum(square(x), axes));
  graph_.output("odd", sum(square(input("odd images", {2, 7, 3, 5})), Dims{1}));
  graph_.output("images", min(square(input("narrow images", {2, 8, 3, 1})), Dims{3}, true));
  EXPECT_EQ(grown(graph_), "");
}

TEST_F(Chains, LeaveWhatOthersRead) {
  const Value g = g_ * sigmoid(input("y", image_));
  graph_.output("g", g);
  graph_.output("dx", backward(g, x_));
  EXPECT_EQ(grown(graph_), "");
}

TEST_F(Chains, TakeInWhatIsDoneToTheirResult) {
  graph_.output("y", sigmoid(backward(g_, x_) + input("residual", image_)) * input("scale", {4, 1, 1}));
  const std::string text = grown(graph_);
  EXPECT_NE(text.find("before= input=0 centre=batch_norm_backward"), std::string::npos) << text;
  EXPECT_NE(text.find("after=y0 = add(x0, x1); y1 = sigmoid(y0); y2 = multiply(y1, x2); return y2"), std::string::npos) << text;
}

TEST_F(Chains, LeaveAResultThatOthersRead) {
  const Value dx = backward(g_, x_);
  graph_.output("dx", dx);
  graph_.output("y", sigmoid(dx));
  EXPECT_EQ(grown(graph_), "");
}

/// Two passes read the operands twice.
TEST_F(Chains, LeaveWhatMovesMoreBytes) {
  graph_.output("dx", backward(g_ * input("a", image_) + input("b", image_) * input("c", image_), x_));
  EXPECT_EQ(grown(graph_), "");
}

TEST_F(Chains, LeaveOperandsThatLieAcross) {
  graph_.output("dx", backward(g_ * input("row", {5}), x_));
  EXPECT_EQ(grown(graph_), "");
}

TEST_F(Chains, AreNotGrownForTheCpu) {
  graph_.output("y", sigmoid(max_pool2d(hard_swish(x_), {.kernel_size = {2}})));
  EXPECT_NE(text_of(graph::apply(graph::cleanup_pipeline(DeviceKind::cuda), graph_), "chain"), "");
  EXPECT_EQ(text_of(graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), graph_), "chain"), "");
}

/// The gradient of an activation after a norm is part of the norm's, and so is that of the activation before it, which alone reads what
/// the norm gives.
TEST_F(Chains, AreThereInTraining) {
  const Value x = graph_.input("images", {2, 4, 256, 256}), weight = graph_.input("weight", {4}), bias = graph_.input("bias", {4});
  const Value y = silu(group_norm(relu(group_norm(x, 2, weight, bias)), 4, weight, bias));
  const Values gradients = gradient(sum(y * y), std::vector{x, weight});
  graph_.output("dx", gradients[0]);
  graph_.output("dweight", gradients[1]);
  const Graph clean = graph::apply(graph::cleanup_pipeline(), graph_);
  const std::string text = text_of(clean, "chain");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << graph::to_text(clean);
  EXPECT_NE(text.find("silu_backward(y5, y2); return y6 input=0 centre=group_norm_backward"), std::string::npos) << text;
  EXPECT_NE(text.find("after=y0 = relu_backward(x0, x1); return y0"), std::string::npos) << text;
  EXPECT_EQ(text_of(clean, "elementwise").find("_backward"), std::string::npos) << graph::to_text(clean);
  const auto expected = results_of(graph_), found = results_of(clean);
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-4, largest_finite(tensor))) << name;
}

/// What a maximum over the channels of what a norm gives is trained with.
Graph maximum_graph(DType dtype, const Shape& shape, bool keep_dims) {
  Graph graph;
  const Value x = graph.input("images", shape, dtype), scale = graph.input("scale", Shape{shape[1], 1, 1}, dtype);
  const Value y = max(clamp(instance_norm(x), -1, 1) * scale, 1, keep_dims);
  const Values gradients = gradient(sum(y * y), std::vector{x, scale});
  graph.output("dx", gradients[0]);
  graph.output("dscale", gradients[1]);
  return graph;
}

/// The gradient of a maximum is not stored: an element has its pixel's where the maximum's index is its channel.
TEST_F(Chains, TakeTheGradientOfAMaximumFromItsIndex) {
  for (const bool keep_dims : {false, true}) {
    const Graph plain = maximum_graph(DType::f32, {2, 4, 256, 256}, keep_dims);
    const Graph clean = graph::apply(graph::cleanup_pipeline(), plain);
    EXPECT_EQ(text_of(clean, "put_along_axis"), "") << graph::to_text(clean);
    const std::string text = text_of(clean, "chain");
    EXPECT_NE(text.find("centre=instance_norm_backward"), std::string::npos) << graph::to_text(clean);
    EXPECT_NE(text.find("where("), std::string::npos) << graph::to_text(clean);
    const auto expected = results_of(plain), found = results_of(clean);
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-4, largest_finite(tensor))) << name;
  }
}

using CudaChains = Chains;

/// None of them is computed in its parts.
void expect_one_kernel_each(const Graph& graph, Device device, int chains) {
  State state(device);
  const graph::Executable executable(graph, state);
  for (const graph::Step& step : executable.steps()) {
    if (step.op->name != "chain") continue;
    EXPECT_TRUE(step.schedule().starts_with("one kernel around ")) << step.schedule();
    --chains;
  }
  EXPECT_EQ(chains, 0) << graph::to_text(graph);
}

TEST_F(CudaChains, RunInOneKernel) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu = {DeviceKind::cuda, 0};
  for (const bool batch : {false, true}) {
    for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-4}, {DType::f16, 3e-2}, {DType::f64, 1e-10}}) {
      for (const Shape& shape : {Shape{2, 16, 128, 256}, Shape{3, 24, 16, 65, 41}}) {
        SCOPED_TRACE(concat(dtype, ' ', shape, batch ? " batch" : ""));
        const Graph plain = training_graph(dtype, shape, batch);
        const Graph clean = graph::convert_layouts(graph::apply(graph::cleanup_pipeline(), plain), gpu);
        expect_one_kernel_each(clean, gpu, 2);
        const auto expected = results_of(plain), found = results_of(clean, gpu);
        for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, tolerance, largest_finite(tensor))) << name;
      }
    }
  }
}

TEST_F(CudaChains, TakeTheGradientOfAMaximumFromItsIndexInOneKernel) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu = {DeviceKind::cuda, 0};
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-4}, {DType::f64, 1e-10}}) {
    for (const Shape& shape : {Shape{2, 16, 128, 257}, Shape{3, 24, 65, 411}}) {
      const Graph plain = maximum_graph(dtype, shape, false);
      const Graph clean = graph::convert_layouts(graph::apply(graph::cleanup_pipeline(), plain), gpu);
      State state(gpu);
      const graph::Executable executable(clean, state);
      for (const graph::Step& step : executable.steps()) EXPECT_FALSE(step.schedule().starts_with("in its parts")) << step.schedule();
      const auto expected = results_of(plain), found = results_of(clean, gpu);
      for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, tolerance, largest_finite(tensor))) << name;
    }
  }
}

TEST_F(CudaChains, ReduceInOneKernel) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu = {DeviceKind::cuda, 0};
  for (const auto& [dtype, tolerance] : {std::pair{DType::f32, 1e-5}, {DType::f16, 5e-3}, {DType::bf16, 4e-2}, {DType::f64, 1e-12}}) {
    for (const Shape& shape :
         {Shape{2, 8, 31, 33}, Shape{2, 16, 33, 57}, Shape{3, 128, 70, 65}, Shape{2, 1000, 9, 7}, Shape{2, 40, 5, 16, 9}}) {
      for (const bool keep_dims : {false, true}) {
        SCOPED_TRACE(concat(dtype, ' ', shape, keep_dims ? " kept" : ""));
        Graph plain;
        const Value x = plain.input("x", shape, dtype), other = plain.input("other", shape, dtype);
        const Value scale = plain.input("scale", shape.rank() == 4 ? Shape{shape[1], 1, 1} : Shape{shape[1], 1, 1, 1}, dtype);
        int count = 0;
        for (const Reduce reduce : reduces) {
          const Value y = reduce(hard_swish((x + 0.1 * ++count) * scale) - other, {1}, keep_dims);
          plain.output(concat("y", count), y);
        }
        plain.output("softmax", sigmoid(softmax(x * scale, 1) + other)), ++count;
        const ops::Operator& backward = ops::registry().find("softmax_backward");
        plain.output("dx", ops::emit_one("softmax_backward", {other * scale, x}, backward.default_attributes)), ++count;
        const Graph clean = graph::convert_layouts(graph::apply(graph::cleanup_pipeline(), plain), gpu);
        expect_one_kernel_each(clean, gpu, count);
        const auto expected = results_of(plain), found = results_of(clean, gpu);
        for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, tolerance, largest_finite(tensor))) << name;
      }
    }
  }
}

TEST_F(CudaChains, WriteAnotherTypeThanTheyRead) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu = {DeviceKind::cuda, 0};
  const Shape shape = {2, 8, 33, 31};
  graph_.output("dx", cast(backward(input("gradient", shape), input("images", shape)) * 2, DType::f16));
  const Graph clean = graph::convert_layouts(graph::apply(graph::cleanup_pipeline(), graph_), gpu);
  expect_one_kernel_each(clean, gpu, 1);
  const auto expected = results_of(graph_), found = results_of(clean, gpu);
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-3, largest_finite(tensor))) << name;
}

/// What reads a view of a running statistic after its update reads the new one.
TEST_F(Chains, DoNotMoveUpdatesPastWhatReadsThem) {
  const auto variable = [&](const char* name) {
    return graph_.variable(name, {DType::f32, {4}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(1); });
  };
  const Value mean = variable("mean"), view = reshape(mean, {2, 2});
  const Value y = batch_norm(x_, input("weight", {4}), input("bias", {4}), mean, variable("variance"));
  graph_.output("found", view * 2.0);
  graph_.output("y", relu(y));
  const auto expected = results_of(graph_), found = results_of(graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), graph_));
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-5, largest_finite(tensor))) << name;
}

TEST_F(Chains, AttributesComeBackFromTheirText) {
  graph_.output("dx", backward(g_ * sigmoid(g_), x_));
  const Graph grown = graph::grow_chains(graph_);
  const graph::Node& chain = grown.producer(grown.outputs().back().value);
  ASSERT_EQ(chain.op->name, "chain");
  EXPECT_EQ(chain.op->attributes_from_json(chain.attributes.json()), chain.attributes);
}

}  // namespace
}  // namespace frit
