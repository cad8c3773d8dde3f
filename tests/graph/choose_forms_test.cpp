#include "frit/graph/choose_forms.h"

#include <gtest/gtest.h>

#include "frit/autograd/train_step.h"
#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/loss/loss.h"
#include "frit/ops/reduction/reduction.h"

namespace frit {
namespace {

/// A convolution, and a transposed one with a chain behind it.
Value model(Graph& graph, const Shape& input) {
  const auto normal = [](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, 0, 0.3, seed, 0); };
  const auto parameter = [&](const char* name, const Shape& shape) { return graph.variable(name, {DType::f32, shape}, normal, true); };
  const Value x = graph.input("x", input);
  const Value y = conv3d(x, parameter("w", {3, 3, 3, 3, 3}), parameter("b", {3}), {.padding = {1}});
  const Value z = conv_transpose3d(y, parameter("wt", {3, 16, 3, 3, 3}), parameter("bt", {16}), {.stride = {2}, .padding = {1}});
  const Value l = logsumexp(z, {1}, true);
  return clamp(l * sigmoid(l + 3.0) / 6.0 - parameter("bias", {1, 1, 1, 1}), -1, 1);
}

/// The losses of a few steps.
std::vector<double> losses(Device device) {
  const Shape shape{4, 3, 8, 20, 24};
  Graph graph;
  const Value y = model(graph, shape);
  TrainStep step(mean_squared_error(y, graph.input("target", y.shape())), Sgd{.learning_rate = 0.1}, device);
  const Tensor x = Tensor::empty(shape), target = Tensor::empty(y.shape());
  fill_normal(x, 0, 1, 1, 1);
  fill_normal(target, 0, 1, 1, 2);
  std::vector<double> result;
  for (int i = 0; i < 4; ++i) result.push_back(step({{"x", x}, {"target", target}}));
  return result;
}

TEST(ChooseForms, LeavesTheCpuAlone) {
  Graph graph;
  graph.output("y", model(graph, {2, 3, 16, 32, 32}));
  const Graph chosen = graph::choose_forms(graph, {Device::cpu(), false, [](Graph whole) { return whole; }});
  EXPECT_EQ(graph::to_text(chosen), graph::to_text(graph));
}

TEST(ChooseForms, TakesTheFormThatIsForced) {
  Graph graph;
  graph.output("y", model(graph, {1, 3, 2, 3, 4}));
  const auto text_of = [&](std::optional<std::string> form) {
    graph::force_form(std::move(form));
    const Graph chosen = graph::choose_forms(graph, {Device::cpu(), false, [](Graph whole) { return whole; }});
    graph::force_form(std::nullopt);
    return graph::to_text(chosen);
  };
  EXPECT_NE(text_of("sub-pixel").find("pack_taps"), std::string::npos);
  EXPECT_NE(text_of("channels padded to 4").find("pad("), std::string::npos);
  EXPECT_EQ(text_of(std::nullopt), graph::to_text(graph));
}

class CudaChooseForms : public testing::Test {
 protected:
  static constexpr Device gpu{DeviceKind::cuda, 0};

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    set_numerics({.tf32 = false});
  }
  void TearDown() override {
    set_numerics({});
    graph::force_form(std::nullopt);
  }
};

TEST_F(CudaChooseForms, EveryFormTrainsLikeTheCpu) {
  const std::vector<double> expected = losses(Device::cpu());
  const std::optional<std::string> forms[] = {std::nullopt, "", "sub-pixel", "channels padded to 4", "channels padded to 8"};
  for (const std::optional<std::string>& form : forms) {
    graph::force_form(form);
    const std::vector<double> found = losses(gpu);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found[i], expected[i], 2e-5 * expected[i]) << form.value_or("as measured") << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace frit
