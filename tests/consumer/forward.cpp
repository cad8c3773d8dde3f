// Runs a model forward with nothing but frit::runtime.

#include <frit/runtime.h>

#include <cstdio>

int main() {
  using namespace frit;
  const Model model = make_model("conv2d-groupnorm-pool");
  Graph graph;
  graph.output("output", model.build(Scope(graph), graph.input("input", model.small_input)));
  Program program(graph::for_inference(graph), std::make_shared<State>(Device::cpu()));
  const Tensor input = Tensor::empty(model.small_input);
  fill_normal(input, 0, 1, 0, 0);
  const Tensor& output = program.run({{"input", input}}).output("output");
  float largest = 0;
  for (const float value : output.span<float>()) largest = value > largest ? value : largest;
  std::printf("largest %g of %lld\n", static_cast<double>(largest), static_cast<long long>(output.elements()));
  return largest > 0 && largest <= 1 ? 0 : 1;  // the model clamps to [0, 1]
}
