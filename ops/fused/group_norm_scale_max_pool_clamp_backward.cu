// The gradients of clamp(max_pool2d(group_norm(input) * scale)).

#include "frit/ops/fused/group_norm_scale_max_pool_clamp_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using ChainAttributes = GroupNormScaleMaxPoolClampAttributes;
using Geometry = GroupNormPoolGeometry;

/// What one channel of one sample adds to the gradients.
struct ChannelSums {
  double gradient = 0, product = 0;  ///< of the gradient of the norm's result; of it times (x - mean)
  double scale = 0;

  __device__ friend ChannelSums operator+(const ChannelSums& a, const ChannelSums& b) {
    return {a.gradient + b.gradient, a.product + b.product, a.scale + b.scale};
  }
};

/// The input's gradient in one channel of one sample: (x - reference) * by_difference + offset, and more at the winners.
template <class T>
struct GroupGradient {
  GroupMap<T> map;
  T by_difference, offset;
};

/// What all kernels below read.
template <class Stored, class Winner>
struct Call {
  using T = ComputeType<Stored>;

  Planes planes;
  Places places, gradient_places;  // of the input, of its gradient
  std::int64_t groups, group_channels;
  WindowAxis height, width;
  const Stored *gradient, *input, *weight, *bias, *scale;
  Clamp<T> clamp;
  const Winner* winners;
  const double *means, *rstds;

  __device__ std::int64_t windows() const { return static_cast<std::int64_t>(height.output) * width.output; }
  __device__ GroupMap<T> map(std::int64_t plane) const {
    const std::int64_t c = plane % planes.channels, slice = plane / group_channels;
    return {means[slice], rstds[slice], convert<T>(weight[c]), convert<T>(bias[c]), convert<T>(scale[c])};
  }
};

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
      const T element = convert<T>(x[(h * call.width.image + w) * call.places.pixel]), normalized = map.normalized(element);
      const T passed = call.clamp.gradient(convert<T>(call.gradient[plane * windows + window]), normalized * map.scale);
      const T entering = passed * map.scale;
      total = total + ChannelSums{static_cast<double>(entering), static_cast<double>(entering * map.centered(element)),
                                  static_cast<double>(passed * normalized)};
    }
    // Elsewhere the gradient is 0, which matters where it meets an infinity or NaN.
    const double zero = 0 * static_cast<double>(map.scale);
    total = cuda::block_reduce(total, shared) + ChannelSums{zero, zero, 0 * static_cast<double>(map.slope + map.shift)};
    if (threadIdx.x == 0) sums[plane] = total;
  }
}

/// One warp a group of a sample: dx = (g - mean(g) - xhat * mean(g * xhat)) * rstd, xhat = (x - mean) * rstd, where g is the weight times
/// the gradient of the norm's result, as a rule a channel. Turns `product` into what the weight's gradient gets. Deterministic.
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
      const double weight = static_cast<double>(convert<T>(call.weight[plane % call.planes.channels]));
      total = total + ChannelSums{weight * sums[plane].gradient, weight * sums[plane].product, 0};
      sums[plane].product *= rstd;
    }
    total = cuda::warp_reduce(total);
    for (std::int64_t plane = first + lane; plane < end; plane += cuda::warp_size) {
      const GroupMap<T> map = call.map(plane);
      const double elsewhere = 0 * static_cast<double>(map.slope) * static_cast<double>(map.scale);  // NaN if one of them is not finite
      const double by_difference = -rstd * rstd * rstd * (total.product / count);
      const double offset = elsewhere * rstd - rstd * (total.gradient / count) - static_cast<double>(map.rest) * by_difference;
      rules[plane] = {map, static_cast<T>(by_difference), static_cast<T>(offset)};
    }
  }
}

/// The gradient that an element gets through the windows that it is the maximum of.
template <class Stored, class Winner>
__device__ ComputeType<Stored> gradient_through_windows(const Call<Stored, Winner>& call, const GroupMap<ComputeType<Stored>>& map,
                                                        std::int64_t plane, std::int32_t h, std::int32_t w,
                                                        ComputeType<Stored> normalized) {
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
      total += call.clamp.gradient(convert<T>(call.gradient[window]), normalized * map.scale) * map.scale * map.slope;
    }
  }
  return total;
}

