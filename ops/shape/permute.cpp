#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/image_axes.h"
#include "frit/ops/shape/shape_attributes.h"

namespace frit {
namespace ops {
namespace {

Dims normalized(const Dims& axes, int rank) {
  Dims result;
  for (const std::int64_t axis : axes) result.push_back(normalize_axis(axis, rank, "permute"));
  return result;
}

std::vector<TensorType> infer_permute(const InferContext& call) {
  const TensorType& input = call.inputs[0];
  const Dims& given = call.as<PermuteAttributes>().axes;
  call.require(given.rank() == input.shape.rank(), "expected ", input.shape.rank(), " axes, got ", given.rank(), " (input ", input.shape,
               ")");
  const Dims axes = normalized(given, input.shape.rank());
  Shape shape = input.shape;
  unsigned named = 0;
  for (int i = 0; i < axes.rank(); ++i) {
    const unsigned bit = 1u << axes[i];
    call.require((named & bit) == 0, "axis ", axes[i], " is named twice");
    named |= bit;
    shape[i] = input.shape[static_cast<int>(axes[i])];
  }
  return {{input.dtype, shape}};
}

Values permute_gradient(const GradientContext& call) {
  const Dims axes = normalized(call.as<PermuteAttributes>().axes, call.inputs[0].rank());
  Dims inverse = axes;
  for (int i = 0; i < axes.rank(); ++i) inverse[static_cast<int>(axes[i])] = i;
  return {permute(call.gradients[0], inverse)};
}

void run_permute(const KernelContext& call) { copy(call.outputs[0], call.inputs[0].permute(call.as<PermuteAttributes>().axes)); }

std::vector<Sample> permute_samples() {
  return {
      {.inputs = {Shape{3, 5}}, .attributes = PermuteAttributes{{1, 0}}},
      {.inputs = {Shape{2, 3, 5}}, .attributes = PermuteAttributes{{2, 0, 1}}},
      {.inputs = {Shape{2, 3, 2, 3}}, .attributes = PermuteAttributes{{0, -2, -1, 1}}},
      {.inputs = {Shape{}}, .attributes = PermuteAttributes{{}}},
      {.inputs = {Shape{7, 1}}, .attributes = PermuteAttributes{{1, 0}}},
      {.inputs = {Shape{0, 3}}, .attributes = PermuteAttributes{{1, 0}}},
  };
}

/// The unit axis stays before the last one: where that comes last, images that lie channels-last already lie so.
Attributes permute_with_unit_axis(const Attributes& given) {
  Dims axes;
  for (const std::int64_t axis : given.as<PermuteAttributes>().axes) {
    if (around_unit_axis(axis) == 3) axes.push_back(2);
    axes.push_back(around_unit_axis(axis));
  }
  return PermuteAttributes{axes};
}

}  // namespace
}  // namespace ops

Value permute(Value x, const Dims& axes) { return ops::emit_one("permute", {x}, ops::PermuteAttributes{ops::normalized(axes, x.rank())}); }

Value transpose(Value x, std::int64_t first, std::int64_t second) {
  Dims axes;
  for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  std::swap(axes[normalize_axis(first, x.rank(), "transpose")], axes[normalize_axis(second, x.rank(), "transpose")]);
  return permute(x, axes);
}

}  // namespace frit

FRIT_OPERATORS(permute) {
  registry.add<PermuteAttributes>({
      .name = "permute",
      .summary = "output axis i is input axis axes[i]",
      .inputs = {"input"},
      .infer = infer_permute,
      .gradient = permute_gradient,
      .cpu = {.run = run_permute, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .cuda = {.run = run_permute, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .permutation = [](const Attributes& attributes) { return attributes.as<PermuteAttributes>().axes; },
      .with_unit_axis = permute_with_unit_axis,
      .samples = permute_samples,
  });
}
