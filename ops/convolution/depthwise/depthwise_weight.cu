// Weight gradients of depthwise convolutions over channels-last images: sums of each block over some rows of the images, and then the sum
// over the blocks.

#include "frit/ops/convolution/depthwise/depthwise_rows.cuh"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/cuda/sum_partials.cuh"

namespace frit::ops {
namespace {

constexpr int threads = 256;

/// A thread takes a group of neighbouring taps, of some channels; a block some groups, for which it goes through some lines of the output:
/// rows, or segments of rows where there are few of them.
struct WeightPlan {
  DepthwiseAxis axes[3];
  int channels = 0, block_channels = 0, channel_blocks = 0;
  int groups = 0, block_groups = 0, group_blocks = 0;
  int chunks = 0, taps = 0;  ///< groups of a row of taps; the taps of one
  int lines = 0, block_lines = 0, line_blocks = 0;
  int segment = 0;  ///< positions of a line
  int shares = 0;   ///< of a block's lines
  cuda::Divisor lanes = {}, thread_groups = {}, segments = {}, rows = {}, depths = {}, row_chunks = {};

  FRIT_HOST_DEVICE int block_items() const { return block_groups * taps * block_channels; }
  int items() const { return block_items() * channel_blocks * group_blocks; }
};

/// Of an item of (channel blocks, group blocks, groups, taps, channels).
struct WeightItem {
  int channels, block_channels, groups, block_groups, group_blocks, chunks, taps, row_taps, kernel;

  explicit WeightItem(const WeightPlan& p)
      : channels(p.channels),
        block_channels(p.block_channels),
        groups(p.groups),
        block_groups(p.block_groups),
        group_blocks(p.group_blocks),
        chunks(p.chunks),
        taps(p.taps),
        row_taps(p.axes[2].taps),
        kernel(p.axes[0].taps * p.axes[1].taps * p.axes[2].taps) {}

