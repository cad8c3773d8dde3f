#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_core.h"
#include "frit/ops/shape/image_axes.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

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

/// As all samples are checked together, some may be taken of which one alone is not.
std::vector<bool> samples_of_groups(const InferContext& call) {
  const bool is_taken_alone = elements_from(call.shape(0), 1) != call.as<GroupNormAttributes>().num_groups;
  return is_taken_alone ? samples_of_input_0(call) : std::vector<bool>();
}

/// An instance norm whose channels are the groups, as files without the operator spell it.
Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<GroupNormAttributes>();
  const Value x = inputs[0];
  const std::int64_t size = x.dim(1) / a.num_groups * elements_from(x.shape(), 2);
  const Value groups = reshape(x, Shape{x.dim(0), a.num_groups, size});
  // An instance norm refuses slices of one value.
  const Value normalized = size == 1 ? layer_norm(groups, 1, {}, {}, a.eps) : instance_norm(groups, {}, {}, a.eps);
  const Value y = reshape(normalized, x.shape());
  if (inputs.size() == 1) return {y};
  return {y * along_channels(inputs[1], x.rank()) + along_channels(inputs[2], x.rank())};
}

/// The nodes are reshape, instance_norm, reshape. What multiplies and adds then follows as a channel affine.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType> inputs) {
  if (inputs.size() != 1 || matched.size() != 3) return std::nullopt;
  const Shape& grouped = matched[0].as<ReshapeAttributes>().shape;
  if (grouped.rank() != 3 || grouped[1] < 1) return std::nullopt;
  return GroupNormAttributes{.num_groups = grouped[1], .eps = matched[1].as<InstanceNormAttributes>().eps};
}

/// Of a norm without weight and bias.
Values fold_channel_affine(std::span<const Value> inputs, const Attributes&, const ChannelAffine& affine) {
  if (affine.order) return {};
  const Value x = inputs[0];
  if (inputs.size() != 1) return {};
  const auto or_all = [&](Value numbers, double number) { return numbers ? numbers : expand(scalar(x, number), {x.dim(1)}); };
  return {x, or_all(affine.factor, 1), or_all(affine.addend, 0)};
}

Sample sample(std::vector<SampleInput> inputs, GroupNormAttributes attributes) {
  const bool smooth = element_count(inputs[0].shape) < most_smooth_elements;
  return {.inputs = std::move(inputs), .attributes = attributes, .smooth = smooth};
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
          sample({Shape{1, 4, 91, 93}, Shape{4}, Shape{4}}, {.num_groups = 2}),  // blocks of a device share slices
          sample({Shape{2, 16, 41, 41}, Shape{16}, Shape{16}}, {.num_groups = 4}),
          sample({Shape{2, 4, 0}, Shape{4}, Shape{4}}, {.num_groups = 2}),
          sample({Shape{0, 4, 3}, Shape{4}, Shape{4}}, {.num_groups = 2})};
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(group_norm) {
  Norm<GroupNormAttributes>{check}.add_to(registry, {.name = "group_norm",
                                                     .summary = "(x - mean) * rstd * weight + bias over each sample's group of channels",
                                                     .decompose = decompose,
                                                     .fuse = fuse,
                                                     .fold_channel_affine = fold_channel_affine,
                                                     .samples_in = samples_of_groups,
                                                     .samples = samples});
}
