#pragma once

#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// Which step of the loop over a slice moves on to the next element of weight and bias.
enum class WeightAxis { slice, run, element };

/// How a norm sees its row-major input: slices that are normalised together, each made of runs of neighbouring elements.
struct NormGeometry {
  std::int64_t slices = 0;
  std::int64_t runs = 0, run_length = 0;          ///< of a slice
  std::int64_t slice_stride = 0, run_stride = 0;  ///< in elements
  std::int64_t channels = 0;                      ///< elements of weight and bias
  WeightAxis weight_axis = WeightAxis::run;

  FRIT_HOST_DEVICE std::int64_t slice_elements() const { return runs * run_length; }
  /// Of a norm over channels.
  std::int64_t slice_channels() const { return weight_axis == WeightAxis::slice ? 1 : weight_axis == WeightAxis::run ? runs : run_length; }
  /// The first channel of a run.
  FRIT_HOST_DEVICE std::int64_t channel(std::int64_t slice, std::int64_t run) const {
    if (channels == 0 || weight_axis == WeightAxis::slice) return slice;
    return (slice * runs + run) * (weight_axis == WeightAxis::run ? 1 : run_length) % channels;
  }
};

/// Input (batch, channels, inner), a slice being channels / groups channels of one sample: group norm. Instance norm has a group a
/// channel, layer norm one group and inner 1.
NormGeometry grouped_geometry(std::int64_t batch, std::int64_t channels, std::int64_t groups, std::int64_t inner);
/// The same input, a slice being one channel over the whole batch.
NormGeometry batch_geometry(std::int64_t batch, std::int64_t channels, std::int64_t inner);

/// Of the norms that have these attributes, for an input.
NormGeometry norm_geometry(const Shape& input, const InstanceNormAttributes& attributes);
NormGeometry norm_geometry(const Shape& input, const GroupNormAttributes& attributes);
NormGeometry norm_geometry(const Shape& input, const LayerNormAttributes& attributes);
NormGeometry norm_geometry(const Shape& input, const BatchNormAttributes& attributes);

/// What the norms do not show of their input: what all elements of a slice share.
inline Invariance norm_invariance(const Shape& input, const InstanceNormAttributes&) {
  Invariance result{input};
  result.block[0] = result.block[1] = 1;
  return result;
}
inline Invariance norm_invariance(const Shape& input, const GroupNormAttributes& attributes) {
  Invariance result{input};
  result.block[0] = 1;
  result.block[1] = input[1] / attributes.num_groups;
  return result;
}
inline Invariance norm_invariance(const Shape& input, const LayerNormAttributes& attributes) {
  Invariance result{input};
  for (int axis = 0; axis < input.rank() - attributes.normalized_rank; ++axis) result.block[axis] = 1;
  return result;
}
/// With its running statistics a batch norm shows everything.
inline Invariance norm_invariance(const Shape& input, const BatchNormAttributes& attributes) {
  Invariance result{attributes.training ? input : Shape()};
  if (attributes.training) result.block[1] = 1;
  return result;
}

/// The product of the axes from `begin` on.
std::int64_t elements_from(const Shape& shape, int begin);

void require_eps(const InferContext& call, double eps);
/// Input i has this shape and dtype; the message shows the shape of `data`, the input that is normalised.
void require_parameter(const InferContext& call, std::size_t data, std::size_t i, const Shape& shape, DType dtype);
/// The last inputs, from `first` on, come all or not at all, with this shape and the dtype of `data`.
void require_parameters(const InferContext& call, std::size_t data, std::size_t first, const Shape& shape);

/// Of norms over channels; others have the first three.
inline const std::vector<const char*> norm_outputs = {"output", "mean", "rstd", "reference", "scale", "shift"};

