// The gradients of clamp(max_pool2d(group_norm(input) * scale)).

#include "frit/ops/fused/gradient_tiles_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

template <class Stored, class Winner>
using Call = PoolGradientCall<Stored, Winner>;

/// One block a channel of a sample, one thread a window. Reads the small tensors, and one element a window of the input. Deterministic.
template <class Stored, class Winner>
__global__ void sum_over_winners(ChannelSums* sums /* (N, C) */, Call<Stored, Winner> call) {
  using T = ComputeType<Stored>;
  __shared__ ChannelSums shared[cuda::warp_size];
  const std::int64_t windows = call.windows();
  for (std::int64_t plane = blockIdx.x; plane < call.planes.samples * call.planes.channels; plane += gridDim.x) {
    const GroupMap<T> map = call.map(plane);
    const Stored* const x = call.input + call.places(plane / call.planes.channels, plane % call.planes.channels, 0);
    ChannelSums total;
    for (std::int64_t window = threadIdx.x; window < windows; window += blockDim.x) {
      const auto winner = static_cast<std::int32_t>(call.winners[plane * windows + window]);
      const std::int64_t h = call.height.place(static_cast<std::int32_t>(window / call.width.output), winner / call.width.kernel);
      const std::int64_t w = call.width.place(static_cast<std::int32_t>(window % call.width.output), winner % call.width.kernel);
      const T element = convert<T>(x[(h * call.width.image + w) * call.places.pixel]);
      T unused;
      total = total + call.at_winner(map, element, convert<T>(call.gradient[plane * windows + window]), unused);
    }
    total = call.whole(map, cuda::block_reduce(total, shared));
    if (threadIdx.x == 0) sums[plane] = total;
  }
}

/// One warp a group of a sample: makes a rule a channel, and of `product` what the weight's gradient gets. Deterministic.
template <class Stored, class Winner>
__global__ void close_groups(GroupGradient<ComputeType<Stored>>* rules /* (N, C) */, ChannelSums* sums /* (N, C) */,
                             Call<Stored, Winner> call) {
  using T = ComputeType<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  const double count = static_cast<double>(call.group_channels * call.planes.pixels);
  for (std::int64_t slice = cuda::first_item() / cuda::warp_size; slice < call.planes.samples * call.groups;
       slice += cuda::item_step() / cuda::warp_size) {
    const std::int64_t first = slice * call.group_channels, end = first + call.group_channels;
    const double rstd = call.rstds[slice];
    ChannelSums total;
    for (std::int64_t plane = first + lane; plane < end; plane += cuda::warp_size) {
      const auto weight = static_cast<double>(convert<T>(call.parameters.weight[plane % call.planes.channels]));
      total = total + sums[plane].weighted(weight);
      sums[plane].product *= rstd;
    }
    total = cuda::warp_reduce(total);
    for (std::int64_t plane = first + lane; plane < end; plane += cuda::warp_size) {
      rules[plane] = GroupGradient<T>(call.map(plane), total, rstd, count);
    }
  }
}

/// The gradient that an element gets through the windows that it is the maximum of.
template <class Stored, class Winner>
__device__ ComputeType<Stored> gradient_through_windows(const Call<Stored, Winner>& call, const GroupMap<ComputeType<Stored>>& map,
                                                        std::int64_t plane, std::int32_t h, std::int32_t w, ComputeType<Stored> x) {
  using T = ComputeType<Stored>;
  const std::int64_t first = plane * call.windows();
  T total = 0;
  for (std::int32_t row = call.height.first_window(h); row <= call.height.last_window(h); ++row) {
    const std::int32_t kh = call.height.element(row, h);
    if (kh < 0) continue;
    for (std::int32_t column = call.width.first_window(w); column <= call.width.last_window(w); ++column) {
      const std::int32_t kw = call.width.element(column, w);
      const std::int64_t window = first + static_cast<std::int64_t>(row) * call.width.output + column;
      if (kw < 0 || call.winners[window] != static_cast<Winner>(kh * call.width.kernel + kw)) continue;
      T through_window;
      call.at_winner(map, x, convert<T>(call.gradient[window]), through_window);
      total += through_window;
    }
  }
  return total;
}

