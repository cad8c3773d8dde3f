// The gradients of max over channels of clamp(instance_norm(input * scale)) * post_scale.

#include "frit/ops/fused/held_gradient_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

template <class Stored, class Winner>
using Call = InstanceGradientCall<Stored, Winner>;

/// How the pixels of a sample are dealt out for the sums: a block adds up a chunk of them for `lanes` channels.
struct WinnerSplit {
  static constexpr std::int64_t chunk_pixels = 2048;
  std::int64_t chunks, tiles;
  int lanes;

  explicit WinnerSplit(const Planes& planes)
      : chunks((planes.pixels + chunk_pixels - 1) / chunk_pixels), lanes(lanes_for(planes.channels)) {
    tiles = (planes.channels + lanes - 1) / lanes;
  }
};

/// One block a chunk of pixels and `lanes` channels. A thread first finds the terms of a pixel, from the winner alone, and then adds up
/// those of one channel in the block's tile of pixels. Reads the small tensors, and one element a pixel of the input. Deterministic.
template <class Stored, class Winner>
__global__ void sum_over_winners(InstanceSums* partials /* (N, chunks, C) */, Call<Stored, Winner> call, WinnerSplit split,
                                 std::int64_t items) {
  using T = ComputeType<Stored>;
  __shared__ PixelTerms<T> terms[cuda::default_threads];
  __shared__ InstanceSums shared[cuda::default_threads];
  const Planes planes = call.planes;
  const int lane = static_cast<int>(threadIdx.x) % split.lanes, row = static_cast<int>(threadIdx.x) / split.lanes;
  const int rows = cuda::default_threads / split.lanes;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t chunk = item % split.chunks, tile = item / split.chunks % split.tiles, n = item / split.chunks / split.tiles;
    const std::int64_t c = tile * split.lanes + lane, end = min(planes.pixels, (chunk + 1) * split.chunk_pixels);
    InstanceSums sums;
    for (std::int64_t first = chunk * split.chunk_pixels; first < end; first += cuda::default_threads) {
      const std::int64_t p = first + threadIdx.x;
      PixelTerms<T> mine{0, 0, 0, -1};
      if (p < end) {
        mine.channel = static_cast<std::int32_t>(call.winners[n * planes.pixels + p]);
        const InstanceMap<T> map = call.map(n, mine.channel);
        const T g = convert<T>(call.gradient[n * planes.pixels + p]);
        const T normalized = map.normalized(convert<T>(call.input[call.places(n, mine.channel, p)]));
        mine.entering = call.entering(map, g, true, normalized);
        mine.product = mine.entering * normalized;
        mine.clamped_product = g * call.clamp(normalized);
      }
      __syncthreads();
      terms[threadIdx.x] = mine;
      __syncthreads();
      T gradient = 0, product = 0, post_scale = 0;
      for (int i = row; i < cuda::default_threads; i += rows) {
        if (terms[i].channel != c) continue;
        gradient += terms[i].entering;
        product += terms[i].product;
        post_scale += terms[i].clamped_product;
      }
      sums = sums + InstanceSums{static_cast<double>(gradient), static_cast<double>(product), static_cast<double>(post_scale)};
    }
    sums = sum_rows(sums, split.lanes, shared);
    if (row == 0 && c < planes.channels) partials[(n * split.chunks + chunk) * planes.channels + c] = sums;
    __syncthreads();
  }
}

/// One warp a channel of a sample: adds the partial sums. Deterministic.
template <class Stored, class Winner>
__global__ void close_instances(InstanceSums* sums /* (N, C) */, InstanceGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                const InstanceSums* partials /* (N, chunks, C) */, Call<Stored, Winner> call, std::int64_t chunks) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const std::int64_t channels = call.planes.channels;
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < call.planes.samples * channels;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t n = slice / channels, c = slice % channels;
    const auto map = call.map(n, c);
    InstanceSums total;
    for (std::int64_t chunk = lane; chunk < chunks; chunk += cuda::warp_size) total = total + partials[(n * chunks + chunk) * channels + c];
    total = cuda::warp_reduce(total);
    const double unscaled = unscaled_product(call, map, n, c, lane);
    if (lane != 0) continue;
    const auto scale = convert<ComputeType<Stored>>(call.scale[c]);
    rules[slice] = instance_gradient(map, total, scale, call.rstds[slice], static_cast<double>(call.planes.pixels));
    sums[slice] = scale_sums(map, total, unscaled, scale, call.rstds[slice], call.eps);
  }
}

