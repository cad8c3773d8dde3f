#include "swish.h"

#include <cmath>

namespace {

using namespace frit;
using namespace frit::ops;

/// The rule is emitted in operators that are there: fusing them is the compiler's job.
Values gradient_of_swish(const GradientContext& c) {
  const double beta = c.as<Swish>().beta;
  const Value x = c.inputs[0], s = sigmoid(x * beta);
  return {c.gradients[0] * (s + x * beta * s * (1.0 - s))};
}

/// Inputs are contiguous, and float32 where the program stores halves, as the entry does not say otherwise.
void run_on_cpu(const KernelContext& c) {
  dispatch_floating(c.inputs[0].dtype(), [&]<class T>() {
    const std::span<T> x = c.inputs[0].span<T>(), y = c.outputs[0].span<T>();
    const T beta = static_cast<T>(c.as<Swish>().beta);
    parallel_for(std::ssize(x), /*grain=*/4096, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) y[i] = x[i] / (1 + std::exp(-beta * x[i]));
    });
  });
}

/// What the generic checks, `gradcheck` and `bench` call it with.
std::vector<Sample> samples() {
  return {
      {.inputs = {Shape{2, 3}}}, {.inputs = {Shape{}}, .attributes = Swish{-0.5}}, {.inputs = {Shape{4, 3, 5}}, .attributes = Swish{2}}};
}

}  // namespace

void register_swish() {
  registry().add<Swish>({
      .name = "swish",
      .summary = "x * sigmoid(beta * x)",
      .inputs = {"input"},
      .infer = infer_same,
      .gradient = gradient_of_swish,
      .cpu = {.run = run_on_cpu},
      .in_place = {{0, 0}},
      .samples = samples,
  });
}
