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
  bool fixed_statistics = false;  ///< mean and rstd do not depend on the input

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

/// The product of the axes from `begin` on.
std::int64_t elements_from(const Shape& shape, int begin);

void require_eps(const InferContext& call, double eps);
/// Input i has this shape and dtype; the message shows the shape of `data`, the input that is normalised.
void require_parameter(const InferContext& call, std::size_t data, std::size_t i, const Shape& shape, DType dtype);
/// The last inputs, from `first` on, come all or not at all, with this shape and the dtype of `data`.
void require_parameters(const InferContext& call, std::size_t data, std::size_t first, const Shape& shape);

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

/// What normalises a slice of these moments.
using SliceRule = std::function<SliceStatistics(std::int64_t slice, const Moments& moments)>;

/// Writes those outputs of norm_types that are read, for an image in either layout. Calls the rule, which may run on any thread, once a
/// slice. Inputs 1 and 2, if there, are weight and bias. With fixed statistics the moments are not looked at, and not found. `stages` may
/// be null.
void run_norm(const KernelContext& call, const Stages* stages, const NormGeometry& geometry, const SliceRule& rule);
class SharedSlices;
/// Writes those outputs of norm_backward_types that are read. `shared`: the slices, channels of a batch, are parts of those of several
/// processes; null: they are whole.
void run_norm_backward(const KernelContext& call, const Stages* stages, const NormGeometry& geometry, const SharedSlices* shared);

using GeometryRule = NormGeometry (*)(const Shape& input, const Attributes& attributes);
template <class A>
NormGeometry geometry_of(const Shape& input, const Attributes& attributes) {
  return norm_geometry(input, attributes.as<A>());
}

/// The CPU's kernels, which call run_norm or run_norm_backward. `images`: they may lie in either layout, and take programs.
using NormFunction = std::function<void(const KernelContext& call, const Stages* stages, const NormGeometry& geometry)>;
Kernel norm_kernel(GeometryRule geometry, const NormFunction& run, bool images = true);
Kernel norm_backward_kernel(GeometryRule geometry, const NormFunction& run, bool images = true);

/// Adds what all norms, or all over channels, have in common to an entry. `affine_axis`: see Norm.
Operator norm_operator(Operator entry, GeometryRule geometry, std::optional<int> affine_axis);
/// `name`_backward of a norm that has been added.
Operator norm_backward_operator(const Operator& forward, InferRule infer, Kernel cpu);

/// Of samples with more, differences for each would take long.
inline constexpr std::int64_t most_smooth_elements = 10000;

/// A norm. A is the attribute struct; the functions see the normalised input's shape.
template <class A>
struct Norm {
  void (*check)(const InferContext& call, const Shape& input, const A& attributes);
  Shape (*weight_shape)(const Shape& input, const A& attributes) = [](const Shape& input, const A&) { return Shape{input[1]}; };
  std::optional<int> affine_axis = 1;  ///< that weight and bias lie along, the channels'; none: they broadcast

  /// Fills in the rules of `entry`, which has name, summary and samples, and its kernel and inputs, unless they are there. Adds it and
  /// `name`_backward.
  void add_to(Registry& registry, Operator entry, Kernel backward = {}) const {
    const Norm norm = *this;
    const bool images = affine_axis.has_value();
    if (entry.inputs.empty()) entry.inputs = {"input", {"weight", true}, {"bias", true}};
    if (!entry.infer) {
      entry.infer = [norm](const InferContext& call) {
        const A& attributes = call.as<A>();
        norm.check(call, call.shape(0), attributes);
        require_eps(call, attributes.eps);
        require_parameters(call, 0, 1, norm.weight_shape(call.shape(0), attributes));
        return norm_types(call, norm_geometry(call.shape(0), attributes));
      };
    }
    if (!entry.cpu) {
      const auto run = [](const KernelContext& call, const Stages* stages, const NormGeometry& geometry) {
        run_norm(call, stages, geometry, [&](std::int64_t, const Moments& moments) { return statistics_of(moments, call.as<A>().eps); });
      };
      entry.cpu = norm_kernel(geometry_of<A>, run, images);
    }
    if (!backward) {
      const auto run = [](const KernelContext& call, const Stages* stages, const NormGeometry& geometry) {
        run_norm_backward(call, stages, geometry, nullptr);
      };
      backward = norm_backward_kernel(geometry_of<A>, run, images);
    }
    const auto infer_backward = [norm](const InferContext& call) {
      const A& attributes = call.as<A>();
      norm.check(call, call.shape(1), attributes);
      return norm_backward_types(call, norm_geometry(call.shape(1), attributes), norm.weight_shape(call.shape(1), attributes));
    };
    const Operator& forward = registry.add<A>(norm_operator(std::move(entry), geometry_of<A>, affine_axis));
    registry.add<A>(norm_backward_operator(forward, infer_backward, std::move(backward)));
  }
};

}  // namespace frit::ops
