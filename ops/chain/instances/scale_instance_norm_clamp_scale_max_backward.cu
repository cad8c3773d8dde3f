// The gradients of max over channels of clamp(instance_norm(input * scale)) * post_scale.

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max_backward.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// What the maximum of a pixel gets.
template <class T, class Index>
struct AtArgmax {
  const Index* argmax;  // (N, pixels), as the other
  const T* more;
  std::int64_t pixels;

  __device__ T operator()(T gradient, std::int64_t n, std::int64_t c, std::int64_t p) const {
    return argmax[n * pixels + p] == static_cast<Index>(c) ? gradient + more[n * pixels + p] : gradient;
  }
};

/// The sums over the batch of what the samples add to the channels' gradients.
template <class Stored>
struct BatchSums {
  ChannelResults<Stored, 3> results;
  const ChannelParts<3>* parts;  // (N, C)

  /// By a warp, the first of so many or another of them: some channels.
  __device__ void write(const Planes& planes, std::int64_t warp, std::int64_t warps, int lane) const {
    for (std::int64_t c = warp; c < planes.channels; c += warps) {
      ChannelParts<3> total;
      for (std::int64_t n = lane; n < planes.samples; n += cuda::warp_size) total = total + parts[n * planes.channels + c];
      total = cuda::warp_reduce(total);
      if (lane != 0) continue;
#pragma unroll
      for (int k = 0; k < 3; ++k) results.of[k].set(c, static_cast<Computed<Stored>>(total.values[k]));
    }
  }
};

/// A thread's pixels in write_pixels.
constexpr int pixels_at_once = 4;

/// The input's gradient, channels-last: a thread has 16 bytes of a pixel, of some pixels, all on their way at once. Reads and writes each
/// element once. The first row of blocks writes the sums over the batch instead. Deterministic.
template <class Stored>
__global__ void __launch_bounds__(cuda::default_threads, sizeof(Stored) < sizeof(float) ? 3 : 4)
    write_pixels(Stored* input_gradient, const Stored* input, GradientRules<Computed<Stored>> rules,
                 AtArgmax<Computed<Stored>, std::uint8_t> at_argmax, BatchSums<Stored> sums, Planes planes) {
  using T = Computed<Stored>;
  if (blockIdx.y == 0) {
    const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, warps = blockDim.x * blockDim.y / cuda::warp_size;
    const unsigned warp = thread / cuda::warp_size;
    if (warp < warps) sums.write(planes, blockIdx.x * warps + warp, gridDim.x * warps, static_cast<int>(thread % cuda::warp_size));
    return;
  }
  constexpr int width = cuda::vector_width<Stored>;
  using Elements = cuda::Vector<Stored, width>;
  const auto pixels = static_cast<unsigned>(planes.pixels), channels = static_cast<unsigned>(planes.channels), rows = blockDim.y;
  const unsigned c = threadIdx.x * width, begin = blockIdx.x * pixels_at_once * rows, first = begin + threadIdx.y;
  // The last samples first: what their maxima get was written last, and is in the cache.
  for (std::int64_t n = planes.samples - blockIdx.y; n >= 0; n -= gridDim.y - 1) {
    const Stored* const from = input + n * planes.pixels * channels;
    Stored* const to = input_gradient + n * planes.pixels * channels;
    const std::uint8_t* const argmax = at_argmax.argmax + n * planes.pixels;
    const T* const more = at_argmax.more + n * planes.pixels;
    const auto write = [&]<bool whole>() {
      Elements x[pixels_at_once];
      std::uint8_t index[pixels_at_once];
      T addend[pixels_at_once];
#pragma unroll
      for (unsigned u = 0; u < pixels_at_once; ++u) {
        const unsigned p = first + u * rows;
        if (!whole && p >= pixels) continue;
        x[u] = load_streamed<Elements>(from + (p * channels + c));
        index[u] = argmax[p];
        addend[u] = more[p];
      }
      const RuleVector<T, width> rule(rules, n * channels + c);
#pragma unroll
      for (unsigned u = 0; u < pixels_at_once; ++u) {
        const unsigned p = first + u * rows, own = index[u] - c;
        if (!whole && p >= pixels) continue;
        Elements result;
#pragma unroll
        for (unsigned j = 0; j < width; ++j) {
          const T spread = rule.spread(j, rule.difference(j, convert<T>(x[u][j])));
          result[j] = convert<Stored>(own == j ? spread + addend[u] : spread);
        }
        store_streamed(to + (p * channels + c), result);
      }
    };
    if (begin + pixels_at_once * rows <= pixels) {
      write.template operator()<true>();
    } else {
      write.template operator()<false>();
    }
  }
}

