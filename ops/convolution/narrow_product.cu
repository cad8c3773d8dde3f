// Convolutions of size 1 with few channels on one side: the bytes of the other side are what they cost.

#include "frit/core/convert.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/reduce.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/geometry.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/cuda/computed.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"

namespace frit::ops {
namespace {

constexpr int threads = 256, positions_at_once = 4;
constexpr std::int64_t most_narrow = 8, most_wide = 64;

/// The weight as a matrix (results, sources), and what it is for.
template <class Stored>
struct NarrowProduct {
  const Stored *weight, *bias;  // bias (results), or null
  std::int64_t positions;
  int sources, results, result_step, source_step;

  __device__ Stored factor(int result, int source) const {
    return result < results && source < sources ? weight[result * result_step + source * source_step] : Stored{};
  }
  __device__ Stored start(int result) const { return bias != nullptr && result < results ? bias[result] : Stored{}; }
};

/// For what was read before: all is, before the first is converted, so that the reads are under way together.
template <class Stored, int rows, int columns>
__device__ void convert_rows(cuda::Vector<float, columns> (&to)[rows], const Stored (&from)[rows][columns]) {
#pragma unroll
  for (int i = 0; i < rows; ++i) to[i] = converted<float, columns>(from[i]);
}

/// What of `most` sums of each of `lanes` threads, neighbours in a warp, one of them has when all are added up: the sums from `first` on.
/// The threads halve what they have among each other, and beyond one sum have the same.
template <int most, int lanes>
struct SharedSums {
  static constexpr int count = most > lanes ? most / lanes : 1;

  int first = 0;
  bool is_first;  ///< of those that have the same

  __device__ explicit SharedSums(int lane) : is_first(lane < most) {
    for (int part = most / 2, bit = 1; part >= count && bit < lanes; part /= 2, bit *= 2) first += (lane & bit) != 0 ? part : 0;
  }
  /// Leaves them in the first `count`.
  __device__ static void add(float (&sums)[most], int lane) {
    int left = most;
#pragma unroll
    for (int bit = 1; bit < lanes; bit *= 2) {
      const bool upper = (lane & bit) != 0;
      const int half = left / 2;
      if (left == 1) sums[0] += __shfl_xor_sync(~0u, sums[0], bit);
#pragma unroll
      for (int k = 0; k < most / 2; ++k) {
        if (k >= half) continue;
        const float given = upper ? sums[k] : sums[k + half], kept = upper ? sums[k + half] : sums[k];
        sums[k] = kept + __shfl_xor_sync(~0u, given, bit);
      }
      left = left == 1 ? 1 : half;
    }
  }
};

/// To at most `most` channels. `lanes` share a position, 16 bytes of its channels each, and add up their sums. Reads and writes each
/// element once, neighbours by neighbours. Deterministic.
template <class Stored, int most, int lanes>
__global__ void __launch_bounds__(threads, 2)
    gather_channels(Stored* output /* (positions, results) */, const Stored* input /* (positions, sources) */,
                    const __grid_constant__ NarrowProduct<Stored> p) {
  using Shared = SharedSums<most, lanes>;
  constexpr int width = cuda::vector_width<Stored>, groups = threads / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes, first_source = lane * width;
  const Shared shared(lane);
  Stored stored_factors[most][width], stored_start[Shared::count];
#pragma unroll
  for (int k = 0; k < most; ++k) {
#pragma unroll
    for (int i = 0; i < width; ++i) stored_factors[k][i] = p.factor(k, first_source + i);
  }
#pragma unroll
  for (int k = 0; k < Shared::count; ++k) stored_start[k] = p.start(shared.first + k);
  cuda::Vector<float, width> factors[most];
  convert_rows(factors, stored_factors);
  const auto start = converted<float, Shared::count>(stored_start);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * groups;
  // The same number of times for all lanes of a warp.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * groups; first < p.positions; first += step * positions_at_once) {
    const std::int64_t own = first + static_cast<int>(threadIdx.x) / lanes;
    cuda::VectorWords<Stored, width> vectors[positions_at_once] = {};
#pragma unroll
    for (int u = 0; u < positions_at_once; ++u) {
      const std::int64_t position = own + u * step;
      if (position < p.positions && first_source < p.sources) {
        vectors[u] = cuda::VectorWords<Stored, width>::load(input + position * p.sources + first_source, true);
      }
    }
#pragma unroll
    for (int u = 0; u < positions_at_once; ++u) {
      const std::int64_t position = own + u * step;
      float sums[most] = {};
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float element = convert<float>(vectors[u][i]);
#pragma unroll
        for (int k = 0; k < most; ++k) sums[k] += element * factors[k][i];
      }
      Shared::add(sums, lane);
#pragma unroll
      for (int k = 0; k < Shared::count; ++k) {
        const int result = shared.first + k;
        if (shared.is_first && result < p.results && position < p.positions) {
          output[position * p.results + result] = convert<Stored>(sums[k] + start[k]);
        }
      }
    }
  }
}