/// The type of input 0, two f64 vectors with an element a slice and, if the operator has them, three tensors of coefficients, f64 or f32,
/// (1 or N, C, 1, ...).
std::vector<TensorType> norm_types(const InferContext& call, const NormGeometry& geometry);
/// (input_gradient, weight_gradient, bias_gradient) of the inputs (gradient, input, mean, rstd, [weight]).
std::vector<TensorType> norm_backward_types(const InferContext& call, const NormGeometry& geometry, const Shape& weight_shape);

/// Null for an input that is not there or an output that nobody reads.
template <class T>
T* data_or_null(std::span<const Tensor> tensors, std::size_t i) {
  return i < tensors.size() && tensors[i].defined() ? tensors[i].data<T>() : nullptr;
}

/// One channel of a slice: y = (x - reference) * scale + shift. The reference is the mean, rounded to T: the difference keeps the digits of
/// data far from zero, and is 0 where all elements are equal.
template <class T>
struct NormCoefficients {
  T reference, scale, shift;

  NormCoefficients() = default;
  FRIT_HOST_DEVICE NormCoefficients(double mean, double rstd, double weight, double bias)
      : reference(static_cast<T>(mean)), scale(static_cast<T>(rstd * weight)) {
    const double rest = (mean - static_cast<double>(reference)) * rstd * weight;
    shift = static_cast<T>(rest - rest == 0 ? bias - rest : bias);  // not finite: the weight or what is normalised is not
  }
};

/// Where a call writes them.
template <class T>
struct CoefficientOutputs {
  T *reference, *scale, *shift;  // (slices, channels of a slice), or null

  explicit CoefficientOutputs(std::span<const Tensor> outputs)
      : reference(data_or_null<T>(outputs, 3)), scale(data_or_null<T>(outputs, 4)), shift(data_or_null<T>(outputs, 5)) {}

  FRIT_HOST_DEVICE bool any() const { return reference != nullptr || scale != nullptr || shift != nullptr; }
  FRIT_HOST_DEVICE void write(std::int64_t i, const NormCoefficients<T>& found) const {
    if (reference != nullptr) reference[i] = found.reference;
    if (scale != nullptr) scale[i] = found.scale;
    if (shift != nullptr) shift[i] = found.shift;
  }
};

/// For Operator::pointwise: output 0 of a norm over channels by its coefficients. None for data that is small.
Values normalized_by_coefficients(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes& attributes);

/// What normalises a slice of these moments.
using SliceRule = std::function<SliceStatistics(std::int64_t slice, const Moments& moments)>;

/// Writes those outputs of norm_types that are read, for an image in either layout. Calls the rule, which may run on any thread, once a
/// slice. Inputs 1 and 2, if there, are weight and bias. `fixed_statistics`: the moments are not looked at, and not found. `stages` may be
/// null.
void run_norm(const KernelContext& call, const Stages* stages, const NormGeometry& geometry, const SliceRule& rule,
              bool fixed_statistics = false);
class SharedSlices;
/// Writes those outputs of norm_backward_types that are read. `fixed_statistics`: mean and rstd do not depend on the input. `shared`: the
/// slices, channels of a batch, are parts of those of several processes; null: they are whole.
void run_norm_backward(const KernelContext& call, const Stages* stages, const NormGeometry& geometry, bool fixed_statistics = false,
                       const SharedSlices* shared = nullptr);

using GeometryRule = NormGeometry (*)(const Shape& input, const Attributes& attributes);
template <class A>
NormGeometry geometry_of(const Shape& input, const Attributes& attributes) {
  return norm_geometry(input, attributes.as<A>());
}

/// The CPU's kernels, which call run_norm or run_norm_backward. `images`: they may lie in either layout, and take programs.
using NormFunction = std::function<void(const KernelContext& call, const Stages* stages)>;
Kernel norm_kernel(GeometryRule geometry, const NormFunction& run, bool images = true);
Kernel norm_backward_kernel(GeometryRule geometry, const NormFunction& run, bool images = true);

