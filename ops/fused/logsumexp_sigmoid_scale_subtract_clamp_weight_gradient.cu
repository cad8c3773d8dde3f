// The weight gradient of a convolution of size 1 before logsumexp_sigmoid_scale_subtract_clamp: its output is read once, and its gradient
// lives in shared memory only.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/taps/tap_products_cuda.h"
#include "frit/ops/cuda/cudnn.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp_backward_cuda.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp_weight_gradient.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using OwnAttributes = LogsumexpWeightGradientAttributes;
using InTurn = LogsumexpWeightGradientInTurn;

/// Blocks to a multiprocessor. Halves have more pixels to a tile, and so more that waits for one of them.
constexpr int blocks_for(bool halves) { return halves ? 3 : 2; }

/// A source for multiply_taps: a warp's part of a tile is a turn of a walk over the pixels that follow each other in it.
template <class Walk, class Stored>
class LogsumexpGradient {
 public:
  static constexpr int blocks_wanted = blocks_for(is_half_type<Stored>);
  using T = ComputeType<Stored>;
  using Product = tensor_cores::Product<Stored>;

  struct Arguments {
    double* block_sums;
    const Stored* gradient;
    const Stored* input;
    Parameter<Stored> bias;
    Clamp<T> clamp;
    Sharing sharing;
  };

  __device__ LogsumexpGradient(const Arguments& arguments, const TapTiles& tiles)
      : a_(arguments), tiles_(tiles), walk_(a_.input, a_.sharing), back_(a_.gradient, a_.bias, a_.clamp, a_.sharing) {
    from_ = static_cast<int>(walk_.first_offset(walk_.turn(warp())));
    const int pixel = from_ / tiles.outputs;
    staged_ = static_cast<std::uint32_t>(pixel * tiles.gradient_step + from_ - pixel * tiles.outputs) * sizeof(Stored);
    further_ = static_cast<std::uint32_t>(walk_.vector_step() / tiles.outputs * tiles.gradient_step) * sizeof(Stored);
  }

  __device__ void begin(std::int64_t) {}
  __device__ void start(std::uint32_t rows, const TilePlace& tile) const {
    const Stored* const from = a_.input + static_cast<std::int64_t>(tile.column) * tiles_.outputs + from_;
    if (tile.column + tiles_.pixels() <= tiles_.size[2]) {
#pragma unroll
      for (int u = 0; u < Walk::vectors; ++u) cuda::copy_bytes<16>(rows + staged_ + u * further_, from + u * walk_.vector_step());
      return;
    }
    const auto turn = turn_of(tile);
#pragma unroll
    for (int u = 0; u < Walk::vectors; ++u) {
      const bool present = walk_.holds(turn, u);
      cuda::copy_bytes_or_zeros<16>(rows + staged_ + u * further_, present ? from + u * walk_.vector_step() : a_.input, present);
    }
  }
  __device__ void prepare(const TilePlace& tile) {
    walk_.prepare(turn_of(tile), prepared_, [&](auto n, auto p) { return back_.prepare(n, p); });
  }
  __device__ void transform(std::uint32_t rows, const TilePlace& tile) {
    auto turn = turn_of(tile);
#pragma unroll
    for (int u = 0; u < Walk::vectors; ++u) turn.loaded[u] = cuda::load_shared<Stored>(rows + staged_ + u * further_);
    std::uint32_t next = rows + staged_;  // the shares come in their order, and those that are not there are the last
    walk_.finish(
        turn, prepared_, [&](const PixelGradient<T>& incoming, const PixelSum<Stored>& sums) { return back_.close(incoming, sums); },
        [&](auto& share, auto, auto, T, T factor) {
          cuda::store_shared<Stored>(next, Product::rounded(Walk::gradient(share, factor)));
          next += further_;
        });
  }
  __device__ void end() const {
    __shared__ double shared[cuda::warp_size];
    const double total = cuda::block_reduce(back_.total(), shared);
    if (threadIdx.x == 0) a_.block_sums[blockIdx.y * gridDim.x + blockIdx.x] = total;
  }

 private:
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / cuda::warp_size; }
  __device__ auto turn_of(const TilePlace& tile) const { return walk_.turn(tile.column / (tiles_.pixels() / TapTiles::warps) + warp()); }

  const Arguments& a_;
  const TapTiles& tiles_;
  Walk walk_;
  PixelGradient<T> prepared_[Walk::closed];
  CarryBack<Walk, Stored> back_;
  int from_;  ///< of the thread's first vector, from the tile's beginning
  std::uint32_t staged_, further_;
};

/// How many of the walk's channels lie in one pixel, and blocks of columns to a warp, that there is a kernel for.
constexpr std::int64_t channels_of_walks = 16;
constexpr int warp_columns = 2;

