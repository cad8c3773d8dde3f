#include "frit/ops/norm/norm_core.h"

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
NormGeometry grouped_geometry(std::int64_t batch, std::int64_t channels, std::int64_t groups, std::int64_t inner) {
  const std::int64_t group_channels = groups == 0 ? 0 : channels / groups;
  NormGeometry geometry{.slices = batch * groups,
                        .runs = group_channels,
                        .run_length = inner,
                        .slice_stride = group_channels * inner,
                        .run_stride = inner,
                        .channels = channels,
                        .weight_axis = WeightAxis::run};
  if (inner == 1 && group_channels != 1) {
    geometry.runs = 1;
    geometry.run_length = group_channels;
    geometry.weight_axis = WeightAxis::element;
  }
  return geometry;
}

NormGeometry batch_geometry(std::int64_t batch, std::int64_t channels, std::int64_t inner) {
  return {.slices = channels,
          .runs = batch,
          .run_length = inner,
          .slice_stride = inner,
          .run_stride = channels * inner,
          .channels = channels,
          .weight_axis = WeightAxis::slice};
}

std::int64_t elements_from(const Shape& shape, int begin) {
  std::int64_t count = 1;
  for (int axis = begin; axis < shape.rank(); ++axis) count *= shape[axis];
  return count;
}

void require_eps(const InferContext& call, double eps) { call.require(eps >= 0, "eps must not be negative, got ", eps); }

void require_parameter(const InferContext& call, std::size_t data, std::size_t i, const Shape& shape, DType dtype) {
  const char* const name = call.op.inputs[i].name;
  call.require(call.shape(i) == shape, name, " must have shape ", shape, ", got ", call.shape(i), " (input ", call.shape(data), ")");
  call.require(call.inputs[i].dtype == dtype, name, " must be ", dtype, ", got ", call.inputs[i].dtype);
}

void require_parameters(const InferContext& call, std::size_t data, std::size_t first, const Shape& shape) {
  const std::size_t given = call.inputs.size(), all = call.op.inputs.size();
  call.require(given <= first || given == all, call.op.inputs[first].name, " and ", call.op.inputs[all - 1].name,
               " come both or not at all");
  for (std::size_t i = first; i < given; ++i) require_parameter(call, data, i, shape, call.inputs[data].dtype);
}

std::vector<TensorType> norm_types(const InferContext& call, const NormGeometry& geometry) {
  const TensorType statistics{DType::f64, {geometry.slices}};
  std::vector<TensorType> types{call.inputs[0], statistics, statistics};
  if (call.op.outputs.size() == types.size()) return types;
  TensorType coefficients = call.inputs[0];
  if (is_half(coefficients.dtype)) coefficients.dtype = DType::f32;
  for (int axis = 2; axis < coefficients.shape.rank(); ++axis) coefficients.shape[axis] = 1;
  if (geometry.weight_axis == WeightAxis::slice) coefficients.shape[0] = 1;
  types.insert(types.end(), 3, coefficients);
  return types;
}

std::vector<TensorType> norm_backward_types(const InferContext& call, const NormGeometry& geometry, const Shape& weight_shape) {
  call.require(call.inputs[0] == call.inputs[1], "gradient is ", call.inputs[0], ", input is ", call.inputs[1]);
  for (std::size_t i = 2; i < 4; ++i) require_parameter(call, 1, i, {geometry.slices}, DType::f64);
  require_parameters(call, 1, 4, weight_shape);
  const TensorType parameter{call.inputs[1].dtype, weight_shape};
  return {call.inputs[1], parameter, parameter};
}

namespace {

/// For Operator::pointwise: output 0 of a norm over channels by its coefficients. None for data that is small.
Values normalized_by_coefficients(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes&) {
  constexpr std::int64_t least_bytes = 1 << 20;  // less is mostly normalised in one launch, from registers or a cache
  const Value x = inputs[0];
  if (x.type().bytes() < least_bytes) return {};
  return {cast((cast(x, outputs[3].dtype()) - outputs[3]) * outputs[4] + outputs[5], x.dtype())};
}

/// What a norm over channels does not show of its input: what all elements of a slice share. With fixed statistics it shows everything.
Invariance invariance_of_channels(const Shape& input, const NormGeometry& geometry) {
  if (geometry.fixed_statistics) return {Shape()};
  Invariance result{input};
  if (geometry.weight_axis != WeightAxis::slice) result.block[0] = 1;
  result.block[1] = geometry.slice_channels();
  return result;
}

/// Emits `name`_backward for (input, weight, bias); further inputs of the call have no gradient.
Values norm_gradient(std::string_view name, const GradientContext& c) {
  Values result(c.inputs.size());
  if (!c.gradients[0]) return result;
  const Value weight = c.inputs.size() > 1 ? c.inputs[1] : Value{};
  const Values gradients = emit(concat(name, "_backward"), {c.gradients[0], c.inputs[0], c.outputs[1], c.outputs[2], weight}, c.attributes);
  for (std::size_t i = 0; i < std::min(result.size(), gradients.size()); ++i) result[i] = gradients[i];
  return result;
}

/// For those of the forward operator.
std::vector<Sample> backward_samples(const Operator& forward) {
  std::vector<Sample> result;
  for (const Sample& sample : forward.samples()) {
    std::vector<TensorType> types;
    for (const SampleInput& input : sample.inputs) types.push_back({DType::f64, input.shape});
    const SampleInput statistics = SampleInput::of(DType::f64, forward.infer_types(types, sample.attributes)[1].shape, Fill::positive);
    Sample backward{.inputs = {sample.inputs[0], sample.inputs[0], statistics, statistics}, .attributes = sample.attributes};
    if (sample.inputs.size() > 1) backward.inputs.push_back(sample.inputs[1]);
    result.push_back(backward);
  }
  return result;
}

}  // namespace

Operator norm_operator(Operator entry, GeometryRule geometry, std::optional<int> affine_axis) {
  entry.outputs = {"output", "mean", "rstd"};
  entry.gradient = [name = entry.name](const GradientContext& c) { return norm_gradient(name, c); };
  entry.in_place = {{0, 0}};
  entry.linear_inputs = {{1, LinearInput::factor, affine_axis}, {2, LinearInput::addend, affine_axis}};
  if (!affine_axis) return entry;
  entry.outputs.insert(entry.outputs.end(), {"reference", "scale", "shift"});
  entry.staged_output = true;
  entry.reads_moments = entry.mutates.empty();
  entry.pointwise = normalized_by_coefficients;
  entry.invariance = [=](const Shape& input, const Attributes& attributes) {
    return invariance_of_channels(input, geometry(input, attributes));
  };
  entry.with_unit_axis = [](const Attributes& attributes) { return attributes; };
  return entry;
}

Operator norm_backward_operator(const Operator& forward, InferRule infer, Kernel cpu) {
  Operator entry{
      .name = forward.name + "_backward",
      .summary = "the gradients of " + forward.name,
      .inputs = {"gradient", "input", "mean", "rstd", {"weight", true}},
      .outputs = {"input_gradient", "weight_gradient", "bias_gradient"},
      .infer = std::move(infer),
      .no_gradient = "not differentiable twice",
      .staged_output = forward.staged_output,
      .cpu = std::move(cpu),
      .in_place = {{0, 0}},
      .collective = forward.collective,
      .samples = [&forward] { return backward_samples(forward); },
  };
  // The gradient is read for the sums and for the input gradient.
  if (forward.staged_output) entry.staged_inputs = {{.input = 0, .reads = 2}};
  return entry;
}

}  // namespace frit::ops
