#pragma once

#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/registry.h"

namespace frit::ops {

/// Which step of a slice's walk moves on to the next element of weight and bias.
enum class WeightAxis { slice, run, element };

/// How a norm sees a row-major input: slices that are normalised together, each made of runs of neighbouring elements.
struct NormGeometry {
  std::int64_t slices, runs, run_length;  ///< runs of a slice
  std::int64_t slice_stride, run_stride;  ///< in elements
  std::int64_t channels;                  ///< elements of weight and bias
  WeightAxis weight_axis;

  std::int64_t slice_elements() const { return runs * run_length; }
  /// Of the run's first element.
  std::int64_t channel(std::int64_t slice, std::int64_t run) const {
    return weight_axis == WeightAxis::slice ? slice : (slice * runs + run) * (weight_axis == WeightAxis::run ? 1 : run_length) % channels;
  }
};

/// Input (batch, channels, inner), slices of channels / groups channels of one sample: group norm; instance norm with a group a channel; layer
/// norm with one group and inner 1.
NormGeometry grouped_geometry(std::int64_t batch, std::int64_t channels, std::int64_t groups, std::int64_t inner);
/// The same input, slices of one channel over the batch.
NormGeometry batch_geometry(std::int64_t batch, std::int64_t channels, std::int64_t inner);

/// The product of the axes from `begin` on.
std::int64_t elements_from(const Shape& shape, int begin);

/// Inputs `first` on are parameters named as in the entry: each must have this shape and the dtype of `input`.
void require_parameters(const InferContext& call, std::size_t input, std::size_t first, const Shape& shape);
void require_eps(const InferContext& call, double eps);

/// (output, mean, rstd) of the type of input 0 and two f64 vectors with an element a slice.
std::vector<TensorType> norm_types(const InferContext& call, const NormGeometry& geometry);
/// (input_gradient, weight_gradient, bias_gradient) from (gradient, input, mean, rstd, [weight]).
std::vector<TensorType> norm_backward_types(const InferContext& call, const NormGeometry& geometry, const Shape& weight_shape);

/// What a slice is normalised with, given its number.
using StatisticsSource = std::function<SliceStatistics(std::int64_t slice)>;

/// Of one slice of a CPU tensor.
Moments slice_moments(const NormGeometry& geometry, const Tensor& input, std::int64_t slice);
/// Writes the outputs (output, mean, rstd) that are there; weight and bias are inputs 1 and 2 if there are any.
void run_norm(const KernelContext& call, const NormGeometry& geometry, const StatisticsSource& statistics);
/// The kernel of norm_backward_types. With `fixed_statistics` mean and rstd do not depend on the input.
void run_norm_backward(const KernelContext& call, const NormGeometry& geometry, bool fixed_statistics = false);
std::size_t norm_backward_scratch(const NormGeometry& geometry);

/// Adds the operator `name` and its `name`_backward, for a norm over groups. A is the attribute struct; `check` refuses bad calls, `geometry` and
/// `weight_shape` are functions of the input's shape and the attributes.
template <class A>
struct GroupedNorm {
  std::string name, summary;
  void (*check)(const InferContext& call, const A& attributes);
  NormGeometry (*geometry)(const Shape& input, const A& attributes);
  Shape (*weight_shape)(const Shape& input, const A& attributes);
  std::vector<Sample> (*samples)();

  void add_to(Registry& registry) const {
    registry.add<A>(forward());
    registry.add<A>(backward());
  }

 private:
  Operator forward() const;
  Operator backward() const;
};

}  // namespace frit::ops
