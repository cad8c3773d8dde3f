// Convolutions that sweep over columns of the image, see swept_tiles.cuh.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/mirrored_convolution.h"
#include "frit/ops/convolution/tiles/swept_convolution.h"
#include "frit/ops/convolution/tiles/swept_rows.cuh"
#include "frit/ops/convolution/tiles/tap_convolution.h"

namespace frit::ops {
namespace {

constexpr int most_swept_channels = 64;

/// Output positions along (depth, height, width) and channels of a block.
struct BlockSizes {
  ImageAxes positions;
  std::int64_t out_channels;

  template <class Column>
  static constexpr BlockSizes of() {
    return {{Column::deep, 1, Column::across}, Column::out_channels};
  }
};

/// A call as a convolution of `image`: a data gradient is one whose taps are mirrored.
struct Sweep {
  bool forward;
  const ConvolutionGeometry& g;
  const Tensor &image, &result, &weight;
  const ImageAxes &input, &output;
  std::int64_t in_channels, out_channels;
  bool flat;  ///< the kernel leaves the depth alone
  BlockSizes block;

  explicit Sweep(const ConvolutionCall& call)
      : forward(call.kind == cudnn::ConvolutionKind::forward),
        g(call.geometry),
        image(forward ? call.operands.input : call.operands.output),
        result(call.operands.result(call.kind)),
        weight(call.operands.weight),
        input(forward ? g.input : g.output),
        output(forward ? g.output : g.input),
        in_channels(forward ? g.in_channels : g.out_channels),
        out_channels(forward ? g.out_channels : g.in_channels),
        flat(g.kernel[0] == 1),
        block(flat ? BlockSizes::of<SweepColumn<true>>() : BlockSizes::of<SweepColumn<false>>()) {}

  std::int64_t columns(std::size_t axis) const { return (output[axis] + block.positions[axis] - 1) / block.positions[axis]; }
  std::int64_t rows() const { return g.batch * columns(0) * columns(2) * output[1]; }
  dim3 grid() const {
    const std::int64_t parts = (out_channels + block.out_channels - 1) / block.out_channels;
    const std::int64_t blocks = cuda::properties(weight.device().index).multiprocessors / parts;
    return dim3(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, rows())), static_cast<unsigned>(parts));
  }
  /// The part of a device's time in which products are made that are asked for: not outside of the image, nor of rows that two blocks
  /// need, nor while other blocks work.
  double efficiency() const {
    const dim3 blocks = grid();
    const std::int64_t share = (rows() + blocks.x - 1) / blocks.x + 2;
    const std::int64_t multiprocessors = cuda::properties(weight.device().index).multiprocessors;
    return static_cast<double>(g.batch * product(output) * blocks.y) /
           static_cast<double>(product(block.positions) * share * multiprocessors);
  }
  std::int64_t pixel_bytes() const { return in_channels * static_cast<std::int64_t>(size_of(weight.dtype())); }
  /// How many times as long other kernels take where the efficiency is 1: cuDNN's, or a product after im2col.
  double gain() const {
    if (flat) return 2;
    return pixel_bytes() == warpgroup::chunk_bytes ? 4 : in_channels <= 32 ? 2 : 1.4;
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
void dispatch_chunks(const Sweep& sweep, const Body& body) {
  const std::int64_t chunks = sweep.in_channels * static_cast<std::int64_t>(sizeof(Stored)) / warpgroup::chunk_bytes;
  const auto of = [&]<bool flat>() {
    if (chunks > 4 && !flat) return body.template operator()<SweepShape<Stored, 8, false>>();
    if (chunks > 2) return body.template operator()<SweepShape<Stored, 4, flat>>();
    if (chunks > 1) return body.template operator()<SweepShape<Stored, 2, flat>>();
    body.template operator()<SweepShape<Stored, 1, flat>>();
  };
  sweep.flat ? of.template operator()<true>() : of.template operator()<false>();
}

template <class Stored>
bool run(const ConvolutionCall& call, CUstream_st* stream) {
  const Sweep of_call(call);
  const std::optional<SweptResult<Stored>> whole = swept_result<Stored>(call, of_call);
  dispatch_chunks<Stored>(of_call, [&]<class Shape>() {
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
  constexpr ImageAxes deep = {3, 3, 3}, flat = {1, 3, 3}, one = {1, 1, 1};
  const bool kernel = sweep.g.kernel == deep || sweep.g.kernel == flat;
  const bool channels = sweep.pixel_bytes() % warpgroup::chunk_bytes == 0 && sweep.in_channels <= most_swept_channels &&
                        sweep.out_channels % widest == 0 && sweep.out_channels <= most_swept_channels;
  bool lies = input.is_contiguous(Layout::channels_last) && output.is_contiguous(Layout::channels_last);
  for (const Tensor* const tensor : {&input, &weight, &output, &bias}) {
    lies = lies && (!tensor->defined() || cuda::aligned_for_vectors(tensor->raw()));
  }
  const bool some = sweep.in_channels > 0 && sweep.out_channels > 0 && sweep.g.batch * product(sweep.output) * product(sweep.input) > 0;
  const bool fits = some && sweep.rows() < INT32_MAX && sweep.g.batch * sweep.input[0] < INT32_MAX && product(sweep.input) < INT32_MAX;
  return kernel && sweep.g.dilation == one && channels && lies && fits && warpgroup::available(weight.device().index);
}

bool is_swept_convolution(const ConvolutionCall& call) {
  if (!has_swept_convolution(call)) return false;
  const Sweep sweep(call);
  const std::int64_t most_pairs = is_half(sweep.weight.dtype()) ? 64 * 64 : 64 * 32;
  if (sweep.in_channels * sweep.out_channels > most_pairs || sweep.efficiency() * sweep.gain() < 1) return false;
  // Where most of what moves is the output. What tap_convolution does is at memory's speed.
  if (sweep.flat) return sweep.pixel_bytes() <= 64 && sweep.in_channels <= sweep.out_channels && !is_tap_convolution(call);
  // From a single vector, tap_convolution takes less time to few channels.
  return !(sweep.forward && sweep.in_channels <= 4 && sweep.out_channels <= 16);
}

bool swept_convolution(const ConvolutionCall& call, CUstream_st* stream) {
  switch (call.operands.weight.dtype()) {
    case DType::f16: return run<Half>(call, stream);
    case DType::bf16: return run<BFloat16>(call, stream);
    default: return run<float>(call, stream);
  }
}

}  // namespace frit::ops