/// One element a thread, in the order of the input's memory. Reads and writes each element once. Deterministic.
template <class Stored, class Winner>
__global__ void write_input_gradient(Stored* input_gradient, const InstanceGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                     Call<Stored, Winner> call, ElementOrder order) {
  using T = ComputeType<Stored>;
  const Planes planes = call.planes;
  for (std::int64_t n = blockIdx.y; n < planes.samples; n += gridDim.y) {
    for (std::int64_t i = cuda::first_item(); i < call.places.sample; i += cuda::item_step()) {
      std::int64_t c, p;
      order.locate(i, c, p);
      const InstanceGradient<T> rule = rules[n * planes.channels + c];
      const std::int64_t pixel = n * planes.pixels + p;
      const T x = convert<T>(call.input[n * call.places.sample + i]), g = convert<T>(call.gradient[pixel]);
      const T entering = call.entering(rule.map, g, call.winners[pixel] == static_cast<Winner>(c), rule.map.normalized(x));
      input_gradient[call.gradient_places(n, c, p)] = convert<Stored>(rule.spread(x) + entering * rule.by_entering);
    }
  }
}

/// One warp a channel: its sums over the batch. Deterministic.
template <class Stored>
__global__ void sum_over_batch(Stored* scale_gradient, Stored* post_scale_gradient, const InstanceSums* sums /* (N, C) */, Planes planes) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  for (std::int64_t c = cuda::first_item() / cuda::warp_size; c < planes.channels; c += cuda::item_step() / cuda::warp_size) {
    InstanceSums total;
    for (std::int64_t n = lane; n < planes.samples; n += cuda::warp_size) total = total + sums[n * planes.channels + c];
    total = cuda::warp_reduce(total);
    if (lane != 0) continue;
    if (scale_gradient != nullptr) scale_gradient[c] = convert<Stored>(static_cast<ComputeType<Stored>>(total.product));
    if (post_scale_gradient != nullptr) post_scale_gradient[c] = convert<Stored>(static_cast<ComputeType<Stored>>(total.post_scale));
  }
}

/// The parts of the scratch memory.
struct Scratch {
  std::size_t sums, partials, rules;

  Scratch(const Planes& planes, std::size_t rule_bytes)
      : sums(aligned(planes.samples * planes.channels, sizeof(InstanceSums))),
        partials(aligned(planes.samples * planes.channels * WinnerSplit(planes).chunks, sizeof(InstanceSums))),
        rules(aligned(planes.samples * planes.channels, rule_bytes)) {}
  std::size_t total() const { return partials + sums + rules; }

 private:
  static std::size_t aligned(std::int64_t count, std::size_t size) { return (static_cast<std::size_t>(count) * size + 63) / 64 * 64; }
};

/// Two steps over each part of the batch, of which the second finds in the cache what the first looked at.
template <class Stored, class Winner>
void walk_twice(const KernelContext& context, Call<Stored, Winner> call, const Scratch& scratch) {
  using T = ComputeType<Stored>;
  const Tensor& input_gradient = context.outputs[0];
  const Planes planes = call.planes;
  std::byte* const memory = context.scratch.data();
  auto* const partials = reinterpret_cast<InstanceSums*>(memory + scratch.sums);
  auto* const rules = reinterpret_cast<InstanceGradient<T>*>(memory + scratch.sums + scratch.partials);
  auto* sums = reinterpret_cast<InstanceSums*>(memory);
  Stored* dx = data_or_null<Stored>(input_gradient);
  const WinnerSplit split(planes);
  const std::int64_t part = samples_in_cache(context.inputs[1]);
  for (std::int64_t n = 0; n < planes.samples; n += part) {
    call.planes.samples = std::min(part, planes.samples - n);
    const std::int64_t slices = call.planes.samples * planes.channels, items = call.planes.samples * split.chunks * split.tiles;
    if (items > 0) {
      cuda::launch(sum_over_winners<Stored, Winner>, cuda::loop_shape(items * cuda::default_threads), context.stream, partials, call, split,
                   items);
    }
    cuda::launch(close_instances<Stored, Winner>, cuda::loop_shape(slices * cuda::warp_size), context.stream, sums, rules, partials, call,
                 split.chunks);
    if (dx != nullptr && planes.pixels > 0) {
      cuda::launch(write_input_gradient<Stored, Winner>, sample_loop_shape(call.planes.samples, call.places.sample), context.stream, dx,
                   rules, call, ElementOrder(planes, call.places.channels_last()));
      dx += part * call.places.sample;
    }
    sums += part * planes.channels;
    call.skip(part);
  }
}

