// Convolutions that sweep over columns of the image, see swept_tiles.cuh.

#include "frit/core/convert.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/packed.cuh"
#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/mirrored_convolution.h"
#include "frit/ops/convolution/tiles/swept_convolution.h"
#include "frit/ops/convolution/tiles/swept_tiles.cuh"

namespace frit::ops {
namespace {

constexpr int most_swept_channels = 64, widest = 8;  // outputs that a thread stores at once

/// Activation::rectifier; any number stays as it is by default.
struct Rectifier {
  float low = -std::numeric_limits<float>::infinity(), high = -low, slope = 0;

  template <class T>
  __device__ T operator()(T x) const {
    const T below = slope == 0 ? low : low + slope * (x - low), raised = x < low ? below : x;
    return raised > high ? high : raised;
  }
};

/// What is done to the sums of products: + bias, + what the output holds, the rectifier `before`, + residual, the rectifier `after`.
template <class Stored>
struct SweptResult {
  Stored* output;          // (N, D, H, W, K)
  const Stored* bias;      // (K), or null
  const Stored* residual;  // like the output, or null
  bool adds, rectifies;
  Rectifier before, after;

  /// `widest` channels from `channel` on, at `place` of the output.
  __device__ void store(float (&values)[widest], std::int64_t place, int channel) const {
    if (bias != nullptr) add(values, bias + channel);
    if (adds) add(values, output + place);
    if (rectifies) {
#pragma unroll
      for (float& value : values) value = before(value);
      if (residual != nullptr) add(values, residual + place);
#pragma unroll
      for (float& value : values) value = after(value);
    } else if (residual != nullptr) {
      add(values, residual + place);
    }
    write(values, output + place);
  }

 private:
  __device__ static void add(float (&values)[widest], const Stored* from) {
    constexpr int width = cuda::vector_width<Stored>;
#pragma unroll
    for (int i = 0; i < widest; i += width) {
      const auto elements = cuda::VectorWords<Stored, width>::load(from + i, true);
#pragma unroll
      for (int k = 0; k < width; ++k) values[i + k] += convert<float>(elements[k]);
    }
  }
  __device__ static void write(const float (&values)[widest], Stored* to) {
    constexpr int width = cuda::vector_width<Stored>;
#pragma unroll
    for (int i = 0; i < widest; i += width) {
      if constexpr (is_half_type<Stored>) {
        cuda::Vector<std::uint32_t, width / 2> words;
#pragma unroll
        for (int k = 0; k < width / 2; ++k) words[k] = cuda::Packed<Stored>::narrow(values[i + 2 * k], values[i + 2 * k + 1]);
        cuda::store_vector(reinterpret_cast<std::uint32_t*>(to + i), words);
      } else {
        cuda::store_vector(to + i, cuda::WideVector<Stored>{values[i], values[i + 1], values[i + 2], values[i + 3]});
      }
    }
  }
};

/// The rows of pixels in shared memory, in a ring: where the next one is.
template <class Shape>
struct Ring {
  std::uint32_t pixels, barriers;
  int stage = 0;
  unsigned parity = 0;

  __device__ std::uint32_t row() const { return pixels + stage * Shape::stage_bytes; }
  __device__ cuda::PhaseBarrier full(int of) const { return {barriers + of * cuda::PhaseBarrier::bytes}; }
  __device__ cuda::PhaseBarrier empty(int of) const { return {barriers + (Shape::stages + of) * cuda::PhaseBarrier::bytes}; }
  __device__ void advance() {
    if (++stage == Shape::stages) stage = 0, parity ^= 1;
  }
};

/// By the last warpgroup.
template <class Shape, class Stored = typename Shape::Stored>
__device__ void stage_rows(Ring<Shape> ring, const Stored* input, const SweptTiles& tiles, int begin, int end) {
  const int thread = static_cast<int>(threadIdx.x) % warpgroup::threads;
  for (int row = begin; row < end;) {
    const SweptRows rows = SweptRows::at<Shape>(tiles, row, end);
    row += rows.count();
    for (int i = rows.first_input(tiles); i < rows.last_input(tiles); ++i) {
      ring.empty(ring.stage).wait(ring.parity ^ 1);
      stage_pixels<Shape>(ring.row(), input, tiles, rows, i, thread);
      warpgroup::fence_stores();
      ring.full(ring.stage).arrive();
      ring.advance();
    }
  }
}

/// A thread's sums of three rows of the output, of which the last is complete after each row of the input, and that one while it waits to
/// be stored: two positions that are neighbours in depth.
template <class Stored>
struct SweptSums {
  warpgroup::WideSums sums = {};
  float complete[16];
  bool pending = false;
  bool inside[2];
  std::int64_t place, row_step, depth_step;
  int channel;

