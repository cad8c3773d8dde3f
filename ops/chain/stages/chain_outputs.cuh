#pragma once

#include "frit/core/convert.h"
#include "frit/ops/cuda/computed.cuh"
#include "frit/ops/cuda/planes.cuh"
#include "frit/ops/operator/kernel.h"

namespace frit::ops {

// Where the results of a chain with a norm and maxima go: outputs (output, argmax, mean, rstd, argmax_input).

/// Maxima, which of the elements they are, and the input's elements that they are made of, all at the same places. Each may be null.
template <class Stored, class Index>
struct MaximumOutputs {
  Stored* output;
  Index* argmax;
  Stored* argmax_input;

  static MaximumOutputs of(const KernelContext& call) {
    return {data_or_null<Stored>(call.outputs[0]), data_or_null<Index>(call.outputs[1]), data_or_null<Stored>(call.outputs[4])};
  }
  bool has_argmax() const { return argmax != nullptr || argmax_input != nullptr; }
  /// From a place on.
  __device__ MaximumOutputs from(std::int64_t place) const {
    return {moved(output, place), moved(argmax, place), moved(argmax_input, place)};
  }
  template <class Place>
  __device__ void write(Place place, Computed<Stored> value, std::int32_t index, Computed<Stored> element) const {
    if (output != nullptr) output[place] = convert<Stored>(value);
    if (argmax != nullptr) argmax[place] = static_cast<Index>(index);
    if (argmax_input != nullptr) argmax_input[place] = convert<Stored>(element);
  }
};

/// The norm's statistics, a number a slice. Each may be null.
struct StatisticsOutputs {
  double *means, *rstds;

  static StatisticsOutputs of(const KernelContext& call) {
    return {data_or_null<double>(call.outputs[2]), data_or_null<double>(call.outputs[3])};
  }
  __device__ void write(std::int64_t slice, double mean, double rstd) const {
    if (means != nullptr) means[slice] = mean;
    if (rstds != nullptr) rstds[slice] = rstd;
  }
};

}  // namespace frit::ops
