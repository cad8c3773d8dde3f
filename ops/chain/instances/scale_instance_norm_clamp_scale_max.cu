// max over channels of clamp(instance_norm(input * scale)) * post_scale, forward.

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/schedules/held_maxima.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// `lanes` neighbouring threads a pixel, which share its channels. Reads the input once. Deterministic.
template <class Stored, class Index>
__global__ void find_channel_maxima(MaximumOutputs<Stored, Index> outputs, const Stored* input,
                                    const InstanceMap<Computed<Stored>>* maps /* (N, C) */, Clamp<Computed<Stored>> clamp, Planes planes,
                                    Places places, int lanes) {
  using T = Computed<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % lanes, row = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t block_pixels = cuda::default_threads / lanes, pixel_step = gridDim.x * block_pixels;
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    const InstanceMap<T>* const sample_maps = maps + n * planes.channels;
    for (std::int64_t first = blockIdx.x * block_pixels; first < planes.pixels; first += pixel_step) {
      const std::int64_t p = first + row;
      ChannelMaximum<T> best{.channel = lane};
      if (p < planes.pixels) {
        const Stored* const x = input + places(n, 0, p);
#pragma unroll 4
        for (auto c = static_cast<std::int32_t>(lane); c < planes.channels; c += lanes) {
          const InstanceMap<T> map = sample_maps[c];
          best.take(clamp(map.normalized(convert<T>(x[c * places.channel]))) * map.post_scale, c);
        }
      }
      best.reduce(lanes);
      if (p >= planes.pixels || lane != 0) continue;
      outputs.write(n * planes.pixels + p, best, [&](std::int64_t c) { return input[places(n, c, p)]; });
    }
  }
}

/// Two passes over each part of the batch, of which the second finds it in the cache.
template <class Stored, class Index>
void in_two_passes(const KernelContext& call, MaximumOutputs<Stored, Index> outputs, FinalizeInstances<Stored> finalize,
                   const Clamp<Computed<Stored>>& clamp) {
  const Tensor& input = call.inputs[0];
  Planes planes(input.shape());
  const Places places(input, planes);
  const MapScratch scratch(planes, sizeof(InstanceMap<Computed<Stored>>));
  auto* const partials = reinterpret_cast<ShiftedSums*>(call.scratch.data());
  finalize.maps = reinterpret_cast<InstanceMap<Computed<Stored>>*>(call.scratch.data() + scratch.partials);
  const Stored* x = input.data<Stored>();
  const std::int64_t samples = planes.samples, part = samples_in_cache(input);
  const int lanes = places.channels_last() ? lanes_for(planes.channels) : 1;
  for (std::int64_t n = 0; n < samples; n += part) {
    planes.samples = std::min(part, samples - n);
    find_moments(x, SliceSplit(planes, places, planes.channels), partials, finalize, call.stream);
    if (planes.pixels > 0) {
      cuda::launch(find_channel_maxima<Stored, Index>, sample_loop_shape(planes.samples, planes.pixels * lanes), call.stream, outputs, x,
                   finalize.maps, clamp, planes, places, lanes);
    }
    x += part * places.sample;
    finalize.skip(part);
    outputs.skip(part * planes.pixels);
  }
}

/// One pass, where the device has clusters and the samples fit into them; false if not.
template <class Stored, bool channels_last>
bool hold_samples(const KernelContext& call, const MaximumOutputs<Stored, std::uint8_t>& outputs, const FinalizeInstances<Stored>& finalize,
                  const Clamp<Computed<Stored>>& clamp) {
  const Tensor& input = call.inputs[0];
  const auto held = WarpHeldSamples::plan<Stored>(input, HeldMaxima<Stored, channels_last, 0>::channel_bytes);
  if (held.blocks == 0) return false;
  constexpr int usual = 16;
  auto* const kernel = held.planes.channels == usual ? &find_maxima_of_held_samples<Stored, channels_last, usual>
                                                     : &find_maxima_of_held_samples<Stored, channels_last, 0>;
  return held.launch(kernel, call.stream, outputs, input.data<Stored>(), finalize, clamp, held);
}

template <class Stored, class Index>
void run_typed(const KernelContext& call) {
  const auto& attributes = call.as<ChainAttributes>();
  const MaximumOutputs<Stored, Index> outputs{data_or_null<Stored>(call.outputs[0]), data_or_null<Index>(call.outputs[1]),
                                              data_or_null<Stored>(call.outputs[4])};
  const FinalizeInstances<Stored> finalize{.channels = call.inputs[0].shape()[1],
                                           .eps = attributes.eps,
                                           .scale = Parameter<Stored>(call.inputs[1]),
                                           .post_scale = Parameter<Stored>(call.inputs[2]),
                                           .means = data_or_null<double>(call.outputs[2]),
                                           .rstds = data_or_null<double>(call.outputs[3]),
                                           .maps = nullptr};
  const Clamp<Computed<Stored>> clamp(attributes.clamp());
  if constexpr (!std::is_same_v<Stored, double> && std::is_same_v<Index, std::uint8_t>) {
    const bool contiguous = call.inputs[0].is_contiguous();
    if (contiguous ? hold_samples<Stored, false>(call, outputs, finalize, clamp)
                   : hold_samples<Stored, true>(call, outputs, finalize, clamp)) {
      return;
    }
  }
  in_two_passes(call, outputs, finalize, clamp);
}

/// inputs (input, scale, post_scale), outputs (output, argmax, mean, rstd, argmax_input)
void run(const KernelContext& call) {
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class Stored>() {
    dispatch_argmax(argmax_dtype(call.inputs[0].shape()[1]), [&]<class Index>() { run_typed<Stored, Index>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  return MapScratch(Planes(call.shape(0)), call.inputs[0].dtype == DType::f64 ? sizeof(InstanceMap<double>) : sizeof(InstanceMap<float>))
      .total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  registry.add_cuda("scale_instance_norm_clamp_scale_max",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {0}});
}