  FRIT_HOST_DEVICE std::int64_t operator()(int item) const {
    const auto take = [&](int size) {
      const int remainder = item % size;
      item /= size;
      return remainder;
    };
    const int block_channel = take(block_channels), chunk_tap = take(taps), block_group = take(block_groups);
    const int group = take(group_blocks) * block_groups + block_group, channel = item * block_channels + block_channel;
    const int row = group / chunks, tap = (group - row * chunks) * taps + chunk_tap;
    if (channel >= channels || group >= groups || tap >= row_taps) return -1;
    return static_cast<std::int64_t>(channel) * kernel + row * row_taps + tap;
  }
};

/// Positions of the output that a thread takes at a time.
template <int stride>
inline constexpr int positions = stride > 1 ? 4 : 7;

/// Reads a line of both images for each row of taps, which are in the first-level cache for all but one, and writes a block's sums once.
/// taps == 1: any stride and dilation. Deterministic.
template <class Stored, int width, int taps, int stride>
__global__ void __launch_bounds__(threads, 2)
    depthwise_weight(float* partials /* (line blocks, items) */, const Stored* gradient /* (N, D, H, W, C) */,
                     const Stored* input /* (N, D, H, W, C) */, const __grid_constant__ WeightPlan plan) {
  constexpr int length = positions<stride>, places = (length - 1) * stride + taps;
  extern __shared__ __align__(16) float sums[];
  const DepthwiseAxis &depth_axis = plan.axes[0], &row_axis = plan.axes[1], &axis = plan.axes[2];
  const std::uint32_t thread = threadIdx.x, rest = plan.lanes.quotient(thread), share = plan.thread_groups.quotient(rest);
  const auto lane = static_cast<int>(plan.lanes.remainder(thread, rest)) * width;
  const auto block_group = static_cast<int>(plan.thread_groups.remainder(rest, share));
  const int channel = static_cast<int>(blockIdx.y) * plan.block_channels + lane;
  const auto group = static_cast<std::uint32_t>(static_cast<int>(blockIdx.z) * plan.block_groups + block_group);
  const std::uint32_t kernel_row = plan.row_chunks.quotient(group);
  const int first_tap = static_cast<int>(plan.row_chunks.remainder(group, kernel_row)) * taps;
  const int depth_tap = static_cast<int>(kernel_row) / row_axis.taps, row_tap = static_cast<int>(kernel_row) - depth_tap * row_axis.taps;
  const bool used = channel < plan.channels && static_cast<int>(group) < plan.groups;
  const int begin = static_cast<int>(blockIdx.x) * plan.block_lines, end = min(plan.lines, begin + plan.block_lines);
  const int step = taps == 1 ? axis.stride : 1;

  cuda::Vector<float, width> total[taps] = {};
#pragma unroll 1
  for (int first = 0; used && first < plan.segment; first += length) {
#pragma unroll 1
    for (int line = begin + static_cast<int>(share); line < end; line += plan.shares) {
      const std::uint32_t whole = plan.segments.quotient(static_cast<std::uint32_t>(line));
      const int at = first + plan.segment * static_cast<int>(plan.segments.remainder(static_cast<std::uint32_t>(line), whole));
      const int first_source = at * axis.stride - axis.padding + first_tap * axis.dilation, left = axis.result - at;
      const unsigned inside = places_inside(places, first_source, step, axis.source);
      const std::uint32_t plane = plan.rows.quotient(whole), sample = plan.depths.quotient(plane);
      const auto row = static_cast<int>(plan.rows.remainder(whole, plane));
      const int source_row = row_axis.source_of(row, row_tap);
      const int source_depth = depth_axis.source_of(static_cast<int>(plan.depths.remainder(plane, sample)), depth_tap);
      if (source_row < 0 || source_depth < 0 || left <= 0) continue;
      const std::int64_t source_line =
          (static_cast<std::int64_t>(sample) * depth_axis.source + source_depth) * row_axis.source + source_row;
      const Stored* source = input + (source_line * axis.source + first_source) * plan.channels + channel;
      const Stored* from = gradient + (static_cast<std::int64_t>(whole) * axis.result + at) * plan.channels + channel;
      cuda::Vector<float, width> values[places], gradients[length];
#pragma unroll
      for (int i = 0; i < places; ++i, source += step * plan.channels) values[i] = load_depthwise<width>(source, inside >> i & 1);
#pragma unroll
      for (int p = 0; p < length; ++p, from += plan.channels) gradients[p] = load_depthwise<width>(from, p < left);
#pragma unroll
      for (int p = 0; p < length; ++p) {
        if (p >= left) break;
#pragma unroll
        for (int t = 0; t < taps; ++t) {
#pragma unroll
          for (int c = 0; c < width; ++c) total[t][c] += values[p * stride + t][c] * gradients[p][c];
        }
      }
    }
  }

  const int items = plan.block_items();
  const auto block = (static_cast<std::int64_t>(blockIdx.x) * gridDim.y + blockIdx.y) * gridDim.z + blockIdx.z;
  put_partials(partials + block * items, sums, items, plan.shares, [&](int turn, float* to) {
    if (turn != static_cast<int>(share)) return;
#pragma unroll
    for (int t = 0; t < taps; ++t) {
#pragma unroll
      for (int c = 0; c < width; ++c) to[(block_group * taps + t) * plan.block_channels + lane + c] += total[t][c];
    }
  });
}

struct Launch : WeightPlan {
  int width, stride;

  Launch(const ConvolutionCall& call, bool vectors)
      : WeightPlan{.axes = {{call.geometry, 0, false}, {call.geometry, 1, false}, {call.geometry, 2, false}}}, stride(1) {
    const ConvolutionGeometry& g = call.geometry;
    const DepthwiseAxis& axis = axes[2];
    channels = static_cast<int>(g.groups);
    width = !vectors || channels % 2 != 0 ? 1 : channels % 4 == 0 ? 4 : 2;
    taps = 1;
    if (width > 1 && axis.dilation == 1 && axis.stride <= 2 && axis.taps > 1) {
      const int most = axis.stride == 1 && width == 4 ? 7 : 5, each = parts(axis.taps, parts(axis.taps, most));  // of equal parts
      taps = each <= 3 ? 3 : each <= 5 ? 5 : 7;
      stride = axis.stride;
    } else if (width == 2) {
      width = 1;
    }
    const int all_lanes = parts(channels, width), block = parts(all_lanes, parts(all_lanes, width == 4 ? 16 : 32));
    block_channels = block * width;
    channel_blocks = parts(all_lanes, block);
    chunks = parts(axis.taps, taps);
    groups = axes[0].taps * axes[1].taps * chunks;
    block_groups = parts(groups, parts(groups, std::min(threads / block, 16)));
    group_blocks = parts(groups, block_groups);
    share_out(g, block, cuda::properties(call.operands.weight.device().index).multiprocessors);
  }

  std::size_t bytes() const { return sizeof(float) * static_cast<std::size_t>(line_blocks) * static_cast<std::size_t>(items()); }