  __device__ SweptSums(const SweptTiles& tiles, const SweptRows& rows, int depth, int across, int channel) : channel(channel) {
    for (int h = 0; h < 2; ++h) {
      inside[h] = channel < tiles.out_channels && depth + h < tiles.output[0] && across < tiles.output[2];
    }
    const std::int64_t line = static_cast<std::int64_t>(rows.sample * tiles.output[0] + depth) * tiles.output[1] + rows.first;
    row_step = static_cast<std::int64_t>(tiles.output[2]) * tiles.out_channels;
    depth_step = row_step * tiles.output[1];
    place = line * row_step + static_cast<std::int64_t>(across) * tiles.out_channels + channel;
  }
  /// `is_output`: that row is not one of another block.
  __device__ void shift(bool is_output) {
    pending = is_output;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      complete[k] = sums[32 + k], sums[32 + k] = sums[16 + k], sums[16 + k] = sums[k], sums[k] = 0;
    }
  }
  __device__ void store(const SweptResult<Stored>& result) {
    if (!pending) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float values[widest];
#pragma unroll
      for (int i = 0; i < widest; ++i) values[i] = complete[i / 2 * 4 + 2 * h + i % 2];
      if (inside[h]) result.store(values, place + h * depth_step, channel);
    }
    place += row_step;
  }
};

/// By the other warpgroups, each for its 8 x 8 positions.
template <class Shape, class Stored = typename Shape::Stored>
__device__ void multiply_rows(const SweptResult<Stored>& result, Ring<Shape> ring, std::uint32_t weight, const SweptTiles& tiles, int begin,
                              int end, int warpgroup_index, int first_out_channel) {
  const std::uint64_t left_groups = static_cast<std::uint64_t>(warpgroup::second_word(Shape::pixels * warpgroup::chunk_bytes)) << 32;
  const std::uint64_t right_groups = static_cast<std::uint64_t>(warpgroup::second_word(Shape::side * warpgroup::chunk_bytes)) << 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) % warpgroup::threads / 32;
  const int deep = warpgroup_index / Shape::sides * Shape::side, across = warpgroup_index % Shape::sides * Shape::side;
  const std::uint32_t right = warpgroup::units(weight) + warpgroup::first_word(0, warpgroup::wide_columns * warpgroup::chunk_bytes);
  for (int row = begin; row < end;) {
    const SweptRows rows = SweptRows::at<Shape>(tiles, row, end);
    row += rows.count();
    SweptSums<Stored> own(tiles, rows, rows.depth + deep + 2 * warp, rows.across + across + lane / 4,
                          first_out_channel + lane % 4 * widest);
    int i = rows.first_input(tiles);
    const auto is_output = [&] { return i + tiles.padding[1] - 2 >= rows.first; };
    for (const int last = rows.last_input(tiles); i < last; ++i) {
      ring.full(ring.stage).wait(ring.parity);
      const std::uint32_t left = warpgroup::units(ring.row()) + deep * Shape::pixels + across;
      warpgroup::hold(own.sums);
      warpgroup::begin_products();
#pragma unroll
      for (int s = 0; s < Shape::steps; ++s) {
        warpgroup::multiply<Stored>(own.sums, left_groups | (left + Shape::first_word(s)),
                                    right_groups | (right + s * 2 * warpgroup::wide_columns));
      }
      warpgroup::commit_products();
      own.store(result);  // of the row before, meanwhile
      warpgroup::wait_for_products();
      warpgroup::hold(own.sums);
      if (lane == 0) ring.empty(ring.stage).arrive();
      ring.advance();
      own.shift(is_output());
    }
    for (const int last = rows.last_reach(tiles); i < last; ++i) {
      own.store(result);
      own.shift(is_output());
    }
    own.store(result);
  }
}