/// Says whether it has written the sums over the batch on the way.
template <class Stored, class Index>
bool write_input_gradient(const Tensor& tensor, const InstanceGradientCall<Stored, Index>& call,
                          const InstanceGradients<Computed<Stored>>& gradients, const BatchSums<Stored>& sums, cudaStream_t stream) {
  const Planes planes = call.planes;
  const Places gradient_places(tensor, planes);
  auto* const dx = tensor.data<Stored>();
  const auto& rules = gradients.finalize.rules;
  const AtArgmax<Computed<Stored>, Index> at_argmax{call.argmax, gradients.more, planes.pixels};
  if constexpr (std::is_same_v<Index, std::uint8_t>) {
    if (channels_in_vectors<Stored>(planes, call.places, gradient_places, call.elements, dx)) {
      const dim3 block = channel_vector_block<Stored>(planes.channels);
      const int block_pixels = static_cast<int>(block.y) * pixels_at_once;
      const auto blocks = static_cast<unsigned>((planes.pixels + block_pixels - 1) / block_pixels);
      const unsigned rows = std::min<unsigned>(sample_blocks(planes), UINT16_MAX - 1) + 1;
      cuda::launch(write_pixels<Stored>, {dim3(blocks, rows), block}, stream, dx, call.elements, rules, at_argmax, sums, planes);
      return true;
    }
  }
  launch_write_elements(dx, static_cast<Computed<Stored>*>(nullptr), call.elements, rules, at_argmax, planes, call.places, gradient_places,
                        stream);
  return false;
}

template <class Stored, class Index>
void run_typed(const KernelContext& context) {
  const InstanceGradientCall<Stored, Index> call(context, context.as<ChainAttributes>(), 1);
  const InstanceGradientScratch scratch(call.planes, Computed<Stored>());
  const InstanceGradients<Computed<Stored>> gradients(context, scratch, call.planes);
  const Tensor& input_gradient = context.outputs[0];
  const BatchSums<Stored> sums{ChannelResults<Stored, 3>(context), gradients.finalize.parts};
  Planes planes = call.planes;
  if (planes.samples * planes.channels * planes.pixels > 0) {
    launch_argmax_sums(gradients, call, context, scratch);
    if (input_gradient.defined() && write_input_gradient(input_gradient, call, gradients, sums, context.stream)) return;
  }
  if (planes.pixels == 0) planes.samples = 0;
  launch_sum_over_batch<Stored>(context, gradients.finalize.parts, {}, planes);
}

/// inputs (gradient, input, scale, post_scale, argmax, mean, rstd, argmax_input)
/// outputs (input_gradient, scale_gradient, post_scale_gradient, input_gradient_sum)
void run(const KernelContext& call) {
  dispatch_floating_and_halves(call.inputs[1].dtype(), [&]<class Stored>() {
    dispatch_argmax(call.inputs[4].dtype(), [&]<class Index>() { run_typed<Stored, Index>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  const Planes planes(call.shape(1));
  return (call.inputs[1].dtype == DType::f64 ? InstanceGradientScratch(planes, double()) : InstanceGradientScratch(planes, float()))
      .all.bytes();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(scale_instance_norm_clamp_scale_max_backward) {
  using namespace frit::ops;
  registry.add_cuda("scale_instance_norm_clamp_scale_max_backward",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {1}, .any_layout_outputs = {0}});
}
