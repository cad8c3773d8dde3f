#include "frit/ops/norm/norm_core.h"

#include "frit/core/thread_pool.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

std::int64_t slice_grain(const NormGeometry& geometry) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, geometry.slice_elements()));
}

/// Calls body(offset of the run's first element, its first channel) for each run of the slice.
template <class Body>
void for_each_run(const NormGeometry& geometry, std::int64_t slice, const Body& body) {
  for (std::int64_t run = 0; run < geometry.runs; ++run) {
    body(slice * geometry.slice_stride + run * geometry.run_stride, geometry.channel(slice, run));
  }
}

template <class T>
struct Forward {
  const NormGeometry& geometry;
  const T *input, *weight, *bias;
  T* output;
  CoefficientOutputs<T> coefficients;

  void write_coefficients(std::int64_t slice, const SliceStatistics& statistics) const {
    const std::int64_t channels = geometry.slice_channels();
    for (std::int64_t i = slice * channels; i < (slice + 1) * channels; ++i) {
      const double w = weight != nullptr ? static_cast<double>(weight[i % geometry.channels]) : 1;
      const double b = bias != nullptr ? static_cast<double>(bias[i % geometry.channels]) : 0;
      coefficients.write(i, {statistics.mean, statistics.rstd, w, b});
    }
  }

  void normalize(std::int64_t slice, const SliceStatistics& statistics) const {
    for_each_run(geometry, slice, [&](std::int64_t offset, std::int64_t channel) {
      const auto difference = [x = input + offset, mean = statistics.mean](std::int64_t i) { return static_cast<double>(x[i]) - mean; };
      T* const y = output + offset;
      if (weight != nullptr && geometry.weight_axis == WeightAxis::element) {
        map_run(y, geometry.run_length, [&, rstd = statistics.rstd, w = weight + channel, b = bias + channel](std::int64_t i) {
          return difference(i) * (rstd * static_cast<double>(w[i])) + static_cast<double>(b[i]);
        });
      } else {
        const double scale = statistics.rstd * (weight != nullptr ? static_cast<double>(weight[channel]) : 1);
        const double shift = bias != nullptr ? static_cast<double>(bias[channel]) : 0;
        map_run(y, geometry.run_length, [&](std::int64_t i) { return difference(i) * scale + shift; });
      }
    });
  }
};

template <class T>
struct Backward {
  const NormGeometry& geometry;
  const T *gradient, *input, *weight;
  const double *means, *rstds;
  T *input_gradient, *weight_gradient, *bias_gradient;
  NormGradientSums* parameter_sums;  ///< of each run (WeightAxis::run) or slice, multiplied by rstd; in scratch memory

  bool keeps_sums() const {
    return (weight_gradient != nullptr || bias_gradient != nullptr) && geometry.weight_axis != WeightAxis::element;
  }
  bool weight_per_element() const { return weight != nullptr && geometry.weight_axis == WeightAxis::element; }
  double weight_of(std::int64_t channel) const { return weight != nullptr ? static_cast<double>(weight[channel]) : 1; }

  /// The sums of the whole slice, weighted; those of the weight's and the bias's gradient are kept on the way.
  NormGradientSums slice_sums(std::int64_t slice) const {
    NormGradientSums total;
    NormGradientSums* kept = nullptr;
    if (keeps_sums()) {
      kept = parameter_sums + (geometry.weight_axis == WeightAxis::slice ? slice : slice * geometry.runs);
      if (geometry.weight_axis == WeightAxis::slice) *kept = {};
    }
    for_each_run(geometry, slice, [&](std::int64_t offset, std::int64_t channel) {
      const auto x = [p = input + offset](std::int64_t i) { return p[i]; };
      const T* const g = gradient + offset;
      if (weight_per_element()) {
        const auto weighted = [g, w = weight + channel](std::int64_t i) { return static_cast<double>(g[i]) * static_cast<double>(w[i]); };
        total += norm_gradient_sums(geometry.run_length, weighted, x, means[slice]);
        return;
      }
      const NormGradientSums sums = norm_gradient_sums(
          geometry.run_length, [g](std::int64_t i) { return g[i]; }, x, means[slice]);
      const double w = weight_of(channel);
      total += {w * sums.gradient, w * sums.product};
      if (kept == nullptr) return;
      const NormGradientSums scaled{sums.gradient, sums.product * rstds[slice]};
      if (geometry.weight_axis == WeightAxis::slice)
        *kept += scaled;
      else
        *kept++ = scaled;
    });
    return total;
  }

