// The gradients of max over channels of clamp(instance_norm(input * scale)) * post_scale.

#include "frit/ops/fused/scale_instance_norm_clamp_scale_max_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = ScaleInstanceNormClampScaleMaxAttributes;

/// What one channel of one sample, or a part of it, adds to the gradients.
struct InstanceSums {
  double gradient = 0, product = 0;  ///< of the gradient that enters the norm; of it times (input * scale - mean)
  double post_scale = 0;

  __device__ friend InstanceSums operator+(const InstanceSums& a, const InstanceSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.post_scale + b.post_scale};
  }
};

/// What one pixel adds to the gradients of its winning channel.
template <class T>
struct PixelTerms {
  T entering, centered, clamped_product;
  std::int32_t channel;
};

/// The input's gradient in one channel of one sample: entering * by_entering + centered * by_centered + offset.
template <class T>
struct InstanceGradient {
  InstanceMap<T> map;
  T by_entering, by_centered, offset;
};

/// What all kernels below read.
template <class Stored, class Winner>
struct Call {
  using T = ComputeType<Stored>;

  Planes planes;
  Places places, gradient_places;  // of the input, of its gradient
  const Stored *gradient, *input, *scale, *post_scale;
  Clamp<T> clamp;
  double eps;
  const Winner* winners;
  const double *means, *rstds;

  __device__ InstanceMap<T> map(std::int64_t n, std::int64_t c) const {
    const std::int64_t slice = n * planes.channels + c;
    return {convert<T>(scale[c]), convert<T>(post_scale[c]), means[slice], rstds[slice]};
  }
  /// The gradient that enters the norm. It is 0 but at the winner, which matters where that meets an infinity or NaN.
  __device__ T entering(const InstanceMap<T>& map, T pixel_gradient, bool wins, T normalized) const {
    return clamp.gradient((wins ? pixel_gradient : T(0)) * map.post_scale, normalized);
  }
};

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

/// One block a chunk of pixels and `lanes` channels. A thread first finds the terms of a pixel, from the winner alone, and then adds up those
/// of one channel in the block's tile of pixels. Reads the small tensors, and one element a pixel of the input. Deterministic.
template <class Stored, class Winner>
__global__ void sum_over_winners(InstanceSums* partials /* (N, chunks, C) */, Call<Stored, Winner> call, WinnerSplit split, std::int64_t items) {
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
        mine.centered = map.centered(convert<T>(call.input[call.places(n, mine.channel, p)]));
        const T normalized = mine.centered * map.rstd;
        mine.entering = call.entering(map, g, true, normalized);
        mine.clamped_product = g * call.clamp(normalized);
      }
      __syncthreads();
      terms[threadIdx.x] = mine;
      __syncthreads();
      T gradient = 0, product = 0, post_scale = 0;
      for (int i = row; i < cuda::default_threads; i += rows) {
        if (terms[i].channel != c) continue;
        gradient += terms[i].entering;
        product += terms[i].entering * terms[i].centered;
        post_scale += terms[i].clamped_product;
      }
      sums = sums + InstanceSums{static_cast<double>(gradient), static_cast<double>(product), static_cast<double>(post_scale)};
    }
    sums = sum_rows(sums, split.lanes, shared);
    if (row == 0 && c < planes.channels) partials[(n * split.chunks + chunk) * planes.channels + c] = sums;
    __syncthreads();
  }
}

/// A warp's sum over a channel of entering * (x - mean of x), for a scale of 0, where the sums over the winners do not tell it.
template <class Stored, class Winner>
__device__ double unscaled_product(const Call<Stored, Winner>& call, const InstanceMap<ComputeType<Stored>>& map, std::int64_t n,
                                   std::int64_t c, int lane) {
  using T = ComputeType<Stored>;
  const Stored* const x = call.input + call.places(n, c, 0);
  const auto centered = [&](std::int64_t p) { return static_cast<double>(convert<T>(x[p * call.places.pixel])) - static_cast<double>(convert<T>(x[0])); };
  double total = 0, gradient_sum = 0, product = 0;
  for (std::int64_t p = lane; p < call.planes.pixels; p += cuda::warp_size) {
    const std::int64_t place = n * call.planes.pixels + p;
    const T element = convert<T>(x[p * call.places.pixel]), g = convert<T>(call.gradient[place]);
    const double entering = static_cast<double>(call.entering(map, g, call.winners[place] == static_cast<Winner>(c), map.normalized(element)));
    total += centered(p);
    gradient_sum += entering;
    product += entering * centered(p);
  }
  const double mean = cuda::warp_reduce(total) / static_cast<double>(call.planes.pixels);
  return cuda::warp_reduce(product) - cuda::warp_reduce(gradient_sum) * mean;
}

