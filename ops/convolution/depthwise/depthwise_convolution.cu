// Depthwise convolutions and their data gradients over channels-last images: how they are shared out among blocks.

#include <algorithm>

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/convolution/depthwise/depthwise_tiles.cuh"
#include "frit/ops/convolution/own_kernels.h"

namespace frit::ops {
namespace {

/// Of shared memory, and of that which the blocks of a multiprocessor share without loss.
constexpr std::size_t most_bytes = 96 * 1024, usual_bytes = 24 * 1024;

/// Which kernel: the channels that a thread takes at a time, the taps of a row, 0 for any, and the stride.
struct Instance {
  int width, taps = 0, stride = 1, length;

  Instance(const DepthwiseAxis& axis, int most_width) : width(most_width) {
    if (axis.has_runs() && width > 1) {
      taps = axis.most_taps() <= 3 ? 3 : 5;
      stride = axis.backward ? 1 : axis.stride;
    } else if (width == 2) {
      width = 1;
    }
    dispatch([&]<int, int instance_taps, int instance_stride>() { length = run_length<instance_taps, instance_stride>; });
  }

  template <class Body>
  void dispatch(const Body& body) const {
    if (width == 1) return body.template operator()<1, 0, 1>();
    if (taps == 0) return body.template operator()<4, 0, 1>();
    width == 4 ? dispatch_depthwise<4>(taps, stride, body) : dispatch_depthwise<2>(taps, stride, body);
  }
};

/// Up to so many, of which few are left over.
int even_part(int size, int most) {
  int best = std::min(size, most);
  for (int part = best; part > most / 2; --part) {
    if (parts(size, part) * part < parts(size, best) * best) best = part;
  }
  return best;
}

/// Of a block, each with a vector of channels: all if they are few, else whole sectors of memory.
int lanes_of(int vectors, int width) {
  if (width == 1) return parts(vectors, parts(vectors, 32));
  const int few = 96 / width, usual = 64 / width, sector = 16 / width;
  if (vectors <= few) return vectors;
  const int even = parts(parts(vectors, parts(vectors, usual)), sector) * sector;
  return parts(vectors, usual) * usual <= vectors + vectors / 8 ? usual : even;
}

/// Channels that lie in vectors of as many as a thread may take at a time.
int vector_of(std::int64_t channels) { return channels % 4 == 0 ? 4 : channels % 2 == 0 ? 2 : 1; }

/// Blocks of neighbouring rows and runs, so that the first-level cache gives what taps share.
struct Launch : DepthwisePlan {
  Instance instance;
  std::int64_t all_tiles;
  dim3 threads;
  std::size_t bytes;

  Launch(const ConvolutionGeometry& g, bool backward, bool vectors)
      : DepthwisePlan{.axes = {{g, 0, backward}, {g, 1, backward}, {g, 2, backward}}},
        instance(axes[2], vectors ? vector_of(g.groups) : 1) {
    const DepthwiseAxis& axis = axes[2];
    const bool scattered = instance.taps == 0;
    channels = static_cast<int>(g.groups);
    phases = backward ? axis.stride : 1;
    chunks = scattered ? 1 : parts(axis.most_taps(), instance.taps);
    const int set = scattered ? axis.taps : chunks * instance.taps, row = scattered ? set : phases * set;
    set_slots = cuda::Divisor(set);
    row_slots = cuda::Divisor(row);
    slots = axes[0].taps * axes[1].taps * row;
    int lanes = lanes_of(parts(channels, instance.width), instance.width);
    while (lanes > 1 && bytes_of(lanes) > (lanes > 4 ? usual_bytes : most_bytes)) lanes = (lanes + 1) / 2;
    block_channels = lanes * instance.width;
    slot_step = step_of(lanes);
    bytes = bytes_of(lanes);
    step = scattered ? 1 : axis.run_step();
    set_steps();
    share_out(g, lanes);
  }

  /// Several tiles a block, one below the other, where that leaves enough blocks.
  void set_tiles(int multiprocessors, int channel_blocks) {
    constexpr int enough = 8, most = 8;  // blocks a multiprocessor; tiles a block
    tiles = static_cast<int>(all_tiles);
    block_tiles = static_cast<int>(std::clamp<std::int64_t>(all_tiles * channel_blocks / (enough * multiprocessors), 1, most));
  }

 private:
  /// Such that the slots of neighbouring taps start in different banks.
  int step_of(int lanes) const { return parts(lanes * instance.width, 8) * 8 + 4; }
  std::size_t bytes_of(int lanes) const {
    return sizeof(float) * static_cast<std::size_t>(slots) * static_cast<std::size_t>(step_of(lanes));
  }

  void set_steps() {
    const auto taps_apart = [](const DepthwiseAxis& axis) { return axis.backward ? -axis.tap_step : axis.tap_step; };
    const std::int64_t line = std::int64_t{axes[2].source} * channels;
    source_step = axes[2].source_step * channels;
    line_step = axes[1].source_step * line;
    plane_step = axes[0].source_step * axes[1].source * line;
    weight_line_step = taps_apart(axes[1]) * row_slots.value<int>() * slot_step;
    weight_plane_step = taps_apart(axes[0]) * axes[1].taps * row_slots.value<int>() * slot_step;
  }