/// One element a thread, in the order of the input's memory. Reads and writes each element once. Deterministic.
template <class Stored, class Winner>
__global__ void write_input_gradient(Stored* input_gradient, const GroupGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                     Call<Stored, Winner> call, ElementOrder order) {
  using T = ComputeType<Stored>;
  for (std::int64_t n = blockIdx.y; n < call.planes.samples; n += gridDim.y) {
    for (std::int64_t i = cuda::first_item(); i < call.places.sample; i += cuda::item_step()) {
      std::int64_t c, p;
      order.locate(i, c, p);
      const std::int64_t plane = n * call.planes.channels + c;
      const auto pixel = static_cast<std::uint32_t>(p), h = call.width.images.quotient(pixel), w = call.width.images.remainder(pixel, h);
      const GroupGradient<T> rule = rules[plane];
      const T x = convert<T>(call.input[n * call.places.sample + i]);
      const T through_windows =
          gradient_through_windows(call, rule.map, plane, static_cast<std::int32_t>(h), static_cast<std::int32_t>(w), x);
      input_gradient[call.gradient_places(n, c, p)] =
          convert<Stored>((x - rule.map.reference) * rule.by_difference + rule.offset + through_windows);
    }
  }
}

/// One warp a channel: its sums over the batch. Deterministic.
template <class Stored>
__global__ void sum_over_batch(Stored* weight_gradient, Stored* bias_gradient, Stored* scale_gradient, const ChannelSums* sums /* (N, C) */,
                               Planes planes) {
  using T = ComputeType<Stored>;
  const int lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
  for (std::int64_t c = cuda::first_item() / cuda::warp_size; c < planes.channels; c += cuda::item_step() / cuda::warp_size) {
    ChannelSums total;
    for (std::int64_t n = lane; n < planes.samples; n += cuda::warp_size) total = total + sums[n * planes.channels + c];
    total = cuda::warp_reduce(total);
    if (lane != 0) continue;
    if (weight_gradient != nullptr) weight_gradient[c] = convert<Stored>(static_cast<T>(total.product));
    if (bias_gradient != nullptr) bias_gradient[c] = convert<Stored>(static_cast<T>(total.gradient));
    if (scale_gradient != nullptr) scale_gradient[c] = convert<Stored>(static_cast<T>(total.scale));
  }
}

/// The parts of the scratch memory.
struct Scratch {
  std::size_t sums, rules;

  Scratch(const Planes& planes, std::size_t rule_bytes)
      : sums(aligned(planes.samples * planes.channels, sizeof(ChannelSums))),
        rules(aligned(planes.samples * planes.channels, rule_bytes)) {}
  std::size_t total() const { return sums + rules; }

 private:
  static std::size_t aligned(std::int64_t count, std::size_t size) { return (static_cast<std::size_t>(count) * size + 63) / 64 * 64; }
};

/// Two steps over each part of the batch, of which the second finds in the cache what the first looked at.
template <class Stored, class Winner>
void walk_twice(const KernelContext& context, Call<Stored, Winner> call) {
  using T = ComputeType<Stored>;
  const Planes planes = call.planes;
  const Scratch scratch(planes, sizeof(GroupGradient<T>));
  auto* sums = reinterpret_cast<ChannelSums*>(context.scratch.data());
  auto* const rules = reinterpret_cast<GroupGradient<T>*>(context.scratch.data() + scratch.sums);
  Stored* dx = data_or_null<Stored>(context.outputs[0]);
  const std::int64_t part = samples_in_cache(context.inputs[1]);
  for (std::int64_t n = 0; n < planes.samples && planes.channels > 0; n += part) {
    call.planes.samples = std::min(part, planes.samples - n);
    const std::int64_t part_planes = call.planes.samples * planes.channels;
    cuda::launch(sum_over_winners<Stored, Winner>, cuda::loop_shape(part_planes * cuda::default_threads), context.stream, sums, call);
    cuda::launch(close_groups<Stored, Winner>, cuda::loop_shape(call.planes.samples * call.groups * cuda::warp_size), context.stream, rules,
                 sums, call);
    if (dx != nullptr && planes.pixels > 0) {
      cuda::launch(write_input_gradient<Stored, Winner>, sample_loop_shape(call.planes.samples, call.places.sample), context.stream, dx,
                   rules, call, ElementOrder(planes, call.places.channels_last()));
      dx += part * call.places.sample;
    }
    sums += part * planes.channels;
    call.skip(part);
  }
}