/// Four warpgroups multiply, a fifth stages the rows. Blocks along x have equal shares of the output's rows; those along y, 32 output
/// channels. Reads the input once (some of it twice, where two columns or two blocks meet) for each 32 output channels, and writes each
/// output once. Deterministic.
template <class Shape, class Stored = typename Shape::Stored>
__global__ void __launch_bounds__(Shape::threads, 1)
    sweep(const __grid_constant__ SweptResult<Stored> result, const Stored* input /* (N, D, H, W, C) */, const Stored* weight,
          const __grid_constant__ SweptTiles tiles) {
  if constexpr (FRIT_HAS_WARPGROUP_PRODUCTS) {
    extern __shared__ __align__(128) std::byte memory[];
    const std::uint32_t staged_weight = cuda::shared_address(memory), pixels = staged_weight + Shape::weight_bytes;
    const Ring<Shape> ring{pixels, pixels + Shape::stages * Shape::stage_bytes};
    const int first_out_channel = static_cast<int>(blockIdx.y) * Shape::out_channels;
    if (threadIdx.x == 0) {
      for (int i = 0; i < Shape::stages; ++i) {
        ring.full(i).init(warpgroup::threads);
        ring.empty(i).init(Shape::warpgroups * warpgroup::threads / cuda::warp_size);
      }
    }
    stage_weight<Shape>(staged_weight, weight, tiles, first_out_channel);
    warpgroup::fence_stores();
    __syncthreads();
    const auto share = [&](unsigned block) { return static_cast<int>(static_cast<std::int64_t>(tiles.rows()) * block / gridDim.x); };
    const int begin = share(blockIdx.x), end = share(blockIdx.x + 1);
    const int warpgroup_index = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / warpgroup::threads, 0);  // the same for a warp
    if (warpgroup_index == Shape::warpgroups) {
      stage_rows<Shape>(ring, input, tiles, begin, end);
    } else {
      multiply_rows<Shape>(result, ring, staged_weight, tiles, begin, end, warpgroup_index, first_out_channel);
    }
  }
}

using AnyShape = SweepShape<float, 1>;  // for what does not depend on the channels

/// A call as a convolution of `image`: a data gradient is one whose taps are mirrored.
struct Sweep {
  bool forward;
  const ConvolutionGeometry& g;
  const Tensor &image, &result, &weight;
  const ImageAxes &input, &output;
  std::int64_t in_channels, out_channels;

  explicit Sweep(const ConvolutionCall& call)
      : forward(call.kind == cudnn::ConvolutionKind::forward),
        g(call.geometry),
        image(forward ? call.operands.input : call.operands.output),
        result(call.operands.result(call.kind)),
        weight(call.operands.weight),
        input(forward ? g.input : g.output),
        output(forward ? g.output : g.input),
        in_channels(forward ? g.in_channels : g.out_channels),
        out_channels(forward ? g.out_channels : g.in_channels) {}

  std::int64_t columns(std::size_t axis) const { return (output[axis] + AnyShape::positions - 1) / AnyShape::positions; }
  std::int64_t rows() const { return g.batch * columns(0) * columns(2) * output[1]; }
  dim3 grid() const {
    const std::int64_t parts = (out_channels + AnyShape::out_channels - 1) / AnyShape::out_channels;
    const std::int64_t blocks = cuda::properties(weight.device().index).multiprocessors / parts;
    return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, rows())), static_cast<unsigned>(parts));
  }
  /// The part of a device's time in which products are made that are asked for: not outside of the image, nor of rows that two blocks
  /// need, nor while other blocks work.
  double efficiency() const {
    const dim3 blocks = grid();
    const std::int64_t share = (rows() + blocks.x - 1) / blocks.x + 2, positions = AnyShape::positions * AnyShape::positions;
    const std::int64_t multiprocessors = cuda::properties(weight.device().index).multiprocessors;
    return static_cast<double>(g.batch * product(output) * blocks.y) / static_cast<double>(positions * share * multiprocessors);
  }
  SweptTiles tiles() const {
    SweptTiles t = {};
    for (std::size_t i = 0; i < 3; ++i) {
      t.input[i] = static_cast<int>(input[i]), t.output[i] = static_cast<int>(output[i]);
      t.padding[i] = static_cast<int>(forward ? g.padding[i] : g.kernel[i] - 1 - g.padding[i]);
    }
    t.in_channels = static_cast<int>(in_channels), t.out_channels = static_cast<int>(out_channels);
    t.columns_across = static_cast<int>(columns(2)), t.columns_deep = static_cast<int>(columns(0));
    t.columns = static_cast<int>(g.batch) * t.columns_across * t.columns_deep;
    t.mirrored = !forward;
    const std::int64_t taps = product(g.kernel), k_step = g.in_channels * taps, c_step = weight.is_contiguous() ? taps : 1;
    t.out_channel_step = forward ? k_step : c_step, t.channel_step = forward ? c_step : k_step;
    t.tap_step = weight.is_contiguous() ? 1 : g.in_channels;
    return t;
  }
};

/// The epilogue in the kernel's terms; none where it is another one.
template <class Stored>
std::optional<SweptResult<Stored>> swept_result(const ConvolutionCall& call, const Sweep& sweep) {
  const Tensor residual = call.residual();
  SweptResult<Stored> result = {.output = sweep.result.data<Stored>(), .residual = data_or_null<Stored>(residual)};
  if (!call.epilogue.is_exact()) return std::nullopt;
  if (residual.defined() && !(residual.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(residual.raw())))
    return std::nullopt;
  enum { nothing, before, sum, after } last = nothing;
  for (const auto& [activation, function, operand, operand_first] : call.epilogue.steps) {
    const auto next = !activation ? sum : last == nothing ? before : after;
    if (next <= last) return std::nullopt;
    last = next;
    if (!activation) continue;
    const Rectifier rectifier = {static_cast<float>(activation->low), static_cast<float>(activation->high),
                                 static_cast<float>(activation->slope)};
    (last == before ? result.before : result.after) = rectifier;
    result.rectifies = true;
  }
  return result;
}

