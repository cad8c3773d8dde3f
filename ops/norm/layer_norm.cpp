#include <algorithm>

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_core.h"
#include "frit/ops/operator/spelling.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

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

/// What all elements of a row share.
Invariance invariance(const Shape& input, const Attributes& attributes) {
  Invariance result{input};
  for (int axis = 0; axis < input.rank() - attributes.as<LayerNormAttributes>().normalized_rank; ++axis) result.block[axis] = 1;
  return result;
}

std::vector<bool> samples_of_rows(const InferContext& call) {
  const bool is_all_one_row = call.as<LayerNormAttributes>().normalized_rank == call.shape(0).rank();
  return is_all_one_row ? std::vector<bool>() : samples_of_input_0(call);
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

/// Of images whose channels lie last, the axis that is normalised: as they lie on a GPU.
Values call_of_channels(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  Dims to_last{0}, back{0, inputs[0].rank() - 1};
  for (int axis = 2; axis < inputs[0].rank(); ++axis) to_last.push_back(axis), back.push_back(axis - 1);
  to_last.push_back(1);
  Value parameters[2];
  for (std::size_t i = 1; i < inputs.size(); ++i) parameters[i - 1] = reshape(inputs[i], {inputs[0].dim(1)});
  return {
      permute(layer_norm(permute(inputs[0], to_last), 1, parameters[0], parameters[1], attributes.as<LayerNormAttributes>().eps), back)};
}

void require_for_each_channel(std::span<const Value> parameters, const Shape& image) {
  Shape expected = Dims::filled(image.rank(), 1);
  expected[1] = image[1];
  for (const Value parameter : parameters) {
    const Shape& shape = parameter.shape();
    const bool lies_along = shape.rank() >= image.rank() - 1 && std::equal(shape.begin(), shape.end(), expected.end() - shape.rank());
    require(lies_along, "expected a number for each channel of ", image, ", got ", shape);
  }
}

/// Those of people's modules for the channels of images, "LayerNorm2d": with the square and the quotient in several ways, and with or
/// without weight and bias, which are (C, 1, ...).
void add_spellings_of_channels() {
  using Function = Value (*)(Value);
  using Quotient = Value (*)(Value centred, Value variance);
  constexpr Function squares[] = {[](Value x) { return power(x, 2.0); }, [](Value x) { return x * x; }, square};
  constexpr Quotient quotients[] = {[](Value x, Value v) { return x / sqrt(v); }, [](Value x, Value v) { return x * rsqrt(v); },
                                    [](Value x, Value v) { return x * reciprocal(sqrt(v)); }};
  for (const double eps : {1e-5, 1e-6}) {
    for (const Function square_of : squares) {
      for (const Quotient quotient : quotients) {
        const auto rule = [=](Emitter&, std::span<const Value> inputs, const Attributes&) -> Values {
          const Value x = inputs[0], centred = x - mean(x, 1, true);
          const Value result = quotient(centred, mean(square_of(centred), 1, true) + eps);
          require_for_each_channel(inputs.subspan(1), x.shape());
          return {inputs.size() == 1 ? result : inputs[1] * result + inputs[2]};
        };
        const TensorType image{DType::f32, {2, 3, 4, 4}}, parameter{DType::f32, {3, 1, 1}};
        const LayerNormAttributes attributes{.eps = eps};
        spellings().push_back({"layer_norm", attributes, rule, {image}, call_of_channels});
        spellings().push_back({"layer_norm", attributes, rule, {image, parameter, parameter}, call_of_channels});
      }
    }
  }
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(layer_norm) {
  const Norm<LayerNormAttributes> norm{check, weight_shape, /*affine_axis=*/std::nullopt};
  norm.add_to(registry, {.name = "layer_norm",
                         .summary = "(x - mean) * rstd * weight + bias over the last axes",
                         .samples_in = samples_of_rows,
                         .invariance = invariance,
                         .samples = samples});
  add_spellings_of_channels();
}