  void share_out(const ConvolutionGeometry& g, int lanes) {
    const int items = DepthwisePlan::threads / lanes, positions = parts(axes[2].result, step);
    row_runs = step * parts(positions, instance.length);
    const int rows = std::max(1, axes[1].result);  // few leave a block to their runs
    const int together = std::min(row_runs, std::max({2, items / 16, items / rows})), run_parts = parts(row_runs, together);
    block_rows = even_part(axes[1].result, items / together);
    const int row_parts = parts(axes[1].result, block_rows);
    threads = dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(together * block_rows));
    steps = cuda::Divisor(step);
    tile_runs = cuda::Divisor(together);
    row_tiles = cuda::Divisor(row_parts);
    run_tiles = cuda::Divisor(run_parts);
    depths = cuda::Divisor(axes[0].result);
    all_tiles = std::int64_t{run_parts} * row_parts * axes[0].result * g.batch;
  }
};

/// How tiles in shared memory share a convolution out.
struct TileLaunch : DepthwiseTilePlan {
  int length;  ///< of a run
  std::int64_t tiles;
  unsigned threads;
  std::size_t bytes;

  TileLaunch(const ConvolutionGeometry& g, bool backward, std::size_t element_size, int run)
      : DepthwiseTilePlan{.channels = static_cast<int>(g.groups), .mirrored = backward}, length(run) {
    copied_bytes = 16;
    while (g.groups * static_cast<std::int64_t>(element_size) % copied_bytes != 0) copied_bytes /= 2;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      taps[axis] = static_cast<int>(g.kernel[axis + 1]);
      source[axis] = static_cast<int>(backward ? g.output[axis + 1] : g.input[axis + 1]);
      result[axis] = static_cast<int>(backward ? g.input[axis + 1] : g.output[axis + 1]);
      padding[axis] = static_cast<int>(backward ? taps[axis] - 1 - g.padding[axis + 1] : g.padding[axis + 1]);
    }
    constexpr int least_runs = 2, most_runs = 8;
    runs = std::min(parts(result[1], length), std::clamp(2 * most_runs / std::max(1, result[0]), least_runs, most_runs));
    pitch = (runs * length + taps[1] - 1) | 1;
    int most_rows = most_threads / (lanes * runs);
    do {
      rows = even_part(result[0], most_rows);
      bytes = sizeof(float) * static_cast<std::size_t>(weights()) + element_size * static_cast<std::size_t>(pixels() * channels_at_once);
      most_rows = std::max(rows / 2, 1);
    } while (bytes > most_bytes && rows > 1);
    threads = static_cast<unsigned>(lanes * runs * 2 * pairs());
    const int down = parts(result[0], rows), across = parts(result[1], runs * length);
    tiles_down = cuda::Divisor(down);
    tiles_across = cuda::Divisor(across);
    pitches = cuda::Divisor(pitch);
    kernels = cuda::Divisor(taps[0] * taps[1]);
    tiles = g.batch * g.input[0] * down * across;
  }

  /// Estimated: a longer run reads less for each position.
  double work() const { return static_cast<double>(tiles) * threads * (length + 4); }
};

/// Of a stride of 1 and few taps in two dimensions, where channels are pairs.
std::optional<TileLaunch> tiles_of(const ConvolutionGeometry& g, bool backward, std::size_t element_size) {
  bool fits = g.kernel[0] == 1 && g.groups % DepthwiseTilePlan::width == 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    fits = fits && g.stride[axis] == 1 && g.dilation[axis] == 1 && g.padding[axis] < g.kernel[axis];
  }
  // Pixels of an image, and blocks of channels, are counted in few bits.
  fits = fits && std::max(g.input[1] * g.input[2], g.output[1] * g.output[2]) <= INT32_MAX &&
         g.groups <= std::int64_t{UINT16_MAX} * DepthwiseTilePlan::channels_at_once;
  if (!fits || g.kernel[1] > 7 || (g.kernel[2] != 3 && g.kernel[2] != 5 && g.kernel[2] != 7)) return std::nullopt;
  const TileLaunch tile(g, backward, element_size, 14), shorter(g, backward, element_size, 7);
  const TileLaunch& best = shorter.work() < tile.work() ? shorter : tile;
  return best.bytes <= most_bytes && best.tiles <= INT32_MAX / 2 ? std::optional(best) : std::nullopt;
}

/// Whether all images are aligned.
bool takes_vectors(const ConvolutionCall& call) {
  const auto aligned = [](const Tensor& image) { return !image.defined() || cuda::aligned_for_vectors(image.raw()); };
  return aligned(call.operands.input) && aligned(call.operands.output) && aligned(call.residual());
}

std::optional<TileLaunch> tiles_of(const ConvolutionCall& call) {
  if (!takes_vectors(call)) return std::nullopt;
  return tiles_of(call.geometry, call.kind == cudnn::ConvolutionKind::data_gradient, size_of(call.operands.weight.dtype()));
}