/// As many channels at a time as the weight leaves room for.
template <class Stored, class Body>
void dispatch_chunks(std::int64_t channels, const Body& body) {
  const std::int64_t chunks = channels * static_cast<std::int64_t>(sizeof(Stored)) / warpgroup::chunk_bytes;
  if (chunks > 4) return body.template operator()<SweepShape<Stored, 8>>();
  if (chunks > 2) return body.template operator()<SweepShape<Stored, 4>>();
  if (chunks > 1) return body.template operator()<SweepShape<Stored, 2>>();
  body.template operator()<SweepShape<Stored, 1>>();
}

template <class Stored>
bool run(const ConvolutionCall& call, CUstream_st* stream) {
  const Sweep of_call(call);
  const std::optional<SweptResult<Stored>> whole = swept_result<Stored>(call, of_call);
  dispatch_chunks<Stored>(of_call.in_channels, [&]<class Shape>() {
    SweptTiles tiles = of_call.tiles();
    for (; tiles.first_channel < tiles.in_channels; tiles.first_channel += Shape::channels) {
      const bool is_first = tiles.first_channel == 0, is_last = tiles.first_channel + Shape::channels >= tiles.in_channels;
      SweptResult<Stored> result = is_last && whole ? *whole : SweptResult<Stored>{.output = of_call.result.data<Stored>()};
      result.bias = is_first ? data_or_null<Stored>(call.operands.bias) : nullptr;
      result.adds = !is_first;
      cuda::launch(sweep<Shape>, {of_call.grid(), dim3(Shape::threads), Shape::shared_bytes}, stream, result, of_call.image.data<Stored>(),
                   of_call.weight.data<Stored>(), tiles);
    }
  });
  return whole.has_value();
}

}  // namespace

bool has_swept_convolution(const ConvolutionCall& call) {
  const auto& [input, weight, output, bias, others] = call.operands;
  if (!on_tensor_cores(weight.dtype()) || input.dtype() != weight.dtype() || !has_mirror(call)) return false;
  const Sweep sweep(call);
  constexpr ImageAxes kernel = {3, 3, 3}, one = {1, 1, 1};
  const std::int64_t chunk = AnyShape::chunk_elements * static_cast<std::int64_t>(sizeof(float) / size_of(weight.dtype()));
  const bool channels = sweep.in_channels % chunk == 0 && sweep.in_channels <= most_swept_channels && sweep.out_channels % widest == 0 &&
                        sweep.out_channels <= most_swept_channels;
  bool lies = input.is_contiguous(Layout::channels_last) && output.is_contiguous(Layout::channels_last);
  for (const Tensor* const tensor : {&input, &weight, &output, &bias}) {
    lies = lies && (!tensor->defined() || cuda::aligned_for_vectors(tensor->raw()));
  }
  const bool some = sweep.in_channels > 0 && sweep.out_channels > 0 && sweep.g.batch * product(sweep.output) * product(sweep.input) > 0;
  const bool fits = some && sweep.rows() < INT32_MAX && sweep.g.batch * sweep.input[0] < INT32_MAX && product(sweep.input) < INT32_MAX;
  return sweep.g.kernel == kernel && sweep.g.dilation == one && channels && lies && fits && warpgroup::available(weight.device().index);
}

bool is_swept_convolution(const ConvolutionCall& call) {
  constexpr double least_efficiency = 0.7;
  if (!has_swept_convolution(call)) return false;
  const Sweep sweep(call);
  const std::int64_t most_pairs = is_half(sweep.weight.dtype()) ? 64 * 64 : 64 * 32;
  // From a single vector, tap_convolution takes less time to few channels.
  const bool few = sweep.forward && sweep.in_channels <= AnyShape::chunk_elements && sweep.out_channels <= 16;
  return !few && sweep.in_channels * sweep.out_channels <= most_pairs && sweep.efficiency() >= least_efficiency;
}

bool swept_convolution(const ConvolutionCall& call, CUstream_st* stream) {
  switch (call.operands.weight.dtype()) {
    case DType::f16: return run<Half>(call, stream);
    case DType::bf16: return run<BFloat16>(call, stream);
    default: return run<float>(call, stream);
  }
}

}  // namespace frit::ops
