// max over channels of clamp(instance_norm(input * scale)) * post_scale, forward: a norm's statistics, and a pass over the input.

#include "frit/ops/chain/chain.h"
#include "frit/ops/chain/instances/scale_instance_norm_clamp_scale_max.cuh"
#include "frit/ops/chain/schedules/streamed_gradient.cuh"
#include "frit/ops/norm/norm.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// A thread an instance. `means` and `rstds` are the input's own, without eps.
template <class Stored>
__global__ void make_maps(InstanceMap<Computed<Stored>>* maps /* (N, C), as the others */, const double* means, const double* rstds,
                          FinalizeInstances<Stored> finalize, std::int64_t slices) {
  for (std::int64_t slice = cuda::first_item(); slice < slices; slice += cuda::item_step()) {
    const std::int64_t c = slice % finalize.channels;
    const double deviation = 1 / rstds[slice];
    maps[slice] =
        finalize.map(slice, DeviceMoments(means[slice], deviation * deviation), finalize.scale[c], finalize.post_scale[c], /*writes=*/true);
  }
}

/// A thread a pixel, which reads `width` channels at a time. Reads the input once. Deterministic.
template <class Stored, class Index, int width>
__global__ void __launch_bounds__(cuda::default_threads)
    find_channel_maxima(MaximumOutputs<Stored, Index> outputs, const Stored* input, const InstanceMap<Computed<Stored>>* maps /* (N, C) */,
                        Clamp<Computed<Stored>> clamp, Planes planes, Places places) {
  using T = Computed<Stored>;
  const auto channels = static_cast<std::int32_t>(planes.channels);
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    const InstanceMap<T>* const sample_maps = maps + n * channels;
    for (std::int64_t p = cuda::first_item(); p < planes.pixels; p += cuda::item_step()) {
      const Stored* const pixel = input + places(n, 0, p);
      ChannelMaximum<T> best;
#pragma unroll 4
      for (std::int32_t c = 0; c < channels; c += width) {
        const auto x = *reinterpret_cast<const cuda::Vector<Stored, width>*>(pixel + c * places.channel);
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const InstanceMap<T> map = sample_maps[c + j];
          best.take(clamp(map.normalized(convert<T>(x[j]))) * map.post_scale, c + j);
        }
      }
      const Stored element = outputs.argmax_input != nullptr ? pixel[best.channel * places.channel] : Stored(0);
      outputs.write(n * planes.pixels + p, best.value, best.channel, convert<T>(element));
    }
  }
}

NormGeometry geometry_of(const Shape& input) { return norm_geometry(input, InstanceNormAttributes()); }

StatisticsScratch scratch_of(const NormGeometry& norm, Layout layout, bool wide) {
  return {cuda_norm_scratch(norm, layout), norm.slices, norm.slices, wide ? sizeof(InstanceMap<double>) : sizeof(InstanceMap<float>)};
}

template <class Stored, class Index>
void run_typed(const KernelContext& call) {
  using T = Computed<Stored>;
  const Tensor& input = call.inputs[0];
  const auto& attributes = call.as<ChainAttributes>();
  const Planes planes(input.shape());
  const Places places(input, planes);
  const NormGeometry geometry = geometry_of(input.shape());
  const std::int64_t slices = planes.samples * planes.channels;
  if (slices == 0) return;
  const StatisticsScratch scratch = scratch_of(geometry, input.layout(), std::is_same_v<T, double>);
  auto *const means = scratch_part<double>(call, scratch.means), *const rstds = scratch_part<double>(call, scratch.rstds);
  auto* const maps = scratch_part<InstanceMap<T>>(call, scratch.maps);
  find_cuda_statistics(call, geometry, /*eps=*/0, means, rstds);
  const FinalizeInstances<Stored> finalize(call, planes.channels, attributes.eps, /*first=*/1);
  cuda::launch(make_maps<Stored>, cuda::loop_shape(slices), call.stream, maps, means, rstds, finalize, slices);
  if (planes.pixels == 0) return;
  constexpr int vector = cuda::vector_width<Stored>;
  const bool vectors = places.channels_last() && planes.channels % vector == 0 && cuda::aligned_for_vectors(input.raw());
  cuda::launch(vectors ? find_channel_maxima<Stored, Index, vector> : find_channel_maxima<Stored, Index, 1>,
               sample_loop_shape(planes.samples, planes.pixels), call.stream, MaximumOutputs<Stored, Index>::of(call), input.data<Stored>(),
               maps, Clamp<T>(attributes.clamp()), planes, places);
}

/// inputs (input, scale, post_scale), outputs (output, argmax, mean, rstd, argmax_input)
void run(const KernelContext& call) {
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class Stored>() {
    dispatch_argmax(argmax_dtype(call.inputs[0].shape()[1]), [&]<class Index>() { run_typed<Stored, Index>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  return scratch_of(geometry_of(call.shape(0)), call.input_layout(0), call.inputs[0].dtype == DType::f64).all.bytes();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(scale_instance_norm_clamp_scale_max) {
  using namespace frit::ops;
  registry.add_cuda("scale_instance_norm_clamp_scale_max",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {0}});
}
