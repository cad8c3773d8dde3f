#pragma once

#include "frit/core/convert.h"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/stages.cuh"

// Convolutions of size 1 over few pixels, as where an image was averaged before (squeeze and excitation): products of matrices of which
// latency is all they cost. NVRTC compiles this header.

namespace frit::ops {

/// result (pixels, results) = image (pixels, depth) by the weight.
struct PixelProduct {
  const void* weight;  ///< (results, depth), or transposed
  int pixels, sample_pixels, results, depth;
};

/// A warp has `columns` neighbouring results of some pixels; its lanes share the depth, of which each takes `vector` neighbours at a time.
/// Sums are float32; deterministic.
template <class Stored, int vector, int columns, bool transposed>
struct FewPixels : PixelProduct {
  static constexpr int rows = 4, threads = 256, lanes = 32;
  using Sums = float[rows][columns];

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    const int warp = static_cast<int>(blockIdx.x * (threads / lanes) + threadIdx.x / lanes), lane = static_cast<int>(threadIdx.x) % lanes;
    const int parts = results / columns, first = warp % parts * columns, first_pixel = warp / parts * rows;
    if (first_pixel >= pixels) return;
    Sums sums = {};
    multiply(sums, source.data, first_pixel, first, lane);
    const int pixel = first_pixel + add_up(sums, lane);
    const stages::Place place{static_cast<std::int64_t>(pixel) * results + first, first, pixel / sample_pixels};
    if (lane >= rows || pixel >= pixels) return;
    cuda::Vector<float, columns> elements;
#pragma unroll
    for (int c = 0; c < columns; ++c) elements[c] = sums[0][c];
    stages::store_vectors<1, columns>(
        sink, sink.template channels<columns>(place), [](int) { return true; }, [&](int) { return place; }, [&](int) { return elements; });
  }

 private:
  __device__ void multiply(Sums& sums, const Stored* image, int first_pixel, int first, int lane) const {
    constexpr int factors = transposed ? vector : columns, of_factor = transposed ? columns : vector;
    const auto* const matrix = static_cast<const Stored*>(weight);
#pragma unroll 2
    for (int k = lane * vector; k < depth; k += lanes * vector) {
      cuda::VectorWords<Stored, vector> left[rows];
      cuda::VectorWords<Stored, of_factor> right[factors];
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const std::int64_t pixel = min(first_pixel + r, pixels - 1);
        left[r] = cuda::VectorWords<Stored, vector>::load(image + pixel * depth + k, true);
      }
#pragma unroll
      for (int i = 0; i < factors; ++i) {
        const std::int64_t from =
            transposed ? static_cast<std::int64_t>(k + i) * results + first : static_cast<std::int64_t>(first + i) * depth + k;
        right[i] = cuda::VectorWords<Stored, of_factor>::load(matrix + from, true);
      }
#pragma unroll
      for (int v = 0; v < vector; ++v) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float factor = convert<float>(transposed ? right[v][c] : right[c][v]);
#pragma unroll
          for (int r = 0; r < rows; ++r) sums[r][c] = fmaf(convert<float>(left[r][v]), factor, sums[r][c]);
        }
      }
    }
  }

  /// The row whose sums the lane has in the end, in place of the first one's; the first lanes have one each.
  __device__ static int add_up(Sums& sums, int lane) {
    int row = 0;
#pragma unroll
    for (int half = rows / 2, bit = 1; half > 0; half /= 2, bit *= 2) {
      const bool upper = (lane & bit) != 0;
      row += upper ? half : 0;
#pragma unroll
      for (int r = 0; r < half; ++r) {
#pragma unroll
        for (int c = 0; c < columns; ++c) {
          const float given = upper ? sums[r][c] : sums[r + half][c], kept = upper ? sums[r + half][c] : sums[r][c];
          sums[r][c] = kept + __shfl_xor_sync(~0u, given, bit);
        }
      }
    }
#pragma unroll
    for (int bit = rows; bit < lanes; bit *= 2) {
#pragma unroll
      for (int c = 0; c < columns; ++c) sums[0][c] += __shfl_xor_sync(~0u, sums[0][c], bit);
    }
    return row;
  }
};

}  // namespace frit::ops