  void write_input_gradient(std::int64_t slice, const NormInputGradient& rule) const {
    for_each_run(geometry, slice, [&](std::int64_t offset, std::int64_t channel) {
      const T *const g = gradient + offset, *const x = input + offset;
      T* const dx = input_gradient + offset;
      if (weight_per_element()) {
        map_run(dx, geometry.run_length, [&, w = weight + channel](std::int64_t i) {
          return rule(static_cast<double>(g[i]) * static_cast<double>(w[i]), static_cast<double>(x[i]));
        });
      } else {
        const double w = weight_of(channel);
        map_run(dx, geometry.run_length, [&](std::int64_t i) { return rule(static_cast<double>(g[i]) * w, static_cast<double>(x[i])); });
      }
    });
  }

  /// For statistics that do not depend on the input, and a weight a slice.
  void write_scaled_gradient(std::int64_t slice) const {
    const double scale = rstds[slice] * weight_of(slice);
    for_each_run(geometry, slice, [&](std::int64_t offset, std::int64_t) {
      const T* const g = gradient + offset;
      map_run(input_gradient + offset, geometry.run_length, [&](std::int64_t i) { return static_cast<double>(g[i]) * scale; });
    });
  }

  void write_parameter_gradients(std::int64_t channel, const NormGradientSums& sums) const {
    if (weight_gradient != nullptr) weight_gradient[channel] = static_cast<T>(sums.product);
    if (bias_gradient != nullptr) bias_gradient[channel] = static_cast<T>(sums.gradient);
  }

  /// Adds what slice_sums kept, in the order of the batch.
  void reduce_parameter_sums() const {
    const std::int64_t rows = geometry.weight_axis == WeightAxis::slice ? geometry.slices : geometry.slices * geometry.runs;
    parallel_for(geometry.channels, 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t channel = begin; channel < end; ++channel) {
        NormGradientSums total;
        for (std::int64_t row = channel; row < rows; row += geometry.channels) total += parameter_sums[row];
        write_parameter_gradients(channel, total);
      }
    });
  }

  /// WeightAxis::element: each task sums a few columns over the batch, in order.
  void reduce_columns() const {
    constexpr std::int64_t block = 32;
    if ((weight_gradient == nullptr && bias_gradient == nullptr) || geometry.channels == 0) return;
    const std::int64_t groups = geometry.channels / geometry.run_length;
    const std::int64_t blocks = (geometry.run_length + block - 1) / block;
    parallel_for(groups * blocks, 1, [&](std::int64_t task, std::int64_t) {
      const std::int64_t group = task / blocks, first = task % blocks * block;
      const std::int64_t columns = std::min(block, geometry.run_length - first);
      std::array<double, block> gradients{}, products{};
      for (std::int64_t slice = group; slice < geometry.slices; slice += groups) {
        const T *const g = gradient + slice * geometry.slice_stride + first, *const x = input + slice * geometry.slice_stride + first;
        const double mean = means[slice], rstd = rstds[slice];
        for (std::int64_t i = 0; i < columns; ++i) {
          const double term = static_cast<double>(g[i]);
          gradients[static_cast<std::size_t>(i)] += term;
          products[static_cast<std::size_t>(i)] += term * ((static_cast<double>(x[i]) - mean) * rstd);
        }
      }
      for (std::int64_t i = 0; i < columns; ++i) {
        const std::size_t j = static_cast<std::size_t>(i);
        write_parameter_gradients(group * geometry.run_length + first + i, {gradients[j], products[j]});
      }
    });
  }

  void run(bool fixed_statistics) const {
    // Before the input gradient, which may take the memory of the output gradient.
    if (geometry.weight_axis == WeightAxis::element) reduce_columns();
    parallel_for(geometry.slices, slice_grain(geometry), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slice = begin; slice < end; ++slice) {
        NormGradientSums sums;
        if (!fixed_statistics || keeps_sums()) sums = slice_sums(slice);
        if (input_gradient == nullptr) continue;
        if (fixed_statistics)
          write_scaled_gradient(slice);
        else
          write_input_gradient(slice, NormInputGradient({means[slice], rstds[slice]}, sums, geometry.slice_elements()));
      }
    });
    if (keeps_sums()) reduce_parameter_sums();
  }
};

}  // namespace

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

std::size_t norm_backward_scratch(const NormGeometry& geometry) {
  if (geometry.weight_axis == WeightAxis::element) return 0;
  const std::int64_t sums = geometry.weight_axis == WeightAxis::slice ? geometry.slices : geometry.slices * geometry.runs;
  return static_cast<std::size_t>(sums) * sizeof(NormGradientSums);
}

