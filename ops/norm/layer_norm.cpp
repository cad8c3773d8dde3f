#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_core.h"

namespace frit {

Value layer_norm(Value input, std::int64_t normalized_rank, Value weight, Value bias, double eps) {
  return ops::emit_one("layer_norm", {input, weight, bias}, ops::LayerNormAttributes{.normalized_rank = normalized_rank, .eps = eps});
}

namespace ops {

/// One group of channels of one element each.
NormGeometry norm_geometry(const Shape& input, const LayerNormAttributes& attributes) {
  const int outer_rank = input.rank() - static_cast<int>(attributes.normalized_rank);
  const Shape outer(std::span(input.begin(), input.begin() + outer_rank));
  return grouped_geometry(element_count(outer), elements_from(input, outer_rank), 1, 1);
}

namespace {

void check(const InferContext& call, const Shape& input, const LayerNormAttributes& attributes) {
  call.require(attributes.normalized_rank >= 1 && attributes.normalized_rank <= input.rank(),
               "normalized_rank must be from 1 to the input's rank, got ", attributes.normalized_rank, " (input ", input, ")");
}

Shape weight_shape(const Shape& input, const LayerNormAttributes& attributes) {
  return Shape(std::span(input.end() - attributes.normalized_rank, input.end()));
}

Sample sample(std::vector<SampleInput> inputs, LayerNormAttributes attributes = {}) {
  return {.inputs = std::move(inputs), .attributes = attributes};
}

std::vector<Sample> samples() {
  return {sample({Shape{3, 5}}),
          sample({Shape{2, 3, 4}, Shape{4}, Shape{4}}),
          sample({Shape{2, 3, 2}, Shape{3, 2}, Shape{3, 2}}, {.normalized_rank = 2, .eps = 0.1}),
          sample({Shape{7}, Shape{7}, Shape{7}}),
          sample({Shape{2, 1}, Shape{1}, Shape{1}}, {.normalized_rank = 1, .eps = 0.5}),
          sample({Shape{2, 37}, {Shape{37}, Fill::positive}, Shape{37}}),
          sample({Shape{9, 40}, Shape{40}, Shape{40}}),
          sample({Shape{5, 96}}),
          sample({Shape{2, 520}, Shape{520}, Shape{520}}),
          sample({Shape{2, 0}, Shape{0}, Shape{0}}),
          sample({Shape{0, 4}, Shape{4}, Shape{4}})};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(layer_norm) {
  GroupedNorm<LayerNormAttributes>{check, weight_shape, std::nullopt}.add_to(
      registry, {.name = "layer_norm", .summary = "(x - mean) * rstd * weight + bias over the last axes", .samples = samples});
}