/// One walk, where the device has clusters and the windows are of a kind that this is written for; false if not.
template <class Stored, class Winner>
bool walk_once(const KernelContext& context, const Call<Stored, Winner>& call) {
  if constexpr (std::is_same_v<Stored, double> || !std::is_same_v<Winner, std::uint8_t>) {
    return false;
  } else {
    const Tensor &input = context.inputs[1], &input_gradient = context.outputs[0];
    if (!input_gradient.defined() || call.gradient_places.pixel != call.places.pixel) return false;
    if (!cuda::aligned_for_vectors(input_gradient.raw())) return false;
    const auto tiles = GradientTiles::plan(input, call);
    if (tiles.blocks == 0) return false;
    const auto run = [&]<int kernel>() {
      const auto walk = call.places.channels_last() ? carry_back_tiles<Stored, kernel, true> : carry_back_tiles<Stored, kernel, false>;
      const cuda::LaunchShape shape{tiles.grid(), dim3(GradientTiles::threads), tiles.shared_bytes};
      if (cuda::resident_clusters(walk, shape, tiles.blocks) == 0) return false;
      cuda::launch_clusters(walk, shape, tiles.blocks, context.stream, input_gradient.data<Stored>(),
                            reinterpret_cast<ChannelSums*>(context.scratch.data()), call, tiles);
      return true;
    };
    switch (call.height.kernel) {
      case 2: return run.template operator()<2>();
      case 3: return run.template operator()<3>();
      case 4: return run.template operator()<4>();
      default: return false;
    }
  }
}

template <class Stored, class Winner>
void run_typed(const KernelContext& context) {
  const auto& attributes = context.as<ChainAttributes>();
  const Tensor &input = context.inputs[1], &input_gradient = context.outputs[0];
  const Planes planes(input.shape());
  const Places places(input, planes);
  const Geometry geometry(input.shape(), attributes);
  const Call<Stored, Winner> call{
      .planes = planes,
      .places = places,
      .gradient_places = input_gradient.defined() ? Places(input_gradient, planes) : places,
      .groups = geometry.groups,
      .group_channels = geometry.group_channels(),
      .height = WindowAxis(geometry.pool, 1),
      .width = WindowAxis(geometry.pool, 2),
      .gradient = context.inputs[0].data<Stored>(),
      .input = input.data<Stored>(),
      .parameters = {context.inputs[2].data<Stored>(), context.inputs[3].data<Stored>(), context.inputs[4].data<Stored>()},
      .clamp = Clamp<ComputeType<Stored>>(attributes.clamp()),
      .winners = context.inputs[5].data<Winner>(),
      .means = context.inputs[6].data<double>(),
      .rstds = context.inputs[7].data<double>()};
  if (!walk_once(context, call)) walk_twice(context, call);
  if (planes.channels == 0) return;
  cuda::launch(sum_over_batch<Stored>, cuda::loop_shape(planes.channels * cuda::warp_size), context.stream,
               data_or_null<Stored>(context.outputs[1]), data_or_null<Stored>(context.outputs[2]), data_or_null<Stored>(context.outputs[3]),
               reinterpret_cast<const ChannelSums*>(context.scratch.data()), planes);
}

/// inputs (gradient, input, weight, bias, scale, winner, mean, rstd)
/// outputs (input_gradient, weight_gradient, bias_gradient, scale_gradient)
void run(const KernelContext& call) {
  dispatch_stored(call.inputs[1].dtype(), [&]<class Stored>() {
    dispatch_winner(call.inputs[5].dtype(), [&]<class Winner>() { run_typed<Stored, Winner>(call); });
  });
}

std::size_t scratch_bytes(const InferContext& call) {
  const bool wide = call.inputs[1].dtype == DType::f64;
  return Scratch(Planes(call.shape(1)), wide ? sizeof(GroupGradient<double>) : sizeof(GroupGradient<float>)).total();
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(group_norm_scale_max_pool_clamp_backward) {
  using namespace frit::ops;
  registry.add_cuda("group_norm_scale_max_pool_clamp_backward",
                    {.run = run, .halves = true, .scratch = scratch_bytes, .any_layout_inputs = {1}, .any_layout_outputs = {0}});
}
