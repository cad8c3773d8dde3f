#pragma once

#include "frit/ops/norm/slices.cuh"

namespace frit::ops {

// The passes over a slice for its gradients: one for the sums of g and g * xhat, one for the input gradient.

template <class T>
struct GradientInputs {
  const T *gradient, *input, *weight;  ///< weight may be null
  const double *means, *rstds;         // (slices)
};

/// What a thread holds of a slice.
template <class T, int width>
struct GradientTiles {
  Tile<T, width> gradient, input;

  __device__ void load(const GradientInputs<T>& from, std::int64_t first, const DeviceGeometry& g, const SliceIterator& it, bool aligned,
                       bool with_input = true) {
    SliceIterator ahead = it, ahead_of_input = it;
    gradient.load(from.gradient + first, g, ahead, aligned);
    if (with_input) input.load(from.input + first, g, ahead_of_input, aligned);
  }
};

/// A vector's weights where they belong to elements, `common` elsewhere.
template <class T, class C, int width>
__device__ void load_weights(C (&result)[width], C common, const T* weight, const SliceWeights& weights, const SliceIterator& it,
                             bool aligned) {
  cuda::Vector<T, width> loaded;
  if (weights.per_element) loaded = load_vector<width>(weight + (weights.first + it.index) * width, aligned);
#pragma unroll
  for (int k = 0; k < width; ++k) result[k] = weights.per_element ? convert<C>(loaded[k]) : common;
}

/// Of g and g * xhat over a thread's part of a slice, g multiplied by weights that belong to elements; the last tiles are left as they are.
template <class T, int width, class C>
__device__ SumPair sum_gradients(GradientTiles<T, width>& tiles, const GradientInputs<T>& from, const Normalizer<C>& xhat,
                                 const SliceWeights& weights, std::int64_t first, const DeviceGeometry& g, SliceIterator it,
                                 Alignment aligned) {
  SumPair sums{0, 0};
  while (it.inside()) {
    tiles.load(from, first, g, it, aligned.data);
    C sum = 0, product = 0;
#pragma unroll
    for (int v = 0; v < Tile<T, width>::vectors; ++v, it.advance()) {
      if (!it.inside()) continue;
      C w[width];
      load_weights(w, C{1}, from.weight, weights, it, aligned.weights);
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

/// dx = (g * weight - mean(g * weight) - xhat * mean(g * weight * xhat)) * rstd; of statistics that do not depend on the input, without
/// means.
template <class C>
struct InputGradientRule {
  C weight;  ///< of the slice; of no meaning where weights belong to elements
  C rstd, mean = 0, mean_product = 0;
  bool fixed;

  InputGradientRule() = default;
  __device__ InputGradientRule(double weight_, double rstd_) : weight(static_cast<C>(weight_)), rstd(static_cast<C>(rstd_)), fixed(true) {}
  /// `means` are of g * weight and of g * weight * xhat.
  __device__ InputGradientRule(double weight_, double rstd_, const SumPair& means) : InputGradientRule(weight_, rstd_) {
    mean = static_cast<C>(means.first);
    mean_product = static_cast<C>(means.second);
    fixed = false;
  }

  /// xhat is only asked for where the statistics are not fixed.
  template <class Xhat>
  __device__ C of_weighted(C term, const Xhat& xhat) const {
    return (fixed ? term : (term - mean) - xhat() * mean_product) * rstd;
  }
  template <class Xhat>
  __device__ C operator()(C g, const Xhat& xhat) const {
    return of_weighted(g * weight, xhat);
  }
};

/// The input gradient over a thread's part of a slice. `held`: its elements are in the tiles.
template <class T, int width, class C>
__device__ void write_gradient(T* dx, GradientTiles<T, width>& tiles, bool held, const GradientInputs<T>& from, const Normalizer<C>& xhat,
                               const InputGradientRule<C>& rule, const SliceWeights& weights, std::int64_t first, const DeviceGeometry& g,
                               SliceIterator it, Alignment aligned) {
  while (it.inside()) {
    if (!held) tiles.load(from, first, g, it, aligned.data, /*with_input=*/!rule.fixed);
#pragma unroll
    for (int v = 0; v < Tile<T, width>::vectors; ++v, it.advance()) {
      if (!it.inside()) continue;
      C w[width];
      load_weights(w, rule.weight, from.weight, weights, it, aligned.weights);
      cuda::Vector<T, width> results;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        results[k] = convert<T>(rule.of_weighted(tiles.gradient(v, k) * w[k], [&] { return xhat(tiles.input(v, k)); }));
      }
      store_vector(dx + first + g.offset(it.index) * width, results, aligned.data);
    }
  }
}

template <class T>
__device__ double slice_weight(const T* weight, const SliceWeights& weights) {
  return weight == nullptr || weights.per_element ? 1 : convert<double>(weight[weights.first]);
}

}  // namespace frit::ops