/// One warp a channel of a sample: adds the partial sums, replaces `product` by what the scale's gradient gets, and makes the rule of the
/// input's gradient: dx = (entering - mean(entering) - normalized * mean(entering * normalized)) * rstd * scale. Deterministic.
template <class Stored, class Winner>
__global__ void close_instances(InstanceSums* sums /* (N, C) */, InstanceGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                const InstanceSums* partials /* (N, chunks, C) */, Call<Stored, Winner> call, std::int64_t chunks) {
  using T = ComputeType<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const Planes planes = call.planes;
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < planes.samples * planes.channels;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t n = slice / planes.channels, c = slice % planes.channels;
    const InstanceMap<T> map = call.map(n, c);
    const double scale = static_cast<double>(map.scale), rstd = call.rstds[slice], pixels = static_cast<double>(planes.pixels);
    InstanceSums total;
    for (std::int64_t chunk = lane; chunk < chunks; chunk += cuda::warp_size) {
      total = total + partials[(n * chunks + chunk) * planes.channels + c];
    }
    const double zero = 0 * static_cast<double>(map.post_scale);
    total = cuda::warp_reduce(total) + InstanceSums{zero, zero, 0 * rstd};
    rules[slice] = {map, static_cast<T>(rstd * scale), static_cast<T>(-rstd * rstd * rstd * (total.product / pixels) * scale),
                    static_cast<T>(-rstd * (total.gradient / pixels) * scale)};
    // The norm undoes the scale but for eps: the sum of dz * x, where z = x * scale, is eps rstd^3 times that of entering * (x - mean of x).
    const double product = scale == 0 && planes.pixels > 0 ? unscaled_product(call, map, n, c, lane) : total.product / scale;
    total.product = call.eps * rstd * rstd * rstd * (planes.pixels > 0 ? product : 0);
    if (lane == 0) sums[slice] = total;
  }
}

/// One element a thread, in the order of the input's memory. Reads and writes each element once. Deterministic.
template <class Stored, class Winner>
__global__ void write_input_gradient(Stored* input_gradient, const InstanceGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                     Call<Stored, Winner> call) {
  using T = ComputeType<Stored>;
  const Planes planes = call.planes;
  const std::int64_t count = planes.samples * planes.channels * planes.pixels;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t n = i / call.places.sample, rest = i - n * call.places.sample;
    const bool channels_last = call.places.pixel != 1;
    const std::int64_t inner = channels_last ? planes.channels : planes.pixels, outer_index = rest / inner, inner_index = rest - outer_index * inner;
    const std::int64_t c = channels_last ? inner_index : outer_index, p = channels_last ? outer_index : inner_index;
    const InstanceGradient<T> rule = rules[n * planes.channels + c];
    const std::int64_t pixel = n * planes.pixels + p;
    const T centered = rule.map.centered(convert<T>(call.input[i]));
    const T entering = call.entering(rule.map, convert<T>(call.gradient[pixel]), call.winners[pixel] == static_cast<Winner>(c), centered * rule.map.rstd);
    input_gradient[call.gradient_places(n, c, p)] = convert<Stored>(entering * rule.by_entering + centered * rule.by_centered + rule.offset);
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
  std::size_t partials, sums, rules;

  Scratch(const Planes& planes, std::size_t rule_bytes)
      : partials(aligned(planes.samples * planes.channels * WinnerSplit(planes).chunks, sizeof(InstanceSums))),
        sums(aligned(planes.samples * planes.channels, sizeof(InstanceSums))),
        rules(aligned(planes.samples * planes.channels, rule_bytes)) {}
  std::size_t total() const { return partials + sums + rules; }

 private:
  static std::size_t aligned(std::int64_t count, std::size_t size) { return (static_cast<std::size_t>(count) * size + 63) / 64 * 64; }
};

/// Two steps over each part of the batch, of which the second finds in the cache what the first looked at.
template <class Stored, class Winner>
void run_typed(const KernelContext& context) {
  using T = ComputeType<Stored>;
  const auto& attributes = context.as<ChainAttributes>();
  const Tensor &input = context.inputs[1], &input_gradient = context.outputs[0];
  const Planes planes(input.shape());
  const Places places(input, planes);
  const Scratch scratch(planes, sizeof(InstanceGradient<T>));
  std::byte* const memory = context.scratch.data();
  auto* const partials = reinterpret_cast<InstanceSums*>(memory);
  auto* const sums = reinterpret_cast<InstanceSums*>(memory + scratch.partials);
  auto* const rules = reinterpret_cast<InstanceGradient<T>*>(memory + scratch.partials + scratch.sums);
  const WinnerSplit split(planes);
  const std::int64_t part = samples_in_cache(input);
  for (std::int64_t n = 0; n < planes.samples; n += part) {
    Call<Stored, Winner> call{.planes = planes,
                              .places = places,
                              .gradient_places = input_gradient.defined() ? Places(input_gradient, planes) : places,
                              .gradient = context.inputs[0].data<Stored>() + n * planes.pixels,
                              .input = input.data<Stored>() + n * places.sample,
                              .scale = context.inputs[2].data<Stored>(),
                              .post_scale = context.inputs[3].data<Stored>(),
                              .clamp = Clamp<T>(attributes.clamp()),
                              .eps = attributes.eps,
                              .winners = context.inputs[4].data<Winner>() + n * planes.pixels,
                              .means = context.inputs[5].data<double>() + n * planes.channels,
                              .rstds = context.inputs[6].data<double>() + n * planes.channels};
    call.planes.samples = std::min(part, planes.samples - n);
    const std::int64_t slices = call.planes.samples * planes.channels, items = call.planes.samples * split.chunks * split.tiles;
    if (items > 0) {
      cuda::launch(sum_over_winners<Stored, Winner>, cuda::loop_shape(items * cuda::default_threads), context.stream, partials, call, split, items);
    }
    cuda::launch(close_instances<Stored, Winner>, cuda::loop_shape(slices * cuda::warp_size), context.stream, sums + n * planes.channels,
                 rules + n * planes.channels, partials, call, split.chunks);
    if (input_gradient.defined() && planes.pixels > 0) {
      cuda::launch(write_input_gradient<Stored, Winner>, cuda::loop_shape(slices * planes.pixels), context.stream,
                   input_gradient.data<Stored>() + n * places.sample, rules + n * planes.channels, call);
    }
  }
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
