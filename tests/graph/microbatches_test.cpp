#include "frit/graph/microbatches.h"

#include <gtest/gtest.h>

#include <set>

#include "frit/graph/find_non_finite.h"
#include "frit/graph/profile.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/shape/shape_ops.h"
#include "graph/graph_checks.h"

namespace frit {
namespace {

constexpr std::int64_t image_channels = 8, image_size = 192;  // 1.1 MiB a sample

/// Two convolutions whose images do not fit a cache in batches of 8. The first has four times as many image_channels, and its image pooled
/// is a result; the second's is added to the input.
Graph network(std::int64_t samples, std::int64_t lines = image_size) {
  Graph graph;
  const Value x = graph.input("x", {samples, image_channels, lines, image_size});
  const auto weight = [&](const char* name, const Shape& shape) {
    return graph.variable(name, {DType::f32, shape}, [](const Tensor& w, std::uint64_t seed) { fill_normal(w, 0, 0.1, seed, 0); });
  };
  const Value first = relu(conv2d(x, weight("w1", {4 * image_channels, image_channels, 3, 3}), {}, {.padding = {1, 1}}));
  const Value second = conv2d(first, weight("w2", {image_channels, 4 * image_channels, 3, 3}), {}, {.padding = {1, 1}}) + x;
  graph.output("pooled", max_pool2d(first, {.kernel_size = {2, 2}}));
  graph.output("y", group_norm(second, 2));
  return graph;
}

Tensor batch_of(std::int64_t samples) {
  const Tensor x = Tensor::empty({samples, image_channels, image_size, image_size});
  fill_normal(x, 0, 1, 7, 0);
  return x;
}

/// Each sample's results, computed with the others or alone.
std::vector<std::vector<float>> results(const Tensor& x, bool together) {
  std::vector<std::vector<float>> found;
  const std::int64_t at_a_time = together ? x.dim(0) : 1;
  State state;
  graph::Executable executable(network(at_a_time), state);
  for (std::int64_t n = 0; n < x.dim(0); n += at_a_time) {
    for (int run = 0; run < 2; ++run) executable.run({{"x", x.slice(0, n, n + at_a_time)}});
    for (std::int64_t k = 0; k < at_a_time; ++k) {
      for (const char* name : {"pooled", "y"}) found.push_back(executable.output(name).slice(0, k, k + 1).to_vector<float>());
    }
  }
  return found;
}

TEST(Microbatches, GiveTheBitsOfTheWholeBatchInLessMemory) {
  const Tensor x = batch_of(8);
  EXPECT_EQ(results(x, /*together=*/true), results(x, /*together=*/false));
  State state;
  const graph::Executable executable(network(8), state);
  const std::int64_t first = 8 * 4 * image_channels * image_size * image_size * 4;
  EXPECT_LT(executable.memory_plan().arena_bytes, first + first / 4) << "the input, two results, and parts of the others";
}

TEST(Microbatches, AreStepsOfTheirOwnInOrder) {
  State state;
  const graph::Executable executable(network(8), state);
  std::set<std::int64_t> parts;
  std::vector<int> nodes;
  for (const graph::Step& step : executable.steps()) {
    parts.insert(step.parts);
    nodes.push_back(step.calls[0].node);
    EXPECT_NE(step.schedule().find("in 8 parts of the batch"), std::string::npos) << step.schedule();
    EXPECT_EQ(step.calls[0].outputs[0].dim(0), 1);
  }
  EXPECT_EQ(parts, std::set<std::int64_t>{8});
  ASSERT_EQ(nodes.size() % 8, 0u);
  const std::ptrdiff_t once = std::ssize(nodes) / 8;
  EXPECT_TRUE(std::is_sorted(nodes.begin(), nodes.begin() + once));
  EXPECT_TRUE(std::equal(nodes.begin() + once, nodes.end(), nodes.begin()));
}

TEST(Microbatches, AreNotMadeOfWhatFitsACacheOrIsOneSample) {
  EXPECT_FALSE(graph::find_microbatches(network(2), Device::cpu()).empty());
  EXPECT_TRUE(graph::find_microbatches(network(1), Device::cpu()).empty());
  EXPECT_TRUE(graph::find_microbatches(network(8, image_size / 8), Device::cpu()).empty());
}

TEST(Microbatches, AreNotMadeOnAGpu) { EXPECT_TRUE(graph::find_microbatches(network(8), Device{DeviceKind::cuda, 0}).empty()); }

TEST(Microbatches, EndWhereAllSamplesAreRead) {
  Graph graph;
  const Value x = graph.input("x", {8, image_channels, image_size, image_size}),
              y = relu(max_pool2d(x, {.kernel_size = {3, 3}, .stride = {1, 1}}));
  const Value of_all = mean(y, Dims{0}, /*keep_dims=*/true);
  graph.output("y", tanh(max_pool2d(y - of_all, {.kernel_size = {3, 3}, .stride = {1, 1}})));
  for (const graph::Microbatches& parts : graph::find_microbatches(graph, Device::cpu())) {
    for (int n = parts.first; n <= parts.last; ++n) EXPECT_NE(graph.nodes()[static_cast<std::size_t>(n)].op->name, "mean");
  }
  EXPECT_EQ(graph::find_microbatches(graph, Device::cpu()).size(), 2u);
}

TEST(Microbatches, SayThatAValueThatIsNotFiniteIsInAPart) {
  State state;
  graph::Executable executable(network(8), state);
  Tensor x = batch_of(8);
  (void)graph::find_non_finite(executable, {{"x", x}});
  x.slice(0, 5, 6).fill(3e38);  // finite, but not what is computed of it
  const auto found = graph::find_non_finite(executable, {{"x", x}});
  ASSERT_TRUE(found);
  EXPECT_NE(found->where.find(", in one of 8 parts of the batch"), std::string::npos) << found->where;
}

TEST(Microbatches, AreTracedStepByStep) {
  State state;
  graph::Executable executable(network(8), state);
  graph::Tracing tracing;
  executable.run({{"x", batch_of(8)}});
  const std::vector<graph::TracedStep>& steps = *tracing.runs().at(0).steps;
  ASSERT_EQ(steps.size(), executable.steps().size());
  const std::size_t once = steps.size() / 8;
  for (std::size_t i = once; i < steps.size(); ++i) EXPECT_EQ(steps[i].alive, steps[i - once].alive);
}

}  // namespace
}  // namespace frit
