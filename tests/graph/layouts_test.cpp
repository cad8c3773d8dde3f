#include "frit/graph/layouts.h"

#include <gtest/gtest.h>

#include "first_gpu.h"
#include "frit/graph/executable.h"
#include "frit/graph/minimum_cut.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::layouts_test {
namespace {

constexpr Layout last = Layout::channels_last, contiguous = Layout::contiguous;

struct NoData {
  void fields(FieldVisitor&) {}
};

void nothing(const ops::KernelContext&) {}

std::vector<TensorType> half_as_wide(const ops::InferContext& call) {
  Shape shape = call.shape(0);
  for (int axis = 2; axis < shape.rank(); ++axis) shape[axis] /= 2;
  return {{call.inputs[0].dtype, shape}};
}

ops::Operator operator_of(std::string name, ops::InferRule infer, ops::Kernel kernel) {
  kernel.run = nothing;
  return {.name = std::move(name),
          .summary = "for tests of layouts",
          .inputs = {"x", {"y", true}},
          .infer = std::move(infer),
          .no_gradient = "for tests",
          .cpu = kernel,
          .cuda = kernel,
          .samples = [] {
            return std::vector<ops::Sample>{{.inputs = {Shape{2, 3, 4, 4}}}};
          }};
}

/// Operators of which kernels say what those of convolutions, softmax, pools and elementwise operators say.
void add_operators() {
  if (ops::registry().contains("layout_convolution")) return;
  const auto add = [](ops::Operator entry) { ops::registry().add<NoData>(std::move(entry)); };
  add(operator_of("layout_convolution", ops::infer_same,
                  {.any_layout_inputs = {0, 1}, .any_layout_outputs = {0}, .prefers_channels_last = true}));
  add(operator_of("layout_pool", half_as_wide,
                  {.any_layout_inputs = {0}, .any_layout_outputs = {0}, .one_layout = true, .prefers_channels_last = true}));
  add(operator_of("layout_reduction",
                  [](const ops::InferContext& call) {
                    Shape shape = call.shape(0);
                    shape.erase(1);
                    return std::vector{TensorType{call.inputs[0].dtype, shape}};
                  },
                  {.any_layout_inputs = {0}, .any_layout_outputs = {0}, .one_layout = true, .prefers_channels_last = true}));
  add(operator_of("layout_norm", ops::infer_same, {.any_layout_inputs = {0}, .any_layout_outputs = {0}, .one_layout = true}));
  add(operator_of("layout_shrinking_norm", half_as_wide, {.any_layout_inputs = {0}, .any_layout_outputs = {0}, .one_layout = true}));
  add(operator_of("layout_weight_gradient", [](const ops::InferContext& call) { return std::vector{call.inputs.back()}; },
                  {.any_layout_inputs = {0}, .any_layout_outputs = {0}, .prefers_channels_last = true}));
  ops::Operator update = operator_of("layout_update", ops::infer_same, {});
  update.mutates = {0};
  add(std::move(update));
  add(operator_of("layout_mixing", ops::infer_same, {.any_layout_inputs = {0}, .any_layout_outputs = {0}}));
  add(operator_of("layout_contiguous", ops::infer_same, {}));
  add(operator_of("layout_loss",
                  [](const ops::InferContext& call) {
                    return std::vector{TensorType{call.inputs[0].dtype, {}}};
                  },
                  {.any_layout_inputs = {0}}));
  ops::Operator elementwise = operator_of("layout_elementwise", ops::infer_same, {.any_layout_inputs = {0, 1}, .any_layout_outputs = {0}});
  elementwise.elementwise = true;
  add(std::move(elementwise));
  const auto no_functor = [](const ops::Attributes&, bool) { return ops::FunctorData(); };  // as if it could be joined with others
  const ops::Kernel any_layout{.run = nothing, .any_layout_inputs = {0}, .any_layout_outputs = {0}, .functor = no_functor};
  if (!ops::registry().find("cast").cuda) ops::registry().add_cuda("cast", any_layout);  // in a build without CUDA
}

class Layouts : public testing::Test {
 protected:
  void SetUp() override { add_operators(); }

  static Value emit(const std::string& name, const Values& inputs) {
    return Graph::of(inputs[0]).emit(ops::registry().find("layout_" + name), inputs, NoData{}).at(0);
  }

