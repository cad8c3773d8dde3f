#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace ops {
namespace {

struct FlattenAttributes {
  std::int64_t start_axis = 1, end_axis = -1;
  void fields(FieldVisitor& v) {
    v.field("start_axis", start_axis);
    v.field("end_axis", end_axis);
  }
};

std::vector<TensorType> reshaped(const InferContext& call, const Shape& wanted) {
  const TensorType& input = call.inputs[0];
  Shape shape = wanted;
  int inferred = -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != -1) continue;
    call.require(inferred < 0, "only one size can be inferred, got shape ", wanted);
    inferred = axis;
  }
  if (inferred >= 0) {
    shape[inferred] = 1;
    const std::int64_t known = element_count(shape);
    call.require(known != 0, "the size -1 in shape ", wanted, " could be any (input ", input.shape, ")");
    shape[inferred] = input.elements() / known;
  }
  call.require(element_count(shape) == input.elements(), "shape ", wanted, " does not fit ", input.elements(), " elements (input ",
               input.shape, ")");
  return {{input.dtype, shape}};
}

std::vector<TensorType> infer_reshape(const InferContext& call) { return reshaped(call, call.as<ReshapeAttributes>().shape); }

std::vector<TensorType> infer_flatten(const InferContext& call) {
  const TensorType& input = call.inputs[0];
  const auto& attributes = call.as<FlattenAttributes>();
  const int rank = std::max(input.shape.rank(), 1);
  const int start = normalize_axis(attributes.start_axis, rank, "flatten");
  const int end = normalize_axis(attributes.end_axis, rank, "flatten");
  call.require(start <= end, "start_axis ", attributes.start_axis, " comes after end_axis ", attributes.end_axis, " (input ", input.shape,
               ")");
  Shape shape;
  std::int64_t merged = 1;
  for (int axis = 0; axis < input.shape.rank(); ++axis) {
    if (axis < start || axis > end) shape.push_back(input.shape[axis]);
    if (axis >= start && axis <= end) merged *= input.shape[axis];
    if (axis == end) shape.push_back(merged);
  }
  if (shape.empty()) shape.push_back(1);
  return {{input.dtype, shape}};
}

Values reshape_gradient(const GradientContext& call) {
  Values results(call.inputs.size());  // a size has none
  results[0] = reshape(call.gradients[0], call.inputs[0].shape());
  return results;
}

std::vector<Sample> reshape_samples() {
  return {
      {.inputs = {Shape{2, 3, 5}}, .attributes = ReshapeAttributes{{5, 6}}},
      {.inputs = {Shape{2, 3, 5}}, .attributes = ReshapeAttributes{{3, -1}}},
      {.inputs = {Shape{7}}, .attributes = ReshapeAttributes{{1, 7, 1}}},
      {.inputs = {Shape{1, 1}}, .attributes = ReshapeAttributes{{}}},
      {.inputs = {Shape{0, 3}}, .attributes = ReshapeAttributes{{-1, 2, 3}}},
  };
}

std::vector<Sample> reshape_to_sizes_samples() {
  return {
      {.inputs = {Shape{2, 3, 4}}, .attributes = SizesAttributes{{0, -1}, {0, -1}, {0, 0}, {1, 1}, {1, 1}}},
      {.inputs = {Shape{2, 3, 4}}, .attributes = SizesAttributes{{0, 0, 6}, {0, 0, -1}, {0, 2, 0}, {1, 1, 1}, {1, 2, 1}}},
      {.inputs = {Shape{6, 5}, Shape{3}}, .attributes = SizesAttributes{{0, 0}, {1, 0}, {0, 1}, {1, 2}, {1, 1}}},
      {.inputs = {Shape{0, 3}}, .attributes = SizesAttributes{{0, 0}, {0, 0}, {1, 0}, {1, 1}, {1, 1}}},
      {.inputs = {Shape{1, 1}}, .attributes = SizesAttributes{{0}, {0}, {0}, {1}, {1}}},
  };
}

std::vector<Sample> flatten_samples() {
  return {
      {.inputs = {Shape{2, 3, 5}}},
      {.inputs = {Shape{2, 3, 2, 2}}, .attributes = FlattenAttributes{1, 2}},
      {.inputs = {Shape{2, 3, 5}}, .attributes = FlattenAttributes{0, -1}},
      {.inputs = {Shape{}}, .attributes = FlattenAttributes{0, -1}},
      {.inputs = {Shape{0, 3, 2}}},
  };
}

}  // namespace
}  // namespace ops

Value reshape(Value x, const Shape& shape) { return x.shape() == shape ? x : ops::emit_one("reshape", {x}, ops::ReshapeAttributes{shape}); }

Value reshape(Value x, std::initializer_list<Size> sizes) { return ops::reshape_to(x, std::span(sizes.begin(), sizes.size())); }

Value ops::reshape_to(Value x, std::span<const Size> sizes) { return emit_to_sizes("reshape", x, sizes, reshape); }

Value flatten(Value x, std::int64_t start_axis, std::int64_t end_axis) {
  return ops::emit_one("flatten", {x}, ops::FlattenAttributes{start_axis, end_axis});
}

}  // namespace frit

FRIT_OPERATORS(reshape) {
  const auto plain = [] {
    return Operator{
        .name = "reshape",
        .summary = "the same elements in another shape; one size may be -1",
        .inputs = {"input"},
        .infer = infer_reshape,
        .gradient = reshape_gradient,
        .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
        .reshaping = [](const Shape& shape) -> Attributes { return ReshapeAttributes{shape}; },
        .view = true,
        .samples = reshape_samples,
    };
  };
  registry.add<ReshapeAttributes>(plain());
  registry.add<SizesAttributes>(to_sizes(plain(), "the same elements in another shape, of which some sizes are those of inputs' axes",
                                         reshaped, reshape, reshape_to_sizes_samples));
  registry.add<FlattenAttributes>({
      .name = "flatten",
      .summary = "axes start_axis..end_axis as one",
      .inputs = {"input"},
      .infer = infer_flatten,
      .gradient = reshape_gradient,
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .view = true,
      .samples = flatten_samples,
  });
}