/// One element a thread, in the order of the input's memory. Reads and writes each element once. Deterministic.
template <class Stored, class Winner>
__global__ void write_input_gradient(Stored* input_gradient, const GroupGradient<ComputeType<Stored>>* rules /* (N, C) */,
                                     Call<Stored, Winner> call) {
  using T = ComputeType<Stored>;
  const Planes planes = call.planes;
  const bool channels_last = call.places.pixel != 1;
  const std::int64_t count = planes.samples * call.places.sample, inner = channels_last ? planes.channels : planes.pixels;
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t n = i / call.places.sample, rest = i - n * call.places.sample;
    const std::int64_t outer_index = rest / inner, inner_index = rest - outer_index * inner;
    const std::int64_t c = channels_last ? inner_index : outer_index, plane = n * planes.channels + c;
    const auto p = static_cast<std::int32_t>(channels_last ? outer_index : inner_index);
    const GroupGradient<T> rule = rules[plane];
    const T x = convert<T>(call.input[i]);
    const T through_windows =
        gradient_through_windows(call, rule.map, plane, p / call.width.image, p % call.width.image, rule.map.normalized(x));
    input_gradient[call.gradient_places(n, c, p)] =
        convert<Stored>((x - rule.map.reference) * rule.by_difference + rule.offset + through_windows);
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
void run_typed(const KernelContext& context) {
  using T = ComputeType<Stored>;
  const auto& attributes = context.as<ChainAttributes>();
  const Tensor &input = context.inputs[1], &input_gradient = context.outputs[0];
  const Planes planes(input.shape());
  const Places places(input, planes);
  const Geometry geometry(input.shape(), attributes);
  const Scratch scratch(planes, sizeof(GroupGradient<T>));
  auto* const sums = reinterpret_cast<ChannelSums*>(context.scratch.data());
  auto* const rules = reinterpret_cast<GroupGradient<T>*>(context.scratch.data() + scratch.sums);
  const std::int64_t part = samples_in_cache(input);
  for (std::int64_t n = 0; n < planes.samples; n += part) {
    const std::int64_t first_plane = n * planes.channels, slice = n * geometry.groups;
    Call<Stored, Winner> call{.planes = planes,
                              .places = places,
                              .gradient_places = input_gradient.defined() ? Places(input_gradient, planes) : places,
                              .groups = geometry.groups,
                              .group_channels = geometry.group_channels(),
                              .height = WindowAxis(geometry.pool, 1),
                              .width = WindowAxis(geometry.pool, 2),
                              .gradient = context.inputs[0].data<Stored>() + first_plane * geometry.windows(),
                              .input = input.data<Stored>() + n * places.sample,
                              .weight = context.inputs[2].data<Stored>(),
                              .bias = context.inputs[3].data<Stored>(),
                              .scale = context.inputs[4].data<Stored>(),
                              .clamp = Clamp<T>(attributes.clamp()),
                              .winners = context.inputs[5].data<Winner>() + first_plane * geometry.windows(),
                              .means = context.inputs[6].data<double>() + slice,
                              .rstds = context.inputs[7].data<double>() + slice};
    call.planes.samples = std::min(part, planes.samples - n);
    const std::int64_t part_planes = call.planes.samples * planes.channels;
    if (part_planes == 0) continue;
    cuda::launch(sum_over_winners<Stored, Winner>, cuda::loop_shape(part_planes * cuda::default_threads), context.stream,
                 sums + first_plane, call);
    cuda::launch(close_groups<Stored, Winner>, cuda::loop_shape(call.planes.samples * geometry.groups * cuda::warp_size), context.stream,
                 rules + first_plane, sums + first_plane, call);
    if (input_gradient.defined() && planes.pixels > 0) {
      cuda::launch(write_input_gradient<Stored, Winner>, cuda::loop_shape(part_planes * planes.pixels), context.stream,
                   input_gradient.data<Stored>() + n * places.sample, rules + first_plane, call);
    }
  }
  if (planes.channels == 0) return;
  cuda::launch(sum_over_batch<Stored>, cuda::loop_shape(planes.channels * cuda::warp_size), context.stream,
               data_or_null<Stored>(context.outputs[1]), data_or_null<Stored>(context.outputs[2]), data_or_null<Stored>(context.outputs[3]),
               sums, planes);
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
