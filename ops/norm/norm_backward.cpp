// The gradients of (x - mean) * rstd * weight + bias on the CPU.

#include <cmath>

#include "frit/ops/norm/norm_rows.h"
#include "frit/ops/norm/norm_units.h"
#include "frit/ops/norm/shared_slices.h"

namespace frit::ops {
namespace {

/// Calls body<T, C>(): T is the dtype's type, C the one that the input gradient is computed in.
template <class Body>
void dispatch_gradient(DType dtype, const NormGeometry& geometry, const Body& body) {
  dispatch_floating(dtype, [&]<class T>() {
    if (!geometry.fixed_statistics && geometry.slice_elements() < least_elements_in_float) return body.template operator()<T, double>();
    body.template operator()<T, T>();
  });
}

template <class T, class C>
struct Backward {
  const KernelContext& call;
  const Stages* stages;
  const NormGeometry& geometry;
  const SharedSlices* shared;
  NormUnits units = NormUnits(geometry, call.inputs[1].layout());
  /// That a program gives comes where the input gradient will lie.
  const Tensor given = stages == nullptr || stages->before.instructions.empty() ? call.inputs[0] : place_of_gradient();
  NormPrograms programs = NormPrograms(stages, given, call.outputs[0]);
  const T *gradient = given.data<T>(), *input = call.inputs[1].data<T>(), *weight = data_or_null<T>(call.inputs, 4);
  const double *means = call.inputs[2].data<double>(), *rstds = call.inputs[3].data<double>();
  T* input_gradient = data_or_null<T>(call.outputs, 0);
  T *weight_gradient = data_or_null<T>(call.outputs, 1), *bias_gradient = data_or_null<T>(call.outputs, 2);

  /// Graphs have no calls with a program before and output 0 unread, which take memory of their own.
  Tensor place_of_gradient() const {
    const Tensor& x = call.inputs[1];
    return call.outputs[0].defined() ? call.outputs[0] : Tensor::empty(x.shape(), x.dtype(), x.device(), x.layout());
  }

  bool wants_sums() const { return !geometry.fixed_statistics || wants_parameters(); }
  bool wants_parameters() const { return weight_gradient != nullptr || bias_gradient != nullptr; }
  double weight_of(std::int64_t channel) const { return weight != nullptr ? static_cast<double>(weight[channel]) : 1; }
  NormUnitMemory<C> memory_of(std::int64_t unit) const { return {units, unit, call.scratch}; }

  /// Those of NormGradientSums of each channel, not weighted.
  void sum_channels(std::int64_t unit, std::int64_t worker, const NormUnitMemory<C>& memory) const {
    const auto mean_of = [&](std::int64_t channel) { return means[units.slice_of(unit, channel)]; };
    const auto make_gradient = [&](const NormTile& tile, std::int64_t workspace) {
      programs.run_before(units, tile, call.scratch, workspace);
    };
    memory.sum_channels(unit, worker, mean_of, make_gradient, [&](const NormPart& part, const auto& own_means) {
      return [g = gradient + part.offset, x = input + part.offset, own_means](auto load, std::int64_t i, std::int64_t, int lane) {
        if (lane == 0) __builtin_prefetch(x + i + column_lanes);
        const auto term = load(g + i);
        return std::array{term, term * (load(x + i) - load(own_means.data() + lane))};
      };
    });
  }

  /// Of channels that are slices, those of all processes in the place of this one's.
  ProcessPairs exchange() const {
    FRIT_CHECK(units.slice_channels == 1);
    for (std::int64_t unit = 0; unit < units.count; ++unit) {
      const NormUnitMemory<C> memory = memory_of(unit);
      for (std::int64_t channel = 0; channel < units.channels; ++channel)
        shared->set_own(units.slice_of(unit, channel), memory.sums(0, 0)[channel], memory.sums(0, 1)[channel]);
    }
    return shared->gather();
  }

