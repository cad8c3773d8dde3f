#pragma once

#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/registry.h"

namespace frit::ops {

/// A functor of the call's attributes, if it has any.
template <template <class> class Function, class A, class T>
Function<T> functor_of(const KernelContext& call) {
  if constexpr (std::is_same_v<A, NoAttributes>) {
    return Function<T>{};
  } else {
    return Function<T>(call.as<A>());
  }
}

/// y = Function(x).
template <template <class> class Function, class A = NoAttributes>
void run_pointwise(const KernelContext& call) {
  dispatch_floating(call.outputs[0].dtype(), [&]<class T>() {
    map_elements<T, T>(call.outputs[0], call.inputs, functor_of<Function, A, T>(call));
  });
}

/// A few shapes of one input, with each of `attributes`.
inline std::vector<Sample> pointwise_samples(Fill fill, const std::vector<Attributes>& attributes = {NoAttributes{}}) {
  std::vector<Sample> samples;
  for (const Attributes& a : attributes) {
    for (const Shape& shape : {Shape{2, 3, 5}, Shape{7}, Shape{1}, Shape{}, Shape{0, 4}}) {
      samples.push_back({.inputs = {{shape, fill}}, .attributes = a});
    }
  }
  return samples;
}

/// Adds y = Function(x), of which `entry` has the name, the summary, the samples and perhaps a check of its attributes in `infer`, together with
/// "<name>_backward" for its gradient, which is taken from the output or from the input, as the functor says.
template <template <class> class Function, class A = NoAttributes>
void add_with_backward(Registry& registry, Operator entry) {
  constexpr bool from_output = Function<double>::gradient_from_output;
  const std::string name = entry.name + "_backward";

  Operator backward{.name = name,
                    .summary = "the gradient of " + entry.name + " from that of its output",
                    .inputs = {"gradient", from_output ? "output" : "input"}};
  backward.infer = [](const InferContext& call) {
    call.require(call.inputs[0] == call.inputs[1], "input \"gradient\" is ", call.inputs[0], ", input \"", call.op.inputs[1].name, "\" is ",
                 call.inputs[1]);
    return infer_same(call);
  };
  if constexpr (Function<double>::piecewise_linear) {
    backward.gradient = [name](const GradientContext& c) -> Values {
      return {emit_one(name, {c.gradients[0], c.inputs[1]}, c.attributes), Value{}};
    };
  } else {
    backward.no_gradient = "not differentiable twice";
  }
  backward.cpu = {.run =
                      [](const KernelContext& call) {
                        dispatch_floating(call.outputs[0].dtype(), [&]<class T>() {
                          const auto function = functor_of<Function, A, T>(call);
                          map_elements<T, T, T>(call.outputs[0], call.inputs, [function](T g, T v) { return function.gradient(g, v); });
                        });
                      },
                  .strided = true};
  backward.in_place = {{0, 0}, {0, 1}};
  backward.samples = [samples = entry.samples] {
    std::vector<Sample> result = samples();
    for (Sample& sample : result) sample.inputs.insert(sample.inputs.begin(), SampleInput(sample.inputs[0].shape));
    return result;
  };
  registry.add<A>(std::move(backward));

  entry.inputs = {"input"};
  if (!entry.infer) entry.infer = infer_same;
  entry.gradient = [name](const GradientContext& c) -> Values {
    return {emit_one(name, {c.gradients[0], from_output ? c.outputs[0] : c.inputs[0]}, c.attributes)};
  };
  entry.cpu = {.run = run_pointwise<Function, A>, .strided = true};
  entry.in_place = {{0, 0}};
  registry.add<A>(std::move(entry));
}

}  // namespace frit::ops
