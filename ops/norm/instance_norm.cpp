#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_core.h"

namespace frit {

Value instance_norm(Value input, Value weight, Value bias, double eps) {
  return ops::emit_one("instance_norm", {input, weight, bias}, ops::InstanceNormAttributes{.eps = eps});
}

namespace ops {

NormGeometry norm_geometry(const Shape& input, const InstanceNormAttributes&) {
  return grouped_geometry(input[0], input[1], input[1], elements_from(input, 2));
}

namespace {

void check(const InferContext& call, const Shape& input, const InstanceNormAttributes&) {
  call.require(input.rank() >= 2, "expected input (N, C, ...), got ", input);
  call.require(elements_from(input, 2) != 1, "expected more than 1 spatial element, got input ", input);
}

Sample sample(std::vector<SampleInput> inputs, InstanceNormAttributes attributes = {}) {
  const bool smooth = element_count(inputs[0].shape) < most_smooth_elements;
  return {.inputs = std::move(inputs), .attributes = attributes, .smooth = smooth};
}

std::vector<Sample> samples() {
  return {sample({Shape{2, 3, 5}}),
          sample({Shape{2, 3, 2, 2}, Shape{3}, Shape{3}}, {.eps = 0.1}),
          sample({Shape{1, 2, 3, 1, 7}, Shape{2}, Shape{2}}),
          sample({Shape{3, 1, 2}, Shape{1}, Shape{1}}, {.eps = 0.5}),
          sample({Shape{1, 2, 37}, {Shape{2}, Fill::positive}, Shape{2}}),
          sample({Shape{2, 8, 5, 7}, Shape{8}, Shape{8}}),
          sample({Shape{1, 24, 2, 3, 2}}),
          sample({Shape{1, 2, 131, 127}, Shape{2}, Shape{2}}),  // blocks of a device share slices
          sample({Shape{9, 16, 46, 47}, Shape{16}, Shape{16}}),
          sample({Shape{2, 2, 0}, Shape{2}, Shape{2}}),
          sample({Shape{0, 3, 2, 2}, Shape{3}, Shape{3}})};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(instance_norm) {
  Norm<InstanceNormAttributes>{check}.add_to(registry, {.name = "instance_norm",
                                                        .summary = "(x - mean) * rstd * weight + bias over each sample's channel",
                                                        .samples_in = samples_of_input_0,
                                                        .samples = samples});
}
