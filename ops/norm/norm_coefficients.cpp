#include "frit/ops/norm/norm_coefficients.h"

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

/// Below this the launch that is added costs more than the pass that is saved.
constexpr std::int64_t least_bytes = 1 << 20;

std::vector<TensorType> infer(const InferContext& call) {
  const auto& attributes = call.as<NormCoefficientsAttributes>();
  const Dims& shape = attributes.shape;
  call.require(shape.rank() >= 2 && elements_from(shape, 2) == 1, "expected a shape (N, C, 1, ...), got ", shape);
  const std::int64_t count = shape[0] * shape[1], slices = call.shape(0).rank() == 1 ? call.shape(0)[0] : 0;
  call.require(call.shape(0).rank() == 1 && (slices == 0 ? count == 0 : count % slices == 0), "mean ", call.shape(0),
               " does not fit results of ", shape);
  call.require(call.inputs[1] == call.inputs[0], "rstd is ", call.inputs[1], ", mean ", call.inputs[0]);
  call.require(attributes.dtype == DType::f32 || attributes.dtype == DType::f64, "dtype must be f32 or f64, got ", attributes.dtype);
  call.require(call.inputs.size() != 3, "expected weight and bias, or neither");
  if (call.has(3)) {
    call.require(call.shape(2) == Shape{shape[1]} && call.inputs[3] == call.inputs[2] && is_floating(call.inputs[2].dtype),
                 "weight and bias must be floating numbers of shape ", shape[1], ", got ", call.inputs[2], " and ", call.inputs[3]);
  }
  return std::vector<TensorType>(3, {attributes.dtype, Shape(shape)});
}

void run(const KernelContext& call) {
  const Shape& shape = call.as<NormCoefficientsAttributes>().shape;
  const std::int64_t count = shape[0] * shape[1], slices = call.inputs[0].elements();
  const double *const means = call.inputs[0].data<double>(), *const rstds = call.inputs[1].data<double>();
  const auto of_channel = [&](std::size_t input, std::int64_t channel, double missing) {
    if (!call.has(input)) return missing;
    return dispatch_floating(call.inputs[input].dtype(), [&]<class W>() { return double{call.inputs[input].data<W>()[channel]}; });
  };
  dispatch_floating(call.as<NormCoefficientsAttributes>().dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t slice = i / (count / slices), channel = i % shape[1];
      const NormCoefficients<T> found(means[slice], rstds[slice], of_channel(2, channel, 1), of_channel(3, channel, 0));
      const T values[] = {found.reference, found.scale, found.shift};
      for (std::size_t k = 0; k < 3; ++k) {
        if (T* const results = data_or_null<T>(call.outputs, k)) results[i] = values[k];
      }
    }
  });
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<NormCoefficientsAttributes>();
  const std::int64_t slices = inputs[0].dim(0), count = a.shape[0] * a.shape[1];
  const auto of_slices = [&](Value x) {
    return reshape(expand(reshape(x, {slices, 1}), {slices, slices == 0 ? 1 : count / slices}), a.shape);
  };
  Dims per_channel = Dims::filled(a.shape.rank() - 1, 1);
  per_channel[0] = a.shape[1];
  const Value mean = of_slices(inputs[0]), reference = cast(mean, a.dtype);
  Value scale = of_slices(inputs[1]), shift = (cast(reference, DType::f64) - mean) * scale;
  if (inputs.size() > 2) {
    const Value weight = cast(reshape(inputs[2], per_channel), DType::f64);
    scale = scale * weight;
    shift = shift * weight + cast(reshape(inputs[3], per_channel), DType::f64);
  }
  return {reference, cast(scale, a.dtype), cast(shift, a.dtype)};
}

std::vector<Sample> samples() {
  const auto sample = [](std::int64_t slices, const Dims& shape, DType dtype, bool affine) {
    SampleInput statistics(Shape{slices}, Fill::positive);
    statistics.floating = false;
    statistics.dtype = DType::f64;
    Sample result{.inputs = {statistics, statistics}, .attributes = NormCoefficientsAttributes{shape, dtype}};
    if (affine) result.inputs.insert(result.inputs.end(), 2, Shape{shape[1]});
    return result;
  };
  return {sample(3, {1, 3, 1, 1}, DType::f64, true), sample(6, {2, 3, 1}, DType::f64, true), sample(4, {2, 6, 1, 1, 1}, DType::f32, true),
          sample(6, {2, 3, 1, 1}, DType::f32, false), sample(0, {0, 3, 1}, DType::f32, true)};
}

}  // namespace

Value normalized_by_coefficients(std::span<const Value> inputs, std::span<const Value> outputs, const NormGeometry& geometry) {
  const Value x = inputs[0];
  const bool over_batch = geometry.weight_axis == WeightAxis::slice;
  if (x.type().bytes() < least_bytes) return {};
  Dims shape = Dims::filled(x.rank(), 1);
  if (!over_batch) shape[0] = x.dim(0);
  shape[1] = x.dim(1);
  const DType dtype = is_half(x.dtype()) ? DType::f32 : x.dtype();
  Values given = {outputs[1], outputs[2]};
  if (inputs.size() > 2) given.insert(given.end(), inputs.begin() + 1, inputs.begin() + 3);
  const Values found = emit("norm_coefficients", given, NormCoefficientsAttributes{shape, dtype});
  return cast((cast(x, dtype) - found[0]) * found[1] + found[2], x.dtype());
}

}  // namespace frit::ops

FRIT_OPERATORS(norm_coefficients) {
  using namespace frit::ops;
  registry.add<NormCoefficientsAttributes>({
      .name = "norm_coefficients",
      .summary = "what a norm is made of: reference = mean, scale = rstd * weight, shift = bias, but for the rounding of the reference",
      .inputs = {"mean", "rstd", {"weight", true}, {"bias", true}},
      .outputs = {"reference", "scale", "shift"},
      .infer = infer,
      .no_gradient = "made of operators whose gradients are taken before",
      .decompose = decompose,
      .cpu = {.run = run},
      .dtypes = {DType::f64},
      .samples = samples,
  });
}