/// Whether the kernel can do the epilogue.
bool takes(const ConvolutionEpilogue& epilogue) {
  return epilogue.is_exact() && !epilogue.steps.empty() && epilogue.steps.size() <= DepthwisePlan::most_steps;
}

template <class Plan>
void set_epilogue(Plan& plan, const ConvolutionEpilogue& epilogue) {
  if (!takes(epilogue)) return;
  plan.epilogue_steps = static_cast<int>(epilogue.steps.size());
  for (std::size_t i = 0; i < epilogue.steps.size(); ++i) {
    const Activation activation = epilogue.steps[i].activation.value_or(Activation{});
    const auto number = [](double value) { return static_cast<float>(value); };
    plan.epilogue[i] = {!epilogue.steps[i].activation, number(activation.low), number(activation.high), number(activation.slope)};
  }
}

bool fits(const ConvolutionGeometry& g, bool backward) {
  if (!has_depthwise_sizes(g)) return false;
  const Launch launch(g, backward, false), in_vectors(g, backward, true);
  const std::int64_t channel_blocks = parts(g.groups, std::min(launch.block_channels, in_vectors.block_channels));
  return std::max(launch.bytes, in_vectors.bytes) <= most_bytes && std::max(launch.all_tiles, in_vectors.all_tiles) <= INT32_MAX / 2 &&
         channel_blocks <= UINT16_MAX;
}

void run(const TileLaunch& tile, const ImageCall& call, const Tensor& bias, const Tensor& residual, CUstream_st* stream) {
  const cuda::LaunchShape shape{
      dim3(static_cast<unsigned>(tile.tiles), static_cast<unsigned>(parts(tile.channels, DepthwiseTilePlan::channels_at_once))),
      dim3(tile.threads), tile.bytes};
  dispatch_f32_and_halves(call.weight.dtype(), [&]<class Stored>() {
    const auto start = [&]<int taps>() {
      const auto kernel = tile.length == 14 ? depthwise_tiles<Stored, taps, 14> : depthwise_tiles<Stored, taps, 7>;
      cuda::launch(kernel, shape, stream, call.result.data<Stored>(), call.image.data<Stored>(), call.weight.data<Stored>(),
                   data_or_null<Stored>(bias), data_or_null<Stored>(residual), static_cast<const DepthwiseTilePlan&>(tile));
    };
    if (tile.taps[1] == 3) return start.template operator()<3>();
    if (tile.taps[1] == 5) return start.template operator()<5>();
    start.template operator()<7>();
  });
}

void run(Launch& plan, const ImageCall& call, const Tensor& bias, const Tensor& residual, CUstream_st* stream) {
  const int channel_blocks = parts(plan.channels, plan.block_channels);
  plan.set_tiles(cuda::properties(call.weight.device().index).multiprocessors, channel_blocks);
  const auto blocks = static_cast<unsigned>(parts(plan.tiles, plan.block_tiles));
  const cuda::LaunchShape shape{dim3(blocks, static_cast<unsigned>(channel_blocks)), plan.threads, plan.bytes};
  dispatch_f32_and_halves(call.weight.dtype(), [&]<class Stored>() {
    plan.instance.dispatch([&]<int width, int taps, int stride>() {
      cuda::launch(depthwise_rows<Stored, width, taps, stride>, shape, stream, call.result.data<Stored>(), call.image.data<Stored>(),
                   call.weight.data<Stored>(), data_or_null<Stored>(bias), data_or_null<Stored>(residual),
                   static_cast<const DepthwisePlan&>(plan));
    });
  });
}

/// With as much of the epilogue as the kernel can do: all, or nothing.
void run(const ConvolutionCall& given, std::optional<TileLaunch> tile, CUstream_st* stream) {
  const ImageCall call(given);
  const Tensor &bias = given.operands.bias, residual = given.residual();
  if (tile) {
    set_epilogue(*tile, given.epilogue);
    return run(*tile, call, bias, residual, stream);
  }
  Launch plan(given.geometry, !call.forward, takes_vectors(given));
  set_epilogue(plan, given.epilogue);
  run(plan, call, bias, residual, stream);
}

}  // namespace

std::optional<OwnKernel> depthwise_convolution(const ConvolutionCall& call) {
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias, others] = call.operands;
  const auto channels_last = [](const Tensor& image) { return !image.defined() || image.is_contiguous(Layout::channels_last); };
  const bool takes_call = is_depthwise(g) && weight.dtype() != DType::f64 && call.kind != cudnn::ConvolutionKind::weight_gradient &&
                          channels_last(input) && channels_last(output) && channels_last(call.residual()) && g.batch > 0 &&
                          product(g.input) > 0 && product(g.output) > 0 && fits(g, call.kind == cudnn::ConvolutionKind::data_gradient);
  if (!takes_call) return {};
  const std::optional<TileLaunch> tile = tiles_of(call);
  return OwnKernel{.schedule = tile ? "depthwise, in tiles" : "depthwise, in rows",
                   .scratch_bytes = 0,
                   .run = [&call, tile](std::span<std::byte>, CUstream_st* stream) { run(call, tile, stream); },
                   .finishes = takes(call.epilogue)};
}

}  // namespace frit::ops