Moments slice_moments(const NormGeometry& geometry, const Tensor& input, std::int64_t slice) {
  if (geometry.slice_elements() == 0) return {};
  return dispatch_floating(input.dtype(), [&]<class T>() {
    const T* const x = input.data<T>() + slice * geometry.slice_stride;
    const bool contiguous = geometry.run_stride == geometry.run_length;
    const std::int64_t runs = contiguous ? 1 : geometry.runs;
    MomentSums sums(static_cast<double>(x[0]));
    for (std::int64_t run = 0; run < runs; ++run) {
      sums.add(geometry.slice_elements() / runs, [p = x + run * geometry.run_stride](std::int64_t i) { return p[i]; });
    }
    return sums.moments();
  });
}

void run_norm(const KernelContext& call, const NormGeometry& geometry,
              const std::function<SliceStatistics(std::int64_t slice)>& statistics) {
  double* const means = data_or_null<double>(call.outputs, 1);
  double* const rstds = data_or_null<double>(call.outputs, 2);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const Forward<T> forward{geometry,
                             call.inputs[0].data<T>(),
                             data_or_null<T>(call.inputs, 1),
                             data_or_null<T>(call.inputs, 2),
                             data_or_null<T>(call.outputs, 0),
                             CoefficientOutputs<T>(call.outputs)};
    parallel_for(geometry.slices, slice_grain(geometry), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slice = begin; slice < end; ++slice) {
        const SliceStatistics found = statistics(slice);
        if (means != nullptr) means[slice] = found.mean;
        if (rstds != nullptr) rstds[slice] = found.rstd;
        if (forward.coefficients.any()) forward.write_coefficients(slice, found);
        if (forward.output != nullptr) forward.normalize(slice, found);
      }
    });
  });
}

void run_norm_backward(const KernelContext& call, const NormGeometry& geometry, bool fixed_statistics) {
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    const Backward<T> backward{.geometry = geometry,
                               .gradient = call.inputs[0].data<T>(),
                               .input = call.inputs[1].data<T>(),
                               .weight = data_or_null<T>(call.inputs, 4),
                               .means = call.inputs[2].data<double>(),
                               .rstds = call.inputs[3].data<double>(),
                               .input_gradient = data_or_null<T>(call.outputs, 0),
                               .weight_gradient = data_or_null<T>(call.outputs, 1),
                               .bias_gradient = data_or_null<T>(call.outputs, 2),
                               .parameter_sums = reinterpret_cast<NormGradientSums*>(call.scratch.data())};
    backward.run(fixed_statistics);
  });
}

Values normalized_by_coefficients(std::span<const Value> inputs, std::span<const Value> outputs, const Attributes&) {
  constexpr std::int64_t least_bytes = 1 << 20;  // less is mostly normalised in one launch, from registers or a cache
  const Value x = inputs[0];
  if (x.type().bytes() < least_bytes) return {};
  return {cast((cast(x, outputs[3].dtype()) - outputs[3]) * outputs[4] + outputs[5], x.dtype())};
}

Values norm_gradient(std::string_view name, const GradientContext& c) {
  Values result(c.inputs.size());
  if (!c.gradients[0]) return result;
  const Value weight = c.inputs.size() > 1 ? c.inputs[1] : Value{};
  const Values gradients = emit(concat(name, "_backward"), {c.gradients[0], c.inputs[0], c.outputs[1], c.outputs[2], weight}, c.attributes);
  for (std::size_t i = 0; i < std::min(result.size(), gradients.size()); ++i) result[i] = gradients[i];
  return result;
}

std::vector<Sample> norm_backward_samples(const Operator& forward) {
  std::vector<Sample> result;
  for (const Sample& sample : forward.samples()) {
    std::vector<TensorType> types;
    for (const SampleInput& input : sample.inputs) types.push_back({DType::f64, input.shape});
    SampleInput statistics(forward.infer_types(types, sample.attributes)[1].shape, Fill::positive);
    statistics.floating = false;
    statistics.dtype = DType::f64;
    Sample backward{.inputs = {sample.inputs[0], sample.inputs[0], statistics, statistics}, .attributes = sample.attributes};
    if (sample.inputs.size() > 1) backward.inputs.push_back(sample.inputs[1]);
    result.push_back(backward);
  }
  return result;
}

}  // namespace frit::ops