/// Of a backward operator: the gradient is read for the sums and for the input gradient.
inline const std::vector<StagedInput> staged_norm_gradient = {{.input = 0, .reads = 2}};

/// Emits `name`_backward for (input, weight, bias); further inputs of the call have no gradient.
Values norm_gradient(std::string_view name, const GradientContext& c);
/// Samples of the backward operator for those of the forward one.
std::vector<Sample> norm_backward_samples(const Operator& forward);

/// A norm over groups of channels. A is the attribute struct; the functions see the normalised input's shape.
template <class A>
struct GroupedNorm {
  void (*check)(const InferContext& call, const Shape& input, const A& attributes);
  Shape (*weight_shape)(const Shape& input, const A& attributes);
  std::optional<int> affine_axis = 1;  ///< that weight and bias lie along, the channels'; none: they broadcast

  /// Fills in the rules and the kernel of `entry`, which has name, summary and samples, and adds it and `name`_backward.
  void add_to(Registry& registry, Operator entry) const {
    const GroupedNorm norm = *this;
    entry.inputs = {"input", {"weight", true}, {"bias", true}};
    entry.outputs = norm_outputs;
    if (!affine_axis) entry.outputs.resize(3);
    entry.infer = [norm](const InferContext& call) {
      const A& attributes = call.as<A>();
      norm.check(call, call.shape(0), attributes);
      require_eps(call, attributes.eps);
      require_parameters(call, 0, 1, norm.weight_shape(call.shape(0), attributes));
      return norm_types(call, norm_geometry(call.shape(0), attributes));
    };
    entry.gradient = [name = entry.name](const GradientContext& c) { return norm_gradient(name, c); };
    entry.cpu = norm_kernel(
        geometry_of<A>,
        [](const KernelContext& call, const Stages* stages) {
          run_norm(call, stages, norm_geometry(call.inputs[0].shape(), call.as<A>()),
                   [&](std::int64_t, const Moments& moments) { return statistics_of(moments, call.as<A>().eps); });
        },
        affine_axis.has_value());
    entry.staged_output = affine_axis.has_value();
    entry.in_place = {{0, 0}};
    if (affine_axis) entry.pointwise = normalized_by_coefficients;
    if (affine_axis) entry.with_unit_axis = [](const Attributes& attributes) { return attributes; };
    const std::optional<int> axis = affine_axis;
    entry.linear_inputs = {{1, LinearInput::factor, axis}, {2, LinearInput::addend, axis}};
    entry.invariance = [](const Shape& input, const Attributes& attributes) { return norm_invariance(input, attributes.as<A>()); };
    add_backward(registry, registry.add<A>(std::move(entry)));
  }

 private:
  void add_backward(Registry& registry, const Operator& forward) const {
    const GroupedNorm norm = *this;
    registry.add<A>({
        .name = forward.name + "_backward",
        .summary = "the gradients of " + forward.name,
        .inputs = {"gradient", "input", "mean", "rstd", {"weight", true}},
        .outputs = {"input_gradient", "weight_gradient", "bias_gradient"},
        .infer =
            [norm](const InferContext& call) {
              norm.check(call, call.shape(1), call.as<A>());
              return norm_backward_types(call, norm_geometry(call.shape(1), call.as<A>()), norm.weight_shape(call.shape(1), call.as<A>()));
            },
        .no_gradient = "not differentiable twice",
        .staged_inputs = norm.affine_axis ? staged_norm_gradient : std::vector<StagedInput>(),
        .staged_output = norm.affine_axis.has_value(),
        .cpu = norm_backward_kernel(
            geometry_of<A>,
            [](const KernelContext& call, const Stages* stages) {
              run_norm_backward(call, stages, norm_geometry(call.inputs[1].shape(), call.as<A>()));
            },
            norm.affine_axis.has_value()),
        .in_place = {{0, 0}},
        .samples = [&forward] { return norm_backward_samples(forward); },
    });
  }
};

}  // namespace frit::ops