/// One walk, where the device has clusters and the samples fit into them; false if not.
template <class Stored, class Winner>
bool hold_samples(const KernelContext& context, const Call<Stored, Winner>& call) {
  if constexpr (std::is_same_v<Stored, double> || !std::is_same_v<Winner, std::uint8_t>) {
    return false;
  } else {
    const Tensor& input_gradient = context.outputs[0];
    if (!input_gradient.defined() || call.gradient_places.pixel != call.places.pixel) return false;
    if (!cuda::aligned_for_vectors(input_gradient.raw())) return false;
    const auto held = HeldSamples::plan<Stored>(context.inputs[1], HeldGradient<Stored, true>::channel_bytes);
    if (held.blocks == 0) return false;
    return held.launch(call.places.channels_last() ? carry_back_held_samples<Stored, true> : carry_back_held_samples<Stored, false>,
                       context.stream, input_gradient.data<Stored>(), reinterpret_cast<InstanceSums*>(context.scratch.data()), call, held);
  }
}

template <class Stored, class Winner>
void run_typed(const KernelContext& context) {
  const auto& attributes = context.as<ChainAttributes>();
  const Tensor &input = context.inputs[1], &input_gradient = context.outputs[0];
  const Planes planes(input.shape());
  const Places places(input, planes);
  const Call<Stored, Winner> call{.planes = planes,
                                  .places = places,
                                  .gradient_places = input_gradient.defined() ? Places(input_gradient, planes) : places,
                                  .gradient = context.inputs[0].data<Stored>(),
                                  .input = input.data<Stored>(),
                                  .scale = context.inputs[2].data<Stored>(),
                                  .post_scale = context.inputs[3].data<Stored>(),
                                  .clamp = Clamp<ComputeType<Stored>>(attributes.clamp()),
                                  .eps = attributes.eps,
                                  .winners = context.inputs[4].data<Winner>(),
                                  .means = context.inputs[5].data<double>(),
                                  .rstds = context.inputs[6].data<double>()};
  if (!hold_samples(context, call)) walk_twice(context, call, Scratch(planes, sizeof(InstanceGradient<ComputeType<Stored>>)));
  const auto* const sums = reinterpret_cast<const InstanceSums*>(context.scratch.data());
  cuda::launch(sum_over_batch<Stored>, cuda::loop_shape(planes.channels * cuda::warp_size), context.stream,
               data_or_null<Stored>(context.outputs[1]), data_or_null<Stored>(context.outputs[2]), sums, planes);
}

/// inputs (gradient, input, scale, post_scale, winner, mean, rstd), outputs (input_gradient, scale_gradient, post_scale_gradient)
void run(const KernelContext& call) {
  dispatch_stored(call.inputs[1].dtype(), [&]<class Stored>() {
    dispatch_winner(call.inputs[4].dtype(), [&]<class Winner>() { run_typed<Stored, Winner>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  const bool wide = call.inputs[1].dtype == DType::f64;
  return Scratch(Planes(call.shape(1)), wide ? sizeof(InstanceGradient<double>) : sizeof(InstanceGradient<float>)).total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(scale_instance_norm_clamp_scale_max_backward) {
  using namespace frit::ops;
  registry.add_cuda("scale_instance_norm_clamp_scale_max_backward",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {1}, .any_layout_outputs = {0}});
}