  /// g * scale + (x - reference) * slope + offset; with fixed statistics g * scale. `pairs`: the sums of all processes; or null.
  void find_coefficients(std::int64_t unit, const NormUnitMemory<C>& memory, const ProcessPairs* pairs) const {
    const std::int64_t of_all = units.first_channel(unit);
    for (std::int64_t first = 0, slice = units.slice_of(unit, 0); first < units.channels; first += units.slice_channels, ++slice) {
      const std::int64_t last = first + units.slice_channels;
      NormGradientSums sums;
      for (std::int64_t channel = first; channel < last && !geometry.fixed_statistics; ++channel) {
        const double w = weight_of(of_all + channel);
        const NormGradientSums found =
            pairs != nullptr ? sums_of_all(*pairs, slice) : NormGradientSums{memory.sums(0, 0)[channel], memory.sums(0, 1)[channel]};
        sums += {w * found.gradient, w * found.product};
      }
      const std::int64_t elements = units.slice_elements() * (pairs != nullptr ? pairs->processes : 1);
      const NormInputGradient rule({means[slice], rstds[slice]}, sums, elements);
      const C reference = static_cast<C>(rule.mean);
      const double rest = (rule.mean - static_cast<double>(reference)) * rule.slope;
      for (std::int64_t channel = first; channel < last; ++channel) {
        memory.coefficients(0)[channel] = static_cast<C>(rule.rstd * weight_of(of_all + channel));
        memory.coefficients(1)[channel] = reference;
        memory.coefficients(2)[channel] = static_cast<C>(rule.slope);
        memory.coefficients(3)[channel] = static_cast<C>(std::isfinite(rest) ? rule.offset - rest : rule.offset);
      }
    }
    memory.repeat_coefficients(4);
  }

  void write_input_gradient(std::int64_t unit, std::int64_t worker, const NormUnitMemory<C>& memory,
                            const ProcessPairs* pairs = nullptr) const {
    find_coefficients(unit, memory, pairs);
    const auto scaled = [](C g, C scale) { return static_cast<T>(g * scale); };
    const auto function = [](C g, C x, C scale, C reference, C slope, C offset) {
      return static_cast<T>(g * scale + ((x - reference) * slope + offset));
    };
    units.for_each_tile(unit, worker, [&](const NormTile& tile, std::int64_t workspace) {
      if (!wants_sums()) programs.run_before(units, tile, call.scratch, workspace);
      units.for_each_part(tile, [&](const NormPart& part) {
        if (geometry.fixed_statistics) {
          apply_coefficients(units, memory, part, input_gradient, scaled, std::make_integer_sequence<int, 1>(), gradient);
        } else {
          apply_coefficients(units, memory, part, input_gradient, function, std::make_integer_sequence<int, 4>(), gradient, input);
        }
      });
      programs.run_after(units, tile, call.scratch, workspace);
    });
  }

  /// Adds the sums of a channel, in the order of the batch.
  void write_parameter_gradients() const {
    parallel_for(units.all_channels, 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t channel = begin; channel < end; ++channel) {
        NormGradientSums total;
        for (std::int64_t i = channel; i < units.count * units.channels; i += units.all_channels) {
          const std::int64_t unit = i / units.channels, own = i % units.channels;
          const NormUnitMemory<C> memory = memory_of(unit);
          total += {memory.sums(0, 0)[own], memory.sums(0, 1)[own] * rstds[units.slice_of(unit, own)]};
        }
        if (weight_gradient != nullptr) weight_gradient[channel] = static_cast<T>(total.product);
        if (bias_gradient != nullptr) bias_gradient[channel] = static_cast<T>(total.gradient);
      }
    });
  }

  void run() {
    units.workers = programs.workers(call.scratch, static_cast<std::size_t>(units.count) * NormUnitMemory<C>::bytes(units));
    units.for_each([&](std::int64_t unit, std::int64_t worker) {
      const NormUnitMemory<C> memory = memory_of(unit);
      if (wants_sums()) sum_channels(unit, worker, memory);
      if (input_gradient != nullptr && shared == nullptr) write_input_gradient(unit, worker, memory);
    });
    if (input_gradient != nullptr && shared != nullptr) {
      const ProcessPairs pairs = exchange();
      units.for_each([&](std::int64_t unit, std::int64_t worker) { write_input_gradient(unit, worker, memory_of(unit), &pairs); });
    }
    if (wants_parameters()) write_parameter_gradients();
  }
};

std::size_t scratch(const NormGeometry& geometry, DType dtype, Layout layout) {
  if (is_of_rows(geometry)) return row_gradients_scratch(geometry);
  const NormUnits units(geometry, layout);
  std::size_t bytes = 0;
  dispatch_gradient(dtype, geometry, [&]<class T, class C>() { bytes = NormUnitMemory<C>::bytes(units); });
  return static_cast<std::size_t>(units.count) * bytes;
}

}  // namespace

void run_norm_backward(const KernelContext& call, const Stages* stages, const NormGeometry& geometry, const SharedSlices* shared) {
  if (is_of_rows(geometry)) return differentiate_rows(call, geometry);
  dispatch_gradient(call.inputs[1].dtype(), geometry, [&]<class T, class C>() { Backward<T, C>{call, stages, geometry, shared}.run(); });
}

Kernel norm_backward_kernel(GeometryRule geometry, const NormFunction& run, bool images) {
  return kernel_of_image(geometry, run, scratch, /*image=*/1, images);
}

}  // namespace frit::ops
