#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace ops {
namespace {

struct ExpandAttributes {
  Shape shape;  ///< -1 keeps a size
  void fields(FieldVisitor& v) { v.field("shape", shape); }
};

std::vector<TensorType> expanded(const InferContext& call, const Shape& wanted) {
  const Shape& input = call.shape(0);
  const int added = wanted.rank() - input.rank();
  Shape shape = wanted;
  bool fits = added >= 0;
  for (int axis = 0; fits && axis < wanted.rank(); ++axis) {
    if (axis < added) {
      fits = wanted[axis] >= 0;
    } else {
      const std::int64_t size = input[axis - added];
      if (wanted[axis] == -1) shape[axis] = size;
      fits = shape[axis] == size || (size == 1 && shape[axis] >= 0);
    }
  }
  call.require(fits, "shape ", input, " does not expand to ", wanted);
  return {{call.inputs[0].dtype, shape}};
}

std::vector<TensorType> infer_expand(const InferContext& call) { return expanded(call, call.as<ExpandAttributes>().shape); }

Values expand_gradient(const GradientContext& call) {
  Values results(call.inputs.size());  // a size has none
  results[0] = sum_to(call.gradients[0], call.inputs[0].shape());
  return results;
}

void run_expand(const KernelContext& call) { copy(call.outputs[0], call.inputs[0].expand(call.outputs[0].shape())); }

std::vector<Sample> expand_samples() {
  return {
      {.inputs = {Shape{3, 1}}, .attributes = ExpandAttributes{{3, 5}}},
      {.inputs = {Shape{1, 3, 1}}, .attributes = ExpandAttributes{{2, -1, 3}}},
      {.inputs = {Shape{3}}, .attributes = ExpandAttributes{{2, 5, 3}}},
      {.inputs = {Shape{}}, .attributes = ExpandAttributes{{7}}},
      {.inputs = {Shape{2, 3}}, .attributes = ExpandAttributes{{-1, -1}}},
      {.inputs = {Shape{1, 3}}, .attributes = ExpandAttributes{{0, 3}}},
  };
}

std::vector<Sample> expand_to_sizes_samples() {
  return {
      {.inputs = {Shape{3, 1}, Shape{2, 5}}, .attributes = SizesAttributes{{0, 0}, {0, 1}, {0, 1}, {1, 1}, {1, 1}}},
      {.inputs = {Shape{1, 4}, Shape{3}}, .attributes = SizesAttributes{{0, -1}, {1, -1}, {0, 0}, {2, 1}, {3, 1}}},
      {.inputs = {Shape{4}}, .attributes = SizesAttributes{{0, -1}, {0, -1}, {0, 0}, {1, 1}, {2, 1}}},
      {.inputs = {Shape{1, 3}, Shape{0}}, .attributes = SizesAttributes{{0, 3}, {1, -1}, {0, 0}, {1, 1}, {1, 1}}},
  };
}

}  // namespace
}  // namespace ops

Value expand(Value x, const Shape& shape) { return x.shape() == shape ? x : ops::emit_one("expand", {x}, ops::ExpandAttributes{shape}); }

Value expand(Value x, std::initializer_list<Size> sizes) { return ops::expand_to(x, std::span(sizes.begin(), sizes.size())); }

Value ops::expand_to(Value x, std::span<const Size> sizes) { return emit_to_sizes("expand", x, sizes, expand); }

}  // namespace frit

FRIT_OPERATORS(expand) {
  const auto plain = [] {
    return Operator{
        .name = "expand",
        .summary = "the input repeated along axes of size 1 and new leading axes",
        .inputs = {"input"},
        .infer = infer_expand,
        .gradient = expand_gradient,
        .cpu = {.run = run_expand, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
        .cuda = {.run = run_expand, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
        .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
        .repeats = true,
        .samples = expand_samples,
    };
  };
  registry.add<ExpandAttributes>(plain());
  registry.add<SizesAttributes>(to_sizes(plain(), "the input repeated along axes of size 1 and new leading axes, to sizes of inputs' axes",
                                         expanded, expand, expand_to_sizes_samples));
}