/// The tiles, if the kernel is for this call.
std::optional<TapTiles> tiles_of(const Tensor& input, const Tensor& image, const OwnAttributes& a) {
  const auto wide = [](const Tensor& t) { return t.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(t.raw()); };
  if (!on_tensor_cores(input.dtype()) || !a.chain.blocked() || input.elements() == 0 || !wide(input) || !wide(image)) return std::nullopt;
  if (planes_of(input.shape(), a.chain).channels != channels_of_walks || product(a.product.kernel_size) != 1) return std::nullopt;
  const OutputPlaces places(input.shape(), a.chain, /*cells_first=*/false);
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(input.dtype()));
  if (!RecurringPlaces::fits(places, static_cast<int>(cuda::warp_size * vector / channels_of_walks))) return std::nullopt;
  const ConvolutionGeometry geometry = weight_gradient_geometry(input.shape(), image.shape(), a.product);
  const std::optional<TapTiles> tiles = TapTiles::of_weight_gradient(geometry, size_of(input.dtype()));
  const bool fits = tiles && !tiles->doubled() && tiles->warp_columns == warp_columns && tiles->samples == 1 &&
                    tiles->channels / vector * tiles->pixels() <= TapTiles::threads;
  return fits ? tiles : std::nullopt;
}

struct Scratch {
  dim3 grid;
  std::size_t sums, bytes;

  Scratch(const TapTiles& tiles, DType dtype, int device)
      : grid(tap_grid(tiles, blocks_for(is_half(dtype)), device)), sums(partial_bytes(tiles, grid)), bytes(sums + grid.x * sizeof(double)) {}
};

template <class Stored, class Walk>
void run_tiles(const KernelContext& call, const TapTiles& tiles) {
  using Source = LogsumexpGradient<Walk, Stored>;
  const Tensor &input = call.inputs[1], &weight_gradient = call.outputs[0], &bias_gradient = call.outputs[1];
  const auto& chain = call.as<OwnAttributes>().chain;
  const Scratch scratch(tiles, input.dtype(), input.device().index);
  const Planes planes = planes_of(input.shape(), chain);
  const BlockedPlaces places(input, planes, chain.block());
  Sharing sharing{planes, places, places, OutputPlaces(input.shape(), chain, /*cells_first=*/false),
                  static_cast<int>(channels_of_walks) / cuda::vector_width<Stored>};
  sharing.planes.pixels *= std::exchange(sharing.planes.samples, 1);
  auto* const block_sums = reinterpret_cast<double*>(call.scratch.data() + scratch.sums);
  run_tap_products<Stored, Source, warp_columns, false, 1>(
      weight_gradient, reinterpret_cast<float*>(call.scratch.data()),
      {block_sums, call.inputs[0].data<Stored>(), input.data<Stored>(), Parameter<Stored>(call.inputs[2]),
       Clamp<ComputeType<Stored>>(chain.clamp()), sharing},
      call.inputs[3], tiles, scratch.grid, call.stream);
  if (!bias_gradient.defined()) return;
  cuda::launch(negate_sum<Stored>, {dim3(1), dim3(sum_threads)}, call.stream, Parameter<Stored>(bias_gradient), block_sums,
               static_cast<int>(scratch.grid.x));
}

/// inputs (gradient, input, bias, image), outputs (weight_gradient, bias_gradient)
void run(const KernelContext& call) {
  const auto& attributes = call.as<OwnAttributes>();
  const Tensor& input = call.inputs[1];
  const std::optional<TapTiles> tiles = call.outputs[0].defined() ? tiles_of(input, call.inputs[3], attributes) : std::nullopt;
  if (!tiles || call.scratch.size() < Scratch(*tiles, input.dtype(), input.device().index).bytes) {
    return InTurn(input.rank() - 2, attributes).run(call);
  }
  switch (input.dtype()) {
    case DType::f16: return run_tiles<Half, PairWalk<Half>>(call, *tiles);
    case DType::bf16: return run_tiles<BFloat16, PairWalk<BFloat16>>(call, *tiles);
    default: return run_tiles<float, VectorWalk<float, 4, CellPlaces>>(call, *tiles);
  }
}

std::size_t scratch_bytes(const InferContext& call) {
  const auto& attributes = call.as<OwnAttributes>();
  Device device{DeviceKind::cuda};
  FRIT_CUDA_CALL(cudaGetDevice(&device.index));
  const auto tensor = [&](std::size_t i) {
    const Layout layout = call.layouts.inputs.empty() ? Layout::contiguous : call.layouts.inputs[i];
    return Tensor::over(nullptr, call.shape(i), call.inputs[i].dtype, device, nullptr, layout);
  };
  if (const auto tiles = tiles_of(tensor(1), tensor(3), attributes)) return Scratch(*tiles, call.inputs[1].dtype, device.index).bytes;
  return InTurn(call.shape(1).rank() - 2, attributes).scratch(call.inputs, call.layouts, device);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(logsumexp_sigmoid_scale_subtract_clamp_weight_gradient) {
  using namespace frit::ops;
  registry.add_cuda("logsumexp_sigmoid_scale_subtract_clamp_weight_gradient", {.run = run,
                                                                               .halves = true,
                                                                               .scratch = scratch_bytes,
                                                                               .any_layout_inputs = {1, 3},
                                                                               .any_layout_outputs = {0},
                                                                               .library = cudnn::version()});
}
