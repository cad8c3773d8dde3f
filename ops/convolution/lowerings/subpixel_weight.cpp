#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {

Dims subpixel_taps(const Dims& kernel, const Dims& stride) {
  Dims taps = kernel;
  for (int axis = 0; axis < kernel.rank(); ++axis) taps[axis] = (kernel[axis] - 1) / stride[axis] + 1;
  return taps;
}

namespace {

using Forward = SubpixelWeightAttributes;
using Backward = SubpixelWeightBackwardAttributes;

Shape subpixel_shape(std::int64_t out_channels, const Dims& kernel, const Forward& a) {
  Shape shape = Shape::filled(kernel.rank() + 2, 1);
  shape[0] = out_channels * product(a.stride);
  shape[1] = a.channels * product(subpixel_taps(kernel, a.stride));
  return shape;
}

void check(const InferContext& call, std::int64_t in_channels, bool bias, const Dims& kernel, const Forward& a) {
  constexpr std::int64_t most = 1 << 20;  // keeps products within 64 bits
  const auto positive = [](const Dims& dims) {
    return std::all_of(dims.begin(), dims.end(), [](std::int64_t value) { return value > 0 && value <= most; });
  };
  call.require(kernel.rank() >= 1 && kernel.rank() <= 3 && a.stride.rank() == kernel.rank() && positive(kernel) && positive(a.stride),
               "expected a kernel and a stride of 1 to 3 positive sizes, got ", kernel, " and ", a.stride);
  call.require(a.channels >= in_channels + (bias ? 1 : 0) && a.channels <= most, "channels must be at least the weight's ", in_channels,
               bias ? " and one" : "", ", got ", a.channels);
}

std::vector<TensorType> infer(const InferContext& call) {
  const Shape& weight = call.shape(0);
  call.require(weight.rank() >= 3, "expected a weight (C, K, ...) of rank 3 to 5, got ", weight);
  check(call, weight[0], call.has(1), image_of(weight), call.as<Forward>());
  const DType dtype = converted_dtype(call, call.as<Forward>().dtype);
  const auto is_bias = [&](const TensorType& type) {
    return type.shape == Shape{weight[1]} && (type.dtype == dtype || (type.dtype == DType::f32 && is_half(dtype)));
  };
  call.require(!call.has(1) || is_bias(call.inputs[1]), "bias must be ", weight[1], ' ', dtype, is_half(dtype) ? " or f32" : "");
  return {{dtype, subpixel_shape(weight[1], image_of(weight), call.as<Forward>())}};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const auto& a = call.as<Backward>();
  const Shape& gradient = call.shape(0);
  check(call, a.in_channels, false, a.kernel, a);
  const std::int64_t out_channels = gradient.rank() == 0 ? 0 : gradient[0] / product(a.stride);
  const Shape expected = subpixel_shape(out_channels, a.kernel, a);
  call.require(gradient == expected, "gradient must be ", expected, ", got ", gradient);
  Shape weight{a.in_channels, out_channels};
  for (const std::int64_t size : a.kernel) weight.push_back(size);
  const DType dtype = converted_dtype(call, a.dtype);
  return {{dtype, weight}, {dtype, {out_channels}}};
}

Values gradient(const GradientContext& c) {
  const TensorType& weight = c.inputs[0].type();
  Backward attributes{c.as<Forward>(), weight.shape[0], image_of(weight.shape)};
  attributes.dtype.reset();
  Values result = emit("subpixel_weight_backward", {cast(c.gradients[0], weight.dtype)}, attributes);
  result.resize(c.inputs.size());
  if (c.inputs.size() > 1) result[1] = cast(result[1], c.inputs[1].dtype());
  return result;
}

/// Calls body(element of the kernel (C, K, 1...), its place in `matrix` (K, C, 1...)) for each.
template <class Body>
void for_each_element(const Tensor& weight, const Tensor& matrix, const Forward& a, const Body& body) {
  const std::int64_t in_channels = weight.dim(0), out_channels = weight.dim(1);
  const Dims kernel = image_of(weight.shape()), taps = subpixel_taps(kernel, a.stride);
  for_each_index(kernel, [&](const Dims& index, std::int64_t) {
    Tensor element = weight;
    std::int64_t place = 0, tap = 0;
    for (int axis = 0; axis < index.rank(); ++axis) {
      element = element.slice(axis + 2, index[axis], index[axis] + 1);
      place = place * a.stride[axis] + index[axis] % a.stride[axis];
      tap = tap * taps[axis] + index[axis] / a.stride[axis];
    }
    body(element, matrix.slice(0, place * out_channels, (place + 1) * out_channels)
                      .slice(1, tap * a.channels, tap * a.channels + in_channels)
                      .transpose(0, 1));
  });
}

/// The columns of the bias, each (K, 1...), which follow the input channels of tap 0, one a place in a block.
template <class Body>
void for_each_bias(const Tensor& matrix, std::int64_t in_channels, std::int64_t out_channels, const Body& body) {
  const Tensor column = matrix.slice(1, in_channels, in_channels + 1);
  for (std::int64_t first = 0; first < matrix.dim(0); first += out_channels) body(column.slice(0, first, first + out_channels));
}

void run(const KernelContext& call) {
  const Tensor &weight = call.inputs[0], &output = call.outputs[0];
  output.fill(0);
  for_each_element(weight, output, call.as<Forward>(), [](const Tensor& element, const Tensor& place) { copy(place, element); });
  if (!call.has(1)) return;
  for_each_bias(output, weight.dim(0), weight.dim(1), [&](const Tensor& column) { copy(column, call.inputs[1].reshape(column.shape())); });
}

void run_backward(const KernelContext& call) {
  const auto& a = call.as<Backward>();
  const Tensor &gradient = call.inputs[0], &weight = call.outputs[0], &bias = call.outputs[1];
  if (weight.defined()) {
    for_each_element(weight, gradient, a, [](const Tensor& element, const Tensor& place) { copy(element, place); });
  }
  if (!bias.defined()) return;
  std::vector<double> sums(static_cast<std::size_t>(bias.elements()), 0.0);
  if (a.in_channels < a.channels && !sums.empty()) {
    for_each_bias(gradient, a.in_channels, bias.dim(0), [&](const Tensor& column) {
      const std::vector<double> values = column.to_vector<double>();
      for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
    });
  }
  copy(bias, Tensor::from(sums, bias.shape()));
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<Forward>();
  const Shape& weight = inputs[0].shape();
  const int axes = a.stride.rank();
  const Dims taps = subpixel_taps(image_of(weight), a.stride), none = Dims::filled(axes + 2, 0);
  const Shape result = subpixel_shape(weight[1], image_of(weight), a);
  Dims after = none, order;
  after[0] = a.channels - weight[0];
  Shape split{a.channels, weight[1]};
  for (int axis = 0; axis < axes; ++axis) {
    after[axis + 2] = taps[axis] * a.stride[axis] - weight[axis + 2];
    split.push_back(taps[axis]);
    split.push_back(a.stride[axis]);
    order.push_back(2 * axis + 3);
  }
  order.push_back(1);
  for (int axis = 0; axis < axes; ++axis) order.push_back(2 * axis + 2);
  order.push_back(0);
  const DType dtype = a.dtype.value_or(inputs[0].dtype());
  const Value matrix = reshape(permute(reshape(pad(cast(inputs[0], dtype), none, after), split), order), result);
  if (inputs.size() < 2) return {matrix};
  Shape column = Shape::filled(axes + 2, 1);
  column[0] = result[0];
  Dims before = none;
  before[1] = weight[0];
  after = none;
  after[1] = result[1] - weight[0] - 1;
  const Value biases = reshape(expand(cast(inputs[1], dtype), {product(a.stride), weight[1]}), column);
  return {matrix + pad(biases, before, after)};
}

std::vector<Sample> samples() {
  return {
      {{SampleInput::of(DType::f32, {3, 4, 3, 3}), SampleInput::of(DType::f32, {4})}, Forward{{2, 2}, 4, DType::f16}, /*smooth=*/false},
      {{SampleInput::of(DType::f32, {3, 4, 3, 3}), SampleInput::of(DType::bf16, {4})}, Forward{{2, 2}, 4, DType::bf16}, /*smooth=*/false},
      {{Shape{3, 2, 3, 3}, Shape{2}}, Forward{{2, 2}, 4}},
      {{Shape{3, 4, 3, 2, 3}}, Forward{{2, 2, 2}, 4}},
      {{Shape{4, 2, 1, 4}}, Forward{{3, 2}, 4}},
      {{Shape{2, 3, 5, 1}, Shape{3}}, Forward{{2, 1}, 8}},
      {{Shape{1, 1, 2, 3, 4}, Shape{1}}, Forward{{1, 2, 3}, 4}}};
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> result;
  for (const Sample& sample : samples()) {
    const Shape& weight = sample.inputs[0].shape;
    const auto& a = sample.attributes.as<Forward>();
    if (a.dtype) continue;
    result.push_back({{subpixel_shape(weight[1], image_of(weight), a)}, Backward{a, weight[0], image_of(weight)}});
  }
  result.push_back({{SampleInput::of(DType::f16, {16, 16, 1, 1})}, Backward{{{2, 2}, 4, DType::f32}, 3, {3, 3}}, /*smooth=*/false});
  return result;
}

}  // namespace

Value subpixel_weight(Value weight, Value bias, const SubpixelWeightAttributes& attributes) {
  return emit_one("subpixel_weight", {weight, bias}, attributes);
}

}  // namespace frit::ops

FRIT_OPERATORS(subpixel_weight) {
  registry.add<SubpixelWeightAttributes>({
      .name = "subpixel_weight",
      .summary = "output[r K + k, u channels + c] = weight[c, k, u stride + r], zero beyond the kernel; output[r K + k, C] = bias[k]",
      .inputs = {"weight", {"bias", true}},
      .infer = infer,
      .gradient = gradient,
      .decompose = decompose,
      .absorb = absorb_cast<Forward>,
      .any_precision = {1},
      .cpu = {.run = run, .strided = true, .halves = true},
      .samples = samples,
  });
  registry.add<SubpixelWeightBackwardAttributes>({
      .name = "subpixel_weight_backward",
      .summary = "the gradients of subpixel_weight",
      .inputs = {"gradient"},
      .outputs = {"weight_gradient", "bias_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .absorb = absorb_cast<Backward>,
      .cpu = {.run = run_backward, .strided = true, .halves = true},
      .samples = backward_samples,
  });
}
