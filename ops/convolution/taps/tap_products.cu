// The gradient of a convolution's weight on tensor cores, where channels and taps are few.

#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/taps/tap_products.h"
#include "frit/ops/convolution/taps/tap_products_cuda.h"
#include "frit/ops/fused/chain_cuda.h"

namespace frit::ops {
namespace {

/// The gradient from memory.
template <class Stored>
class StoredGradient {
 public:
  static constexpr int blocks_wanted = 2;
  using Product = tensor_cores::Product<Stored>;

  struct Arguments {
    const Stored* gradient;
  };

  __device__ StoredGradient(const Arguments& arguments, const TapTiles& tiles) : staged_(arguments.gradient, tiles) {}
  __device__ void begin(std::int64_t) {}
  __device__ void start(std::uint32_t rows, const TilePlace& tile) const { staged_.start(rows, tile); }
  __device__ void prepare(const TilePlace&) const {}
  __device__ void transform(std::uint32_t rows, const TilePlace&) const {
    if constexpr (Product::rounds) {
#pragma unroll
      for (int i = 0; i < TapTiles::held; ++i) {
        const std::uint32_t address = staged_.address(rows, i);
        if (!staged_.never(i)) cuda::store_shared<Stored>(address, Product::rounded(cuda::load_shared<Stored>(address)));
      }
    }
  }
  __device__ void end() const {}

 private:
  StagedGradient<Stored> staged_;
};

/// The tiles of a call that is one for tensor cores with few channels and more than one tap.
std::optional<TapTiles> tiles_of(const ConvolutionCall& call) {
  const auto& [input, weight, output, bias] = call.operands;
  const bool fits = call.kind == cudnn::ConvolutionKind::weight_gradient && on_tensor_cores(weight.dtype()) &&
                    product(call.geometry.kernel) > 1 && input.is_contiguous(Layout::channels_last) &&
                    output.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(input.raw()) &&
                    cuda::aligned_for_vectors(output.raw());
  return fits ? TapTiles::of_weight_gradient(call.geometry, size_of(weight.dtype())) : std::nullopt;
}

dim3 grid_of(const ConvolutionCall& call, const TapTiles& tiles) {
  return tap_grid(tiles, StoredGradient<float>::blocks_wanted, call.operands.weight.device().index);
}

}  // namespace

bool is_tap_product(const ConvolutionCall& call) { return tiles_of(call).has_value(); }

std::size_t tap_product_scratch(const ConvolutionCall& call) {
  const TapTiles tiles = *tiles_of(call);
  return partial_bytes(tiles, grid_of(call, tiles));
}

void tap_product(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  const TapTiles tiles = *tiles_of(call);
  const dim3 grid = grid_of(call, tiles);
  const auto& [input, weight, output, bias] = call.operands;
  dispatch_stored(weight.dtype(), [&]<class Stored>() {
    if constexpr (!std::is_same_v<Stored, double>) {
      using Source = StoredGradient<Stored>;
      const auto run = [&]<int columns, bool doubled>() {
        run_tap_products<Stored, Source, columns, doubled, TapTiles::held>(weight, reinterpret_cast<float*>(scratch.data()),
                                                                           {output.data<Stored>()}, input, tiles, grid, stream);
      };
      const auto run_columns = [&]<bool doubled>() {
        tiles.warp_columns == TapTiles::columns_of_a_warp[0] ? run.template operator()<TapTiles::columns_of_a_warp[0], doubled>()
                                                             : run.template operator()<TapTiles::columns_of_a_warp[1], doubled>();
      };
      if constexpr (is_half_type<Stored>) {
        if (tiles.doubled()) return run_columns.template operator()<true>();
      }
      run_columns.template operator()<false>();
    }
  });
}

}  // namespace frit::ops