  template <class Body>
  void dispatch(const Body& body) const {
    if (width == 1) return body.template operator()<1, 1, 1>();
    if (taps == 1) return body.template operator()<4, 1, 1>();
    if (taps == 7) return body.template operator()<4, 7, 1>();
    width == 4 ? dispatch_depthwise<4>(taps, stride, body) : dispatch_depthwise<2>(taps, stride, body);
  }

 private:
  /// Two rounds of two blocks a multiprocessor; more where a thread would add up so much that a float loses digits.
  void share_out(const ConvolutionGeometry& g, int block, int multiprocessors) {
    constexpr std::int64_t most_products = 1 << 13;
    const int wanted = parts(4 * multiprocessors, channel_blocks * group_blocks), most_shares = threads / (block * block_groups);
    const int whole = static_cast<int>(g.batch * g.output[0] * g.output[1]), positions_at_once = stride > 1 ? positions<2> : positions<1>;
    const int row = axes[2].result, least_segment = 4 * positions_at_once;  // of which the places around it are a small part
    segment = parts(row, std::clamp(parts(wanted * most_shares, whole), 1, parts(row, least_segment)));
    segment = parts(segment, positions_at_once) * positions_at_once;
    segments = cuda::Divisor(parts(row, segment));
    lines = whole * parts(row, segment);
    shares = std::min(most_shares, lines);
    const std::int64_t thread_lines = std::max<std::int64_t>(most_products / segment, 1);
    line_blocks = std::min(std::max(wanted, parts(lines, thread_lines * shares)), parts(lines, shares));
    block_lines = parts(parts(lines, line_blocks), shares) * shares;
    line_blocks = parts(lines, block_lines);
    lanes = cuda::Divisor(block);
    thread_groups = cuda::Divisor(block_groups);
    rows = cuda::Divisor(axes[1].result);
    depths = cuda::Divisor(axes[0].result);
    row_chunks = cuda::Divisor(chunks);
  }
};

void run(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  const auto& [input, weight, output, bias, others] = call.operands;
  const Launch plan(call, cuda::aligned_for_vectors(input.raw()) && cuda::aligned_for_vectors(output.raw()));
  const auto count = [](int value) { return static_cast<unsigned>(value); };
  const cuda::LaunchShape shape{dim3(count(plan.line_blocks), count(plan.channel_blocks), count(plan.group_blocks)),
                                dim3(plan.lanes.value<unsigned>() * plan.thread_groups.value<unsigned>() * count(plan.shares)),
                                sizeof(float) * static_cast<std::size_t>(plan.block_items())};
  auto* const partials = reinterpret_cast<float*>(scratch.data());
  dispatch_f32_and_halves(weight.dtype(), [&]<class Stored>() {
    plan.dispatch([&]<int width, int taps, int stride>() {
      cuda::launch(depthwise_weight<Stored, width, taps, stride>, shape, stream, partials, output.data<Stored>(), input.data<Stored>(),
                   static_cast<const WeightPlan&>(plan));
    });
    sum_partials(weight.data<Stored>(), partials, plan.line_blocks, plan.items(), WeightItem(plan), stream);
  });
}

}  // namespace

std::optional<OwnKernel> depthwise_weight_gradient(const ConvolutionCall& call) {
  constexpr std::size_t most_scratch = std::size_t{256} << 20;
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias, others] = call.operands;
  const bool usual = call.kind == cudnn::ConvolutionKind::weight_gradient && is_depthwise(g) && weight.dtype() != DType::f64 &&
                     input.is_contiguous(Layout::channels_last) && output.is_contiguous(Layout::channels_last);
  if (!usual || g.batch == 0 || product(g.input) == 0 || product(g.output) == 0 || !has_depthwise_sizes(g)) return {};
  const auto fits = [&](const Launch& plan) {
    const std::int64_t all = std::int64_t{plan.block_items()} * plan.channel_blocks * plan.group_blocks;
    return all <= INT32_MAX && plan.bytes() <= most_scratch && plan.channel_blocks <= UINT16_MAX && plan.group_blocks <= UINT16_MAX;
  };
  const Launch in_vectors(call, true), one_by_one(call, false);
  if (!fits(in_vectors) || !fits(one_by_one)) return {};
  return OwnKernel{"depthwise", std::max(in_vectors.bytes(), one_by_one.bytes()),
                   [&call](std::span<std::byte> scratch, CUstream_st* stream) { run(call, scratch, stream); }};
}

}  // namespace frit::ops
