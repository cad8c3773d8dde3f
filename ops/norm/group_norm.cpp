#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_core.h"

namespace frit {

Value group_norm(Value input, std::int64_t num_groups, Value weight, Value bias, double eps) {
  return ops::emit_one("group_norm", {input, weight, bias}, ops::GroupNormAttributes{.num_groups = num_groups, .eps = eps});
}

namespace ops {

NormGeometry norm_geometry(const Shape& input, const GroupNormAttributes& attributes) {
  return grouped_geometry(input[0], input[1], attributes.num_groups, elements_from(input, 2));
}

namespace {

void check(const InferContext& call, const Shape& input, const GroupNormAttributes& attributes) {
  const std::int64_t groups = attributes.num_groups;
  call.require(input.rank() >= 2, "expected input (N, C, ...), got ", input);
  call.require(groups > 0, "num_groups must be greater than 0, got ", groups);
  call.require(input[1] % groups == 0, "the number of channels must be divisible by num_groups, got input ", input, " and num_groups ",
               groups);
  call.require(element_count(input) != groups, "expected more than 1 value per group, got input ", input, " and num_groups ", groups);
}

Shape weight_shape(const Shape& input, const GroupNormAttributes&) { return {input[1]}; }

Sample sample(std::vector<SampleInput> inputs, GroupNormAttributes attributes) {
  return {.inputs = std::move(inputs), .attributes = attributes};
}

/// Slices that blocks of a device share.
Sample many_pixels() {
  Sample result = sample({Shape{1, 4, 91, 93}, Shape{4}, Shape{4}}, {.num_groups = 2});
  result.smooth = false;  // differences for each of its elements would take long
  return result;
}

std::vector<Sample> samples() {
  return {sample({Shape{2, 4, 3}}, {.num_groups = 2}),
          sample({Shape{2, 6, 2, 2}, Shape{6}, Shape{6}}, {.num_groups = 3}),
          sample({Shape{1, 3, 3, 1, 3}, Shape{3}, Shape{3}}, {.num_groups = 1}),
          sample({Shape{2, 3, 5}, Shape{3}, Shape{3}}, {.num_groups = 3}),
          sample({Shape{3, 8}, Shape{8}, Shape{8}}, {.num_groups = 2}),
          sample({Shape{2, 2}, Shape{2}, Shape{2}}, {.num_groups = 2}),
          sample({Shape{1, 2, 19}, {Shape{2}, Fill::positive}, Shape{2}}, {.num_groups = 1, .eps = 0.5}),
          sample({Shape{2, 16, 3, 7}, Shape{16}, Shape{16}}, {.num_groups = 4}),
          sample({Shape{1, 24, 2, 2, 3}, Shape{24}, Shape{24}}, {.num_groups = 2}),
          sample({Shape{2, 66, 2, 2}, Shape{66}, Shape{66}}, {.num_groups = 1}),
          many_pixels(),
          sample({Shape{2, 4, 0}, Shape{4}, Shape{4}}, {.num_groups = 2}),
          sample({Shape{0, 4, 3}, Shape{4}, Shape{4}}, {.num_groups = 2})};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(group_norm) {
  GroupedNorm<GroupNormAttributes>{check, weight_shape}.add_to(
      registry,
      {.name = "group_norm", .summary = "(x - mean) * rstd * weight + bias over each sample's group of channels", .samples = samples});
}
