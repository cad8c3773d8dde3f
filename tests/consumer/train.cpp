// Trains a line with an operator of this program's own, to show that an installed frit is whole: the headers, the built-in operators
// (which a linker must not drop), the registry, the gradient.

#include <frit/frit.h>

#include <cmath>
#include <cstdio>

namespace {

frit::Value cube(frit::Value x) { return frit::ops::emit_one("cube", {x}); }

void register_cube() {
  using namespace frit::ops;
  registry().add({
      .name = "cube",
      .summary = "x * x * x",
      .inputs = {"input"},
      .infer = infer_same,
      .gradient = [](const GradientContext& c) { return frit::Values{c.gradients[0] * square(c.inputs[0]) * 3.0}; },
      .cpu = {.run =
                  [](const KernelContext& c) {
                    frit::dispatch_floating(c.inputs[0].dtype(), [&]<class T>() {
                      const std::span<T> x = c.inputs[0].span<T>(), y = c.outputs[0].span<T>();
                      for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i] * x[i];
                    });
                  }},
      .samples =
          [] {
            return std::vector<Sample>{{.inputs = {frit::Shape{2, 3}}}};
          },
  });
}

}  // namespace

int main() {
  using namespace frit;
  register_cube();
  Graph graph;
  const Value x = graph.input("x", {8, 1});
  const Value target = graph.input("target", {8, 1});
  const Scope scope(graph);
  const Value loss = mean_squared_error(nn::linear(scope / "line", cube(x), {.out_features = 1}), target);
  TrainStep step(loss, Adam{.learning_rate = 0.05}, Device::cpu());  // where cube has its kernel

  const Tensor inputs = Tensor::from<float>({-1, -0.8F, -0.5F, -0.2F, 0.1F, 0.4F, 0.7F, 1}, {8, 1});
  const Tensor targets = Tensor::empty({8, 1});
  for (int i = 0; i < 8; ++i) targets.data<float>()[i] = 2 * std::pow(inputs.data<float>()[i], 3.0F) + 0.5F;
  double value = 0;
  for (int i = 0; i < 500; ++i) value = step({{"x", inputs}, {"target", targets}});
  std::printf("loss %g, weight %g\n", value, step.state().at("line.weight").item());
  return value < 1e-3 && ops::registry().all().size() > 50 ? 0 : 1;
}
