#pragma once

#include "frit/ops/norm/slices_cuda.h"

namespace frit::ops {

template <class T>
struct GradientInputs {
  const T *gradient, *input, *weight;  ///< weight may be null
  const double *means, *rstds;         // (slices)
};

/// What a thread holds of a slice.
template <class T, int width>
struct GradientTiles {
  using C = Computed<T>;

  Tile<T, width> gradient, input;

  __device__ void load(const GradientInputs<T>& from, std::int64_t first, const DeviceGeometry& g, const SliceWalk& walk, bool aligned,
                       bool with_input = true) {
    SliceWalk ahead = walk, ahead_of_input = walk;
    gradient.load(from.gradient + first, g, ahead, aligned);
    if (with_input) input.load(from.input + first, g, ahead_of_input, aligned);
  }
};

/// A vector's weights where they belong to elements, 1 elsewhere.
template <class T, int width>
__device__ void element_weights(Computed<T> (&result)[width], const T* weight, const SliceWeights& weights, const SliceWalk& walk,
                                bool aligned) {
  cuda::Vector<T, width> loaded;
  if (weights.per_element) loaded = load_vector<width>(weight + (weights.first + walk.index) * width, aligned);
#pragma unroll
  for (int k = 0; k < width; ++k) result[k] = weights.per_element ? convert<Computed<T>>(loaded[k]) : Computed<T>{1};
}

/// Of g and g * xhat over a walk, g multiplied by weights that belong to elements; the last tiles are left as they are.
template <class T, int width>
__device__ SumPair sum_gradients(GradientTiles<T, width>& tiles, const GradientInputs<T>& from, const Normalizer<Computed<T>>& xhat,
                                 const SliceWeights& weights, std::int64_t first, const DeviceGeometry& g, SliceWalk walk,
                                 Alignment aligned) {
  using C = Computed<T>;
  SumPair sums{0, 0};
  while (walk.inside()) {
    tiles.load(from, first, g, walk, aligned.data);
    C sum = 0, product = 0;
#pragma unroll
    for (int v = 0; v < Tile<T, width>::vectors; ++v, walk.advance()) {
      if (!walk.inside()) continue;
      C w[width];
      element_weights(w, from.weight, weights, walk, aligned.weights);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const C term = tiles.gradient(v, k) * w[k];
        sum += term;
        product += term * xhat(tiles.input(v, k));
      }
    }
    sums = sums + SumPair{static_cast<double>(sum), static_cast<double>(product)};
  }
  return sums;
}

/// dx = g * scale + xhat * slope + offset; of statistics that do not depend on the input, dx = g * scale.
template <class C>
struct InputGradientRule {
  C scale, slope = 0, offset = 0;
  bool fixed;

  /// `slice_weight` is 1 where weights belong to elements.
  __device__ InputGradientRule(double rstd, double slice_weight) : scale(static_cast<C>(rstd * slice_weight)), fixed(true) {}
  __device__ InputGradientRule(double rstd, double slice_weight, const SumPair& slope_and_offset) : InputGradientRule(rstd, slice_weight) {
    slope = static_cast<C>(slope_and_offset.first);
    offset = static_cast<C>(slope_and_offset.second);
    fixed = false;
  }
};

/// From the sums over a slice, g weighted.
__device__ inline SumPair slope_and_offset(const SumPair& sums, double rstd, double inverse_count) {
  return {-rstd * (sums.second * inverse_count), -rstd * (sums.first * inverse_count)};
}

/// The input gradient over a walk. `held`: its elements are in the tiles.
template <class T, int width>
__device__ void write_gradient(T* dx, GradientTiles<T, width>& tiles, bool held, const GradientInputs<T>& from,
                               const Normalizer<Computed<T>>& xhat, const InputGradientRule<Computed<T>>& rule, const SliceWeights& weights,
                               std::int64_t first, const DeviceGeometry& g, SliceWalk walk, Alignment aligned) {
  using C = Computed<T>;
  while (walk.inside()) {
    if (!held) tiles.load(from, first, g, walk, aligned.data, /*with_input=*/!rule.fixed);
#pragma unroll
    for (int v = 0; v < Tile<T, width>::vectors; ++v, walk.advance()) {
      if (!walk.inside()) continue;
      C w[width];
      element_weights(w, from.weight, weights, walk, aligned.weights);
      cuda::Vector<T, width> results;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const C scaled = tiles.gradient(v, k) * w[k] * rule.scale;
        results[k] = convert<T>(rule.fixed ? scaled : scaled + (xhat(tiles.input(v, k)) * rule.slope + rule.offset));
      }
      store_vector(dx + first + g.offset(walk.index) * width, results, aligned.data);
    }
  }
}

template <class T>
__device__ double slice_weight(const T* weight, const SliceWeights& weights) {
  return weight == nullptr || weights.per_element ? 1 : convert<double>(weight[weights.first]);
}

}  // namespace frit::ops
