// (x - mean) * rstd * weight + bias on the CPU.

#include "frit/ops/norm/norm_rows.h"
#include "frit/ops/norm/norm_units.h"

namespace frit::ops {
namespace {

template <class T>
struct Forward {
  const KernelContext& call;
  const Stages* stages;
  const NormGeometry& geometry;
  const SliceRule& rule;
  NormUnits units = NormUnits(geometry, call.inputs[0].layout());
  const T *input = call.inputs[0].data<T>(), *weight = data_or_null<T>(call.inputs, 1), *bias = data_or_null<T>(call.inputs, 2);
  T* output = data_or_null<T>(call.outputs, 0);
  double *means = data_or_null<double>(call.outputs, 1), *rstds = data_or_null<double>(call.outputs, 2);
  CoefficientOutputs<T> coefficients = CoefficientOutputs<T>(call.outputs);
  NormPrograms programs = NormPrograms(stages, {}, call.outputs[0]);

  /// Of the differences from the slice's first element.
  void sum_slices(std::int64_t unit, std::int64_t worker, const NormUnitMemory<T>& memory) const {
    const auto pivot_of = [&](std::int64_t channel) {
      const std::int64_t first = units.offset(unit, 0, channel / units.slice_channels * units.slice_channels, 0);
      return units.elements() == 0 ? 0.0 : static_cast<double>(input[first]);
    };
    const auto terms_of = [&](const NormPart& part, const auto& pivots) { return moment_terms(input + part.offset, pivots); };
    memory.sum_channels(
        unit, worker, pivot_of, [](const NormTile&, std::int64_t) {}, terms_of);
  }

  /// Of the slice that begins with a channel of a unit.
  Moments moments(const NormUnitMemory<T>& memory, std::int64_t channel) const {
    ColumnSums sums{};
    for (std::int64_t i = channel; i < channel + units.slice_channels; ++i) {
      for (int k = 0; k < 2; ++k) sums[static_cast<std::size_t>(k)] += memory.sums(0, k)[i];
    }
    return moments_of(units.slice_elements(), memory.pivots()[channel], sums[0], sums[1]);
  }

  void write_statistics(std::int64_t unit, const NormUnitMemory<T>& memory) const {
    const std::int64_t of_all = units.first_channel(unit);
    for (std::int64_t first = 0, slice = units.slice_of(unit, 0); first < units.channels; first += units.slice_channels, ++slice) {
      const SliceStatistics statistics = rule(slice, geometry.fixed_statistics ? Moments{} : moments(memory, first));
      if (means != nullptr) means[slice] = statistics.mean;
      if (rstds != nullptr) rstds[slice] = statistics.rstd;
      for (std::int64_t channel = first; channel < first + units.slice_channels; ++channel) {
        const double w = weight != nullptr ? static_cast<double>(weight[of_all + channel]) : 1;
        const double b = bias != nullptr ? static_cast<double>(bias[of_all + channel]) : 0;
        const NormCoefficients<T> found(statistics.mean, statistics.rstd, w, b);
        coefficients.write(unit * units.channels + channel, found);
        memory.coefficients(0)[channel] = found.reference;
        memory.coefficients(1)[channel] = found.scale;
        memory.coefficients(2)[channel] = found.shift;
      }
    }
  }

  void normalize(std::int64_t unit, std::int64_t worker, const NormUnitMemory<T>& memory) const {
    memory.repeat_coefficients(3);
    const auto function = [](T x, T reference, T scale, T shift) { return (x - reference) * scale + shift; };
    units.for_each_tile(unit, worker, [&](const NormTile& tile, std::int64_t workspace) {
      units.for_each_part(tile, [&](const NormPart& part) {
        apply_coefficients(units, memory, part, output, function, std::make_integer_sequence<int, 3>(), input);
      });
      programs.run_after(units, tile, call.scratch, workspace);
    });
  }

  void run() {
    units.workers = programs.workers(call.scratch, static_cast<std::size_t>(units.count) * NormUnitMemory<T>::bytes(units));
    units.for_each([&](std::int64_t unit, std::int64_t worker) {
      const NormUnitMemory<T> memory(units, unit, call.scratch);
      if (!geometry.fixed_statistics) sum_slices(unit, worker, memory);
      write_statistics(unit, memory);
      if (output != nullptr) normalize(unit, worker, memory);
    });
  }
};

std::size_t scratch(const NormGeometry& geometry, DType dtype, Layout layout) {
  if (is_of_rows(geometry)) return 0;
  const NormUnits units(geometry, layout);
  std::size_t bytes = 0;
  dispatch_floating(dtype, [&]<class T>() { bytes = NormUnitMemory<T>::bytes(units); });
  return static_cast<std::size_t>(units.count) * bytes;
}

}  // namespace

void run_norm(const KernelContext& call, const Stages* stages, const NormGeometry& geometry, const SliceRule& rule) {
  if (is_of_rows(geometry)) return normalize_rows(call, geometry, rule);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() { Forward<T>{call, stages, geometry, rule}.run(); });
}

Kernel norm_kernel(GeometryRule geometry, const NormFunction& run, bool images) {
  return kernel_of_image(geometry, run, scratch, /*image=*/0, images);
}

}  // namespace frit::ops
