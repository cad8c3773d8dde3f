// Norms on the CPU, computed with what stands before and after them.

#include "frit/core/memory/allocator.h"
#include "frit/core/thread_pool.h"
#include "frit/graph/layouts.h"
#include "frit/ops/elementwise/unary.h"
#include "graph/chains_checks.h"

namespace frit {
namespace {

using NormChains = Chains;

/// Of a norm of images that are data: what would be computed with it lies where its result does, and runs allocate nothing.
TEST_F(NormChains, LeaveANormWhoseInputGradientNobodyReads) {
  const Value x = input("images", {2, 8, 33, 31}), weight = input("weight", {8}), bias = input("bias", {8});
  const Value y = relu(group_norm(x, 2, weight, bias));
  const Values gradients = gradient(sum(square(y)), std::vector{weight, bias});
  graph_.output("y", y);
  graph_.output("dweight", gradients[0]);
  graph_.output("dbias", gradients[1]);
  const Graph clean = graph::convert_layouts(graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), graph_), Device::cpu());
  EXPECT_EQ(text_of(clean, "chain").find("centre=group_norm_backward"), std::string::npos) << graph::to_text(clean);
  const auto expected = results_of(graph_), found = results_of(clean);
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-5, largest_finite(tensor))) << name;
  State state;
  graph::Executable executable(clean, state);
  const Bindings inputs = bindings_of(clean);
  executable.run(inputs);
  const std::size_t before = allocator_of(Device::cpu()).statistics().allocations;
  executable.run(inputs);
  EXPECT_EQ(allocator_of(Device::cpu()).statistics().allocations, before);
}

/// As such a call may come from elsewhere, the kernel takes it.
TEST_F(NormChains, TakeInTheGradientOfANormWhoseInputGradientNobodyReads) {
  for (const Shape& shape : {image_, Shape{3, 16, 41, 53}}) {
    Graph graph;
    const auto statistic = [&](const char* name) { return graph.input(name, {shape[1]}, DType::f64); };
    const Value x = graph.input("x", shape), g = graph.input("g", shape) * sigmoid(graph.input("y", shape));
    const Value inputs[] = {g, x, statistic("mean"), statistic("rstd")};
    const Values outputs = ops::emit("batch_norm_backward", inputs, ops::BatchNormAttributes{});
    graph.output("dw", outputs[1]);
    graph.output("db", outputs[2]);
    EXPECT_NE(grown(graph).find("multiply(x1, y0); return y1 input=0 centre=batch_norm_backward"), std::string::npos) << grown(graph);
    const Graph converted = graph::convert_layouts(graph::grow_chains(graph), Device::cpu());
    const auto expected = results_of(graph), found = results_of(converted);
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(near(found.at(name), tensor, 1e-5, largest_finite(tensor))) << name;
  }
}

/// Units of many tiles, and many units of one, in both layouts.
TEST_F(NormChains, GiveTheSameBitsOnAnyNumberOfThreads) {
  const int threads = thread_count();
  for (const Shape& shape : {Shape{3, 16, 41, 53}, Shape{40, 16, 9, 11}, Shape{2, 16, 5, 16, 17}}) {
    for (const bool batch : {false, true}) {
      const Graph contiguous = graph::apply(graph::cleanup_pipeline(DeviceKind::cpu), training_graph(DType::f32, shape, batch));
      EXPECT_NE(text_of(contiguous, "chain"), "");
      EXPECT_EQ(text_of(contiguous, "updating_chain") != "", batch);
      for (const Graph& graph : {contiguous, graph::convert_layouts(contiguous, Device::cpu())}) {
        SCOPED_TRACE(graph::to_text(graph));
        set_thread_count(1);
        const auto expected = results_of(graph);
        for (const int count : {2, 3}) {
          set_thread_count(count);
          const auto found = results_of(graph);
          for (const auto& [name, tensor] : expected) EXPECT_TRUE(same_bits(found.at(name), tensor)) << name << ", " << count << " threads";
        }
      }
    }
  }
  set_thread_count(threads);
}

}  // namespace
}  // namespace frit
