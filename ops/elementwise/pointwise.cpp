#include "frit/ops/elementwise/pointwise.h"

#include <numeric>

namespace frit::ops {

Kernel map_kernel(KernelFunction run, int inputs, bool halves) {
  Kernel kernel{.run = std::move(run), .strided = true, .halves = halves, .any_layout_outputs = {0}};
  kernel.any_layout_inputs.resize(static_cast<std::size_t>(inputs));
  std::iota(kernel.any_layout_inputs.begin(), kernel.any_layout_inputs.end(), 0);
  return kernel;
}

Kernel element_kernel(ElementRule rule, int inputs) {
  const auto run = [rule, inputs](const KernelContext& call) {
    strided_map(call.outputs[0], call.inputs.first(static_cast<std::size_t>(inputs)), rule(call));
  };
  Kernel kernel = map_kernel(run, inputs);
  kernel.elements = std::move(rule);
  kernel.takes_parts = [](const KernelContext&) { return true; };
  return kernel;
}

std::function<std::vector<Sample>()> pointwise_samples(Fill fill, std::vector<Attributes> attributes) {
  return [fill, attributes = std::move(attributes)] {
    std::vector<Sample> samples;
    for (const Attributes& a : attributes) {
      for (const Shape& shape : {Shape{2, 3, 5}, Shape{7}, Shape{1}, Shape{}, Shape{0, 4}, Shape{2, 3, 2, 3}}) {
        samples.push_back({.inputs = {{shape, fill}}, .attributes = a});
      }
    }
    return samples;
  };
}

Operator pointwise_backward(const Operator& entry, const PointwiseKernels& kernels) {
  Operator op{.name = entry.name + "_backward",
              .summary = "the gradient of " + entry.name + " from that of its output",
              .inputs = {"gradient", kernels.gradient_from_output ? "output" : "input"},
              .infer = infer_broadcast,
              .elementwise = true,
              .cpu = element_kernel(kernels.backward, 2),
              .in_place = {{0, 0}, {0, 1}}};
  if (kernels.piecewise_linear) {
    op.gradient = [name = op.name](const GradientContext& c) -> Values {
      return {emit_one(name, {c.gradients[0], c.inputs[1]}, c.attributes), Value{}};
    };
  } else {
    op.no_gradient = "not differentiable twice";
  }
  op.samples = [samples = entry.samples] {
    std::vector<Sample> result = samples();
    for (Sample& sample : result) sample.inputs.insert(sample.inputs.begin(), SampleInput(sample.inputs[0].shape));
    return result;
  };
  return op;
}

Operator pointwise_forward(Operator entry, const PointwiseKernels& kernels) {
  entry.inputs = {"input"};
  if (!entry.infer) entry.infer = infer_same;
  if (!entry.gradient) {
    entry.gradient = [name = entry.name + "_backward", from_output = kernels.gradient_from_output](const GradientContext& c) -> Values {
      return {emit_one(name, {c.gradients[0], from_output ? c.outputs[0] : c.inputs[0]}, c.attributes)};
    };
  }
  entry.elementwise = true;
  entry.cpu = element_kernel(kernels.forward, 1);
  entry.in_place = {{0, 0}};
  return entry;
}

}  // namespace frit::ops
