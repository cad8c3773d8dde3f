// clamp(ScaledSigmoid(logsumexp(input over channels)) - bias) and its gradients.

#include <utility>

#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp_pairs_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using cuda::default_threads;
using ChainAttributes = LogsumexpSigmoidScaleSubtractClampAttributes;

/// 1 / x for x >= 1 or 0, within a unit in the last place.
__device__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ double reciprocal(double x) { return 1 / x; }

template <class T>
__device__ T sigmoid_of_shifted(T y) {
  return reciprocal(1 + fast_exponential(-(y + ScaledSigmoid<T>::shift)));
}

/// Reads the input once and writes a number a pixel. Deterministic.
template <class Walk, class Stored>
__global__ void __launch_bounds__(default_threads, Walk::blocks_wanted)
    reduce_channels(Stored* output /* (N, image) */, const Stored* input, Parameter<Stored> bias, Clamp<ComputeType<Stored>> clamp,
                    const __grid_constant__ Sharing sharing) {
  using T = ComputeType<Stored>;
  const Walk walk(input, sharing);
  const T subtracted = bias[0];
  const typename Walk::Places place_of(sharing);
  walk.run([&](auto n, auto p) { return place_of(n, p); },
           [&](auto place, const PixelSum<Stored>& sums) {
             const T y = sums.value();
             const T result = clamp(ScaledSigmoid<T>::value(y, sigmoid_of_shifted(y)) - subtracted);
             if (place >= 0) output[place] = convert<Stored>(result);
             return result;
           },
           nullptr);
}

/// The gradient of a pixel's output; `inside` unless it is cut off.
template <class T>
struct PixelGradient {
  bool inside;
  T value;
};

/// Finds the softmax anew: reads the input and the output's gradient once and writes the input's gradient, which may lie over the input,
/// and a sum a block. Deterministic.
template <class Walk, class Stored>
__global__ void __launch_bounds__(default_threads, Walk::blocks_wanted)
    carry_back(Stored* input_gradient /* or null */, double* block_sums, const Stored* gradient /* (N, image) */, const Stored* input,
               Parameter<Stored> bias, Clamp<ComputeType<Stored>> clamp, const __grid_constant__ Sharing sharing) {
  using T = ComputeType<Stored>;
  __shared__ double shared[cuda::warp_size];
  const Walk walk(input, sharing);
  const T subtracted = bias[0];
  const typename Walk::Places place_of(sharing);
  double total = 0;
  walk.run(
      [&](auto n, auto p) {
        const auto place = place_of(n, p);
        return place < 0 ? PixelGradient<T>{false, 0} : PixelGradient<T>{true, convert<T>(gradient[place])};
      },
      [&](const PixelGradient<T>& incoming, const PixelSum<Stored>& sums) {
        if (!incoming.inside) return T(0);
        const T y = sums.value(), sigmoid = sigmoid_of_shifted(y);
        const T passed = clamp.gradient(incoming.value, ScaledSigmoid<T>::value(y, sigmoid) - subtracted);
        total += static_cast<double>(passed);
        return ScaledSigmoid<T>::gradient(passed, y, sigmoid) * reciprocal(sums.sum);
      },
      [&](auto& share, auto n, auto p, T shift, T factor) {
        if (input_gradient != nullptr) walk.store(share, shift, factor, input_gradient, sharing.gradient_places, n, p);
      });
  total = cuda::block_reduce(total, shared);
  if (threadIdx.x == 0) block_sums[blockIdx.y * gridDim.x + blockIdx.x] = total;
}

constexpr int sum_threads = 1024;

/// One block. Deterministic.
template <class Stored>
__global__ void __launch_bounds__(sum_threads) negate_sum(Parameter<Stored> bias_gradient, const double* block_sums, int blocks) {
  __shared__ double shared[cuda::warp_size];
  double total = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += sum_threads) total += block_sums[i];
  total = cuda::block_reduce(total, shared);
  if (threadIdx.x == 0) bias_gradient.set(0, static_cast<ComputeType<Stored>>(-total));
}

constexpr std::int64_t most_blocks = 8192;