  /// What runs: "layout_pool last", with "cast" where a conversion was added.
  static std::vector<std::string> plan(const Graph& graph, Device device = first_gpu) {
    const Graph converted = graph::convert_layouts(graph, device);
    graph::verify(converted);
    const std::vector<Layout> layouts = graph::choose_layouts(converted, device);
    std::vector<std::string> lines;
    for (const graph::Node* node : converted.all(graph::NodeKind::operation)) {
      const std::string_view name = node->op->name;
      const bool is_last = layouts[static_cast<std::size_t>(node->outputs[0])] == last;
      lines.push_back(concat(name.starts_with("layout_") ? name.substr(7) : name, is_last ? " last" : ""));
    }
    EXPECT_EQ(graph::to_text(graph::convert_layouts(converted, device)), graph::to_text(converted)) << "nothing is left to convert";
    return lines;
  }

  Graph graph;
  Value x = graph.input("x", {2, 3, 32, 32});
};

using Lines = std::vector<std::string>;

TEST_F(Layouts, AnImageIsConvertedAfterThePoolsThatMakeItSmall) {
  graph.output("y", emit("contiguous", {emit("pool", {emit("pool", {emit("norm", {emit("convolution", {x})})})})}));
  EXPECT_EQ(plan(graph), Lines({"convolution last", "norm last", "pool last", "pool last", "cast", "contiguous"}));
}

TEST_F(Layouts, AnOutputLiesAsItIsComputed) {
  graph.output("y", emit("convolution", {x}));
  EXPECT_EQ(plan(graph), Lines({"convolution last"}));
  graph.output("z", emit("elementwise", {emit("convolution", {x})}));
  EXPECT_EQ(plan(graph), Lines({"convolution last", "convolution last", "elementwise last"}));
}

TEST_F(Layouts, ACpusConvolutionWritesAContiguousOutputItself) {
  const Value inner = emit("convolution", {x});
  graph.output("y", emit("convolution", {inner}));
  EXPECT_EQ(plan(graph, Device::cpu()), Lines({"convolution last", "convolution"}));
  graph.output("z", emit("shrinking_norm", {inner}));
  EXPECT_EQ(plan(graph, Device::cpu()), Lines({"convolution last", "convolution", "shrinking_norm last", "cast"}));
}

/// Four of them are left, but none is the channels.
TEST_F(Layouts, WhatHasOtherAxesIsContiguous) {
  graph.output("y", emit("reduction", {emit("convolution", {graph.input("volume", {2, 8, 4, 6, 5})})}));
  EXPECT_EQ(plan(graph), Lines({"convolution last", "reduction"}));
}

TEST_F(Layouts, TheSmallestOfAChainIsConverted) {
  graph.output("y", emit("contiguous", {emit("norm", {emit("shrinking_norm", {emit("norm", {emit("convolution", {x})})})})}));
  const Lines chain = plan(graph);
  EXPECT_EQ(std::count(chain.begin(), chain.end(), "cast"), 1);
  EXPECT_LT(std::find(chain.begin(), chain.end(), "shrinking_norm last"), std::find(chain.begin(), chain.end(), "cast"));
}

TEST_F(Layouts, AnElementwiseOperationConvertsWhatItWrites) {
  graph.output("y", emit("contiguous", {emit("elementwise", {emit("convolution", {x})})}));
  EXPECT_EQ(plan(graph), Lines({"convolution last", "elementwise", "contiguous"}));
}

TEST_F(Layouts, WithoutThoseThatPreferChannelsLastNothingMoves) {
  graph.output("y", emit("elementwise", {emit("norm", {emit("elementwise", {x})})}));
  EXPECT_EQ(plan(graph), Lines({"elementwise", "norm", "elementwise"}));
  EXPECT_EQ(graph::choose_layouts(graph, first_gpu)[static_cast<std::size_t>(x.id())], contiguous);
}

TEST_F(Layouts, OneConversionServesAllReaders) {
  const Value y = emit("convolution", {x});
  graph.output("a", emit("contiguous", {y}));
  graph.output("b", emit("contiguous", {y}));
  graph.output("c", y);
  EXPECT_EQ(plan(graph), Lines({"convolution last", "cast", "contiguous", "contiguous"}));
}

TEST_F(Layouts, AWeightIsConvertedWhereThatIsDoneOnce) {
  const Value w = graph.variable("w", {DType::f32, {4, 3, 3, 3}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(1); });
  graph.output("y", emit("contiguous", {emit("convolution", {emit("convolution", {x, w}), w})}));
  EXPECT_EQ(plan(graph), Lines({"cast last", "convolution last", "convolution last", "cast", "contiguous"}));
  emit("update", {w});
  EXPECT_EQ(plan(graph), Lines({"convolution last", "convolution last", "cast", "contiguous", "update"}));
}

TEST_F(Layouts, WhatIsComputedOnceLiesAsItIsRead) {
  const Value w = graph.variable("w", {DType::f32, {4, 3, 3, 3}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(1); });
  graph.output("y", emit("elementwise", {emit("convolution", {x, emit("mixing", {w})})}));
  EXPECT_EQ(plan(graph), Lines({"mixing last", "convolution last", "elementwise last"}));
}

/// On a GPU those of several weights are converted together, see graph/together.h.
TEST_F(Layouts, AConvolutionWritesTheGradientOfAWeightAsItIsReadOnACpu) {
  const Value w = graph.input("w", {4, 3, 3, 3});
  graph.output("read", emit("contiguous", {emit("weight_gradient", {x, w})}));
  EXPECT_EQ(plan(graph), Lines({"weight_gradient last", "cast", "contiguous"}));
  EXPECT_EQ(plan(graph, Device::cpu()), Lines({"weight_gradient", "contiguous"}));
}

TEST_F(Layouts, WithoutConversionsAConvolutionMixesLayouts) {
  const Value y = emit("convolution", {x}), z = emit("convolution", {y});
  graph.output("z", z);
  const std::vector<Layout> layouts = graph::choose_layouts(graph, first_gpu);
  EXPECT_EQ(layouts[static_cast<std::size_t>(x.id())], last);
  EXPECT_EQ(layouts[static_cast<std::size_t>(y.id())], last);
  EXPECT_EQ(layouts[static_cast<std::size_t>(z.id())], last);
}

TEST_F(Layouts, ImagesThatMayLieEitherWayLieChannelsLast) {
  graph.output("y", emit("contiguous", {emit("mixing", {emit("mixing", {x})})}));
  EXPECT_EQ(plan(graph), Lines({"mixing", "mixing", "contiguous"}));
  Graph free;
  const Value made = emit("mixing", {free.input("x", {2, 3, 32, 32})});
  free.output("y", emit("loss", {emit("mixing", {made})}));
  EXPECT_EQ(plan(free), Lines({"mixing last", "mixing last", "loss"}));
}

TEST_F(Layouts, ImagesOfOnePixelHaveOneLayout) {
  const Value pixels = graph.input("pixels", {2, 3, 1, 1});
  graph.output("y", emit("convolution", {pixels}));
  EXPECT_EQ(plan(graph), Lines({"convolution"}));
}

/// In parts, as it runs then, it takes no longer than a conversion.
TEST_F(Layouts, AProgramWithSumsConvertsNothingBetweenContiguousImages) {
  const ops::Operator& sums = ops::registry().find("elementwise_sums");
  const ops::Sample sample = sums.samples().front();
  Values inputs;
  for (const ops::SampleInput& input : sample.inputs) {
    const Value value = graph.input(concat("x", inputs.size()), input.shape);
    inputs.push_back(input.shape.rank() < 4 ? value : emit("contiguous", {value}));
  }
  graph.output("y", emit("contiguous", {graph.emit(sums, inputs, sample.attributes).at(0)}));
  EXPECT_EQ(plan(graph, Device::cpu()), Lines({"contiguous", "contiguous", "elementwise_sums", "contiguous"}));
}

TEST_F(Layouts, APermutationOfChannelsMovesNothingElse) {
  const Value y = emit("convolution", {graph.input("image", {2, 6, 8, 8})});
  const Value shuffled = reshape(transpose(reshape(y, Shape{2, 2, 3, 8, 8}), 1, 2), y.shape());
  graph.output("z", emit("convolution", {shuffled}));
  EXPECT_EQ(plan(graph::fuse(graph)), Lines({"convolution last", "permute_channels last", "convolution last"}));
}

TEST_F(Layouts, AreFoundForEveryOperator) {
  for (const ops::Operator* op : ops::registry().all()) {
    if (!op->cuda || !op->mutates.empty()) continue;
    for (const ops::Sample& sample : op->samples()) {
      Graph small;
      Values inputs;
      for (const Tensor& tensor : ops::sample_tensors(sample, DType::f32, 1)) {
        inputs.push_back(small.input(concat("input", inputs.size()), tensor.shape(), tensor.dtype()));
      }
      if (inputs.empty()) continue;
      const Values outputs = small.emit(*op, inputs, sample.attributes);
      for (std::size_t i = 0; i < outputs.size(); ++i) small.output(concat("output", i), outputs[i]);
      EXPECT_NO_THROW(plan(small)) << op->name << ' ' << sample.attributes.text();
    }
  }
}

TEST(Permutations, OfAxesOfSizeOneAreViews) {
  Graph graph;
  const Value moved = permute(graph.input("x", {5, 1, 3}), {1, 0, 2}), turned = permute(graph.input("y", {5, 2, 3}), {1, 0, 2});
  graph.output("moved", moved);
  graph.output("turned", turned);
  const graph::BufferPlan buffers = graph::plan_buffers(graph);
  EXPECT_TRUE(buffers.view[static_cast<std::size_t>(graph.producer_index(moved.id()))]);
  EXPECT_FALSE(buffers.view[static_cast<std::size_t>(graph.producer_index(turned.id()))]);
  State state;
  graph::Executable executable(graph, state);
  Tensor x = Tensor::empty({5, 1, 3}), y = Tensor::empty({5, 2, 3});
  for (int i = 0; i < 15; ++i) x.data<float>()[i] = static_cast<float>(i);
  y.fill(2);
  executable.run({{"x", x}, {"y", y}});
  EXPECT_EQ(executable.steps().size(), 1u);
  EXPECT_EQ(executable.output("moved").shape(), Shape({1, 5, 3}));
  EXPECT_EQ(executable.output("moved").to_vector<float>(), x.to_vector<float>());
}

TEST(Permutations, OfAVariableAreCopies) {
  Graph graph;
  const Value w = graph.variable("w", {DType::f32, {5, 1}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(1); });
  const Value moved = permute(w, {1, 0});
  graph.output("moved", moved);
  EXPECT_FALSE(graph::plan_buffers(graph).view[static_cast<std::size_t>(graph.producer_index(moved.id()))]);
}

TEST(Permutations, BetweenChannelsLastAndChannelsAsTheLastAxisAreViews) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 4, 5}), there = permute(x, {0, 2, 3, 1}), back = permute(there, {0, 3, 1, 2});
  const auto is_view = [&](const Value& value, Layout from, Layout to) {
    std::vector<Layout> layouts(static_cast<std::size_t>(graph.value_count()), from);
    layouts[static_cast<std::size_t>(value.id())] = to;
    return graph::gives_a_view(graph, graph.producer(value.id()), layouts);
  };
  EXPECT_TRUE(is_view(there, last, contiguous));
  EXPECT_TRUE(is_view(back, contiguous, last));
  EXPECT_FALSE(is_view(there, contiguous, last));
  EXPECT_FALSE(is_view(there, contiguous, contiguous));
  EXPECT_FALSE(is_view(there, last, last));
  EXPECT_FALSE(is_view(back, last, contiguous));
}

TEST(MinimumCut, CutsTheSmallestEdges) {
  graph::MinimumCut cut;
  const int a = cut.add_vertex(), b = cut.add_vertex(), c = cut.add_vertex(), alone = cut.add_vertex();
  cut.add_edge(graph::MinimumCut::source, a, 5);
  cut.add_edge(a, b, 2, 2);
  cut.add_edge(a, c, 1);
  cut.add_edge(c, b, graph::MinimumCut::unlimited);
  cut.add_edge(b, graph::MinimumCut::sink, 4);
  EXPECT_EQ(cut.sink_side(), (std::vector<bool>{false, true, false, true, true, false}));
  EXPECT_FALSE(cut.sink_side()[static_cast<std::size_t>(alone)]) << "the source's where either will do";
}

}  // namespace
}  // namespace frit::layouts_test
