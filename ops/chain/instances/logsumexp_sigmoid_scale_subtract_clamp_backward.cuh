#pragma once

#include <utility>

#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp_traversals.cuh"
#include "frit/ops/cuda/parameter.cuh"

namespace frit::ops {

template <class T>
__device__ T sigmoid_of_shifted(T y) {
  return reciprocal(1 + fast_exponential(-(y + ScaledSigmoid<T>::shift)));
}

/// The gradient of a pixel's output; `inside` unless it is cut off.
template <class T>
struct PixelGradient {
  bool inside;
  T value;
};

/// What the exponentials of a pixel are multiplied by, and the sum of what the clamp lets through.
template <class T>
class GradientFactor {
 public:
  __device__ GradientFactor(T subtracted, const Clamp<T>& clamp) : subtracted_(subtracted), clamp_(clamp) {}

  template <class Stored>
  __device__ T finalize(const PixelGradient<T>& incoming, const PixelSum<Stored>& sums) {
    const T y = sums.value(), sigmoid = sigmoid_of_shifted(y);
    const T passed = incoming.inside ? clamp_.gradient(incoming.value, ScaledSigmoid<T>::value(y, sigmoid) - subtracted_) : T(0);
    total_ += static_cast<double>(passed);
    return incoming.inside ? ScaledSigmoid<T>::gradient(passed, y, sigmoid) * reciprocal(sums.sum) : T(0);
  }
  __device__ double total() const { return total_; }

 private:
  T subtracted_;
  Clamp<T> clamp_;
  double total_ = 0;
};

inline constexpr int sum_threads = 1024;

/// One block. Deterministic.
template <class Stored>
__global__ void __launch_bounds__(sum_threads) negate_sum(Parameter<Stored> bias_gradient, const double* block_sums, int blocks) {
  __shared__ double shared[cuda::warp_size];
  double total = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += sum_threads) total += block_sums[i];
  total = cuda::block_reduce(total, shared);
  if (threadIdx.x == 0) bias_gradient.set(0, static_cast<Computed<Stored>>(-total));
}

inline constexpr std::int64_t most_blocks = 8192;

/// Calls body.operator()<Traversal>(sharing, launch shape) with what suits the channels and the layout.
template <class Stored, class Body>
void dispatch_traversal(const Tensor& input, const Tensor& input_gradient, const LogsumexpSigmoidScaleSubtractClampAttributes& attributes,
                        const Body& body) {
  constexpr int vector = cuda::vector_width<Stored>, threads = cuda::default_threads;
  const Planes planes = planes_of(input.shape(), attributes);
  const BlockedPlaces places(input, attributes.block());
  const BlockedPlaces gradient_places = input_gradient.defined() ? BlockedPlaces(input_gradient, attributes.block()) : places;
  Sharing sharing{planes, places, gradient_places, OutputPlaces(input.shape(), attributes, /*positions_first=*/true), 1};
  const auto wide = [](const Tensor& tensor) {
    return tensor.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(tensor.raw());
  };
  const bool vectors = sharing.places.channels_last() && planes.channels % vector == 0 && planes.channels <= vector * cuda::warp_size &&
                       wide(input) && (!input_gradient.defined() || wide(input_gradient));
  if (sharing.places.channels_last()) sharing.lanes = lanes_for(vectors ? planes.channels / vector : planes.channels);
  const auto shape = [&](std::int64_t pixels_at_once) {
    const std::int64_t block_pixels = threads / sharing.lanes * pixels_at_once;
    const std::int64_t rows = std::clamp<std::int64_t>(sharing.planes.samples, 1, most_blocks);
    const std::int64_t columns = std::clamp<std::int64_t>((sharing.planes.pixels + block_pixels - 1) / block_pixels, 1, most_blocks / rows);
    return cuda::LaunchShape{dim3(static_cast<unsigned>(columns), static_cast<unsigned>(rows)), dim3(threads)};
  };
  if (!vectors) {
    if (planes.channels <= PixelTraversal<Stored, true>::kept * sharing.lanes)
      return body.template operator()<PixelTraversal<Stored, true>>(sharing, shape(1));
    return body.template operator()<PixelTraversal<Stored, false>>(sharing, shape(1));
  }
  // Samples, positions and places in a block follow each other without a gap.
  sharing.planes.pixels *= std::exchange(sharing.planes.samples, 1);
  sharing.output_places.positions_innermost = false;
  switch (sharing.lanes) {
    case 1: return body.template operator()<VectorTraversal<Stored, 1>>(sharing, shape(1));
    case 2: return body.template operator()<VectorTraversal<Stored, 2>>(sharing, shape(2));
    default: return body.template operator()<VectorTraversal<Stored, 4>>(sharing, shape(4));
  }
}

}  // namespace frit::ops