/// Calls body.operator()<Walk>(sharing, launch shape) with what suits the channels and the layout.
template <class Stored, class Body>
void dispatch_walk(const Tensor& input, const Tensor& input_gradient, const ChainAttributes& attributes, const Body& body) {
  constexpr int vector = cuda::vector_width<Stored>;
  const Planes planes = planes_of(input.shape(), attributes);
  const BlockedPlaces places(input, planes, attributes.block());
  const BlockedPlaces gradient_places = input_gradient.defined() ? BlockedPlaces(input_gradient, planes, attributes.block()) : places;
  Sharing sharing{planes, places, gradient_places, OutputPlaces(input.shape(), attributes, /*cells_first=*/true), 1};
  const auto wide = [](const Tensor& tensor) {
    return tensor.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(tensor.raw());
  };
  const bool vectors = sharing.places.channels_last() && planes.channels % vector == 0 && planes.channels <= vector * cuda::warp_size &&
                       wide(input) && (!input_gradient.defined() || wide(input_gradient));
  if (sharing.places.channels_last()) sharing.lanes = lanes_for(vectors ? planes.channels / vector : planes.channels);
  const auto shape = [&](std::int64_t pixels_at_once) {
    const std::int64_t block_pixels = default_threads / sharing.lanes * pixels_at_once;
    const std::int64_t rows = std::clamp<std::int64_t>(sharing.planes.samples, 1, most_blocks);
    const std::int64_t columns = std::clamp<std::int64_t>((sharing.planes.pixels + block_pixels - 1) / block_pixels, 1, most_blocks / rows);
    return cuda::LaunchShape{dim3(static_cast<unsigned>(columns), static_cast<unsigned>(rows)), dim3(default_threads)};
  };
  if (!vectors) {
    if (planes.channels <= PixelWalk<Stored, true>::kept * sharing.lanes)
      return body.template operator()<PixelWalk<Stored, true>>(sharing, shape(1));
    return body.template operator()<PixelWalk<Stored, false>>(sharing, shape(1));
  }
  // Samples, cells and places in a block follow each other without a gap.
  sharing.planes.pixels *= std::exchange(sharing.planes.samples, 1);
  sharing.output_places.cells_inside = false;
  if constexpr (is_half_type<Stored>) {
    using Pairs = PairWalk<Stored>;
    if (planes.channels == Pairs::channels && RecurringPlaces::fits(sharing.output_places, Pairs::rows))
      return body.template operator()<Pairs>(sharing, shape(Pairs::at_once));
  }
  switch (sharing.lanes) {
    case 1: return body.template operator()<VectorWalk<Stored, 1>>(sharing, shape(1));
    case 2: return body.template operator()<VectorWalk<Stored, 2>>(sharing, shape(2));
    default: return body.template operator()<VectorWalk<Stored, 4>>(sharing, shape(4));
  }
}

/// inputs (input, bias)
void run_forward(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (!output.defined() || output.elements() == 0) return;
  dispatch_stored(input.dtype(), [&]<class Stored>() {
    const auto& attributes = call.as<ChainAttributes>();
    dispatch_walk<Stored>(input, {}, attributes, [&]<class Walk>(const Sharing& sharing, const cuda::LaunchShape& shape) {
      cuda::launch(reduce_channels<Walk, Stored>, shape, call.stream, output.data<Stored>(), input.data<Stored>(),
                   Parameter<Stored>(call.inputs[1]), Clamp<ComputeType<Stored>>(attributes.clamp()), sharing);
    });
  });
}

/// inputs (gradient, input, bias), outputs (input_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  const Tensor &input = call.inputs[1], &input_gradient = call.outputs[0], &bias_gradient = call.outputs[1];
  auto* const block_sums = reinterpret_cast<double*>(call.scratch.data());
  dispatch_stored(input.dtype(), [&]<class Stored>() {
    const auto& attributes = call.as<ChainAttributes>();
    dispatch_walk<Stored>(input, input_gradient, attributes, [&]<class Walk>(const Sharing& sharing, const cuda::LaunchShape& shape) {
      cuda::launch(carry_back<Walk, Stored>, shape, call.stream, data_or_null<Stored>(input_gradient), block_sums,
                   call.inputs[0].data<Stored>(), input.data<Stored>(), Parameter<Stored>(call.inputs[2]),
                   Clamp<ComputeType<Stored>>(attributes.clamp()), sharing);
      if (!bias_gradient.defined()) return;
      cuda::launch(negate_sum<Stored>, {dim3(1), dim3(sum_threads)}, call.stream, Parameter<Stored>(bias_gradient), block_sums,
                   static_cast<int>(shape.grid.x * shape.grid.y));
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(logsumexp_sigmoid_scale_subtract_clamp) {
  using namespace frit::ops;
  registry.add_cuda("logsumexp_sigmoid_scale_subtract_clamp", {.run = run_forward, .halves = true, .any_layout_inputs = {0}});
  registry.add_cuda("logsumexp_sigmoid_scale_subtract_clamp_backward",
                    {.run = run_backward,
                     .halves = true,
                     .scratch = [](const InferContext&) { return static_cast<std::size_t>(most_blocks) * sizeof(double); },
                     .any_layout_inputs = {1},
                     .any_layout_outputs = {0}});
}