/// From at most `most` channels. Of a position's results each of `lanes` threads has 16 bytes. Reads and writes likewise. Deterministic.
template <class Stored, int most>
__global__ void __launch_bounds__(threads, 2)
    spread_channels(Stored* output /* (positions, results) */, const Stored* input /* (positions, sources) */,
                    const __grid_constant__ NarrowProduct<Stored> p, int lanes) {
  constexpr int width = cuda::vector_width<Stored>;
  const int groups = threads / lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int first_result = static_cast<int>(threadIdx.x) % lanes * width;
  if (group >= groups) return;
  Stored stored_factors[width][most], stored_start[width];
#pragma unroll
  for (int i = 0; i < width; ++i) {
    stored_start[i] = p.start(first_result + i);
#pragma unroll
    for (int c = 0; c < most; ++c) stored_factors[i][c] = p.factor(first_result + i, c);
  }
  cuda::Vector<float, most> factors[width];
  convert_rows(factors, stored_factors);
  const auto start = converted<float, width>(stored_start);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * groups;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * groups + group; first < p.positions;
       first += step * positions_at_once) {
    Stored stored_sources[positions_at_once][most];
#pragma unroll
    for (int u = 0; u < positions_at_once; ++u) {
#pragma unroll
      for (int c = 0; c < most; ++c) {
        const std::int64_t position = first + u * step;
        stored_sources[u][c] = position < p.positions && c < p.sources ? input[position * p.sources + c] : Stored{};
      }
    }
    cuda::Vector<float, most> sources[positions_at_once];
    convert_rows(sources, stored_sources);
#pragma unroll
    for (int u = 0; u < positions_at_once; ++u) {
      cuda::WideVector<Stored> elements;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        float sum = start[i];
#pragma unroll
        for (int c = 0; c < most; ++c) sum += sources[u][c] * factors[i][c];
        elements[i] = convert<Stored>(sum);
      }
      const std::int64_t position = first + u * step;
      if (position < p.positions) cuda::store_vector(output + position * p.results + first_result, elements);
    }
  }
}

template <class Stored>
void run(const ImageCall& call, const Tensor& bias, CUstream_st* stream) {
  const ConvolutionGeometry& g = call.g;
  const int channels = static_cast<int>(g.in_channels);  // of a row of the weight
  const NarrowProduct<Stored> product{.weight = call.weight.template data<Stored>(),
                                      .bias = data_or_null<Stored>(bias),
                                      .positions = g.batch * ops::product(g.input),
                                      .sources = static_cast<int>(call.in_channels),
                                      .results = static_cast<int>(call.out_channels),
                                      .result_step = call.forward ? channels : 1,
                                      .source_step = call.forward ? 1 : channels};
  const int vectors = std::max(product.results, product.sources) / cuda::vector_width<Stored>;
  const bool fewest = std::min(product.results, product.sources) <= 4;
  const auto start = [&](auto* kernel, int lanes, auto... more) {
    const auto shape = cuda::loop_shape((product.positions + positions_at_once - 1) / positions_at_once * lanes, threads);
    cuda::launch(kernel, shape, stream, call.result.template data<Stored>(), call.image.template data<Stored>(), product, more...);
  };
  const auto gather = [&]<int lanes>() {
    fewest ? start(gather_channels<Stored, 4, lanes>, lanes) : start(gather_channels<Stored, 8, lanes>, lanes);
  };
  if (product.results > product.sources) {
    return fewest ? start(spread_channels<Stored, 4>, vectors, vectors) : start(spread_channels<Stored, 8>, vectors, vectors);
  }
  if (vectors <= 4) return gather.template operator()<4>();
  vectors <= 8 ? gather.template operator()<8>() : gather.template operator()<16>();
}

}  // namespace

std::optional<OwnKernel> narrow_product(const ConvolutionCall& call) {
  const ConvolutionGeometry& g = call.geometry;
  const auto& [input, weight, output, bias, others] = call.operands;
  if (call.kind == cudnn::ConvolutionKind::weight_gradient || input.dtype() != weight.dtype() || weight.dtype() == DType::f64) return {};
  const auto [narrow, wide] = std::minmax(g.in_channels, g.out_channels);
  const bool channels =
      narrow > 0 && narrow <= most_narrow && wide <= most_wide && wide * static_cast<std::int64_t>(size_of(weight.dtype())) % 16 == 0;
  if (!is_pointwise(g) || !channels || !lies_in_channels(input) || !lies_in_channels(output)) return {};
  const auto compute = [&call](std::span<std::byte>, CUstream_st* stream) {
    dispatch_f32_and_halves(call.operands.weight.dtype(),
                            [&]<class Stored>() { run<Stored>(ImageCall(call), call.operands.bias, stream); });
  };
  return OwnKernel{"narrow product", 0, compute};
}

}  // namespace frit::ops
