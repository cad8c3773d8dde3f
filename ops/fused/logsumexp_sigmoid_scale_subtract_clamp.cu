// clamp(ScaledSigmoid(logsumexp(input over channels)) - bias) and its gradients.

#include <utility>

#include "frit/core/cuda/vector.h"
#include "frit/ops/fused/chain_cuda.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp_cuda.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using cuda::default_threads;
using ChainAttributes = LogsumexpSigmoidScaleSubtractClampAttributes;

/// exp(x) for x <= 0 or infinite. Errs by a unit or two in the last place near 0, where the terms that count lie, and by more only where
/// they are small; what float holds with less than its full digits becomes 0.
__device__ float fast_exponential(float x) {
  constexpr float log2_e = 1.4426950408889634f;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * log2_e));
  return result;
}
__device__ double fast_exponential(double x) { return exp(x); }

/// Keeps the compiler from making one indexed access to local memory of a choice between the elements of an array.
__device__ float in_register(float x) {
  asm("" : "+f"(x));
  return x;
}
__device__ double in_register(double x) {
  asm("" : "+d"(x));
  return x;
}

/// How threads share out a tensor: `lanes` neighbours to a pixel, each with every `lanes`-th vector of its channels.
struct Sharing {
  Planes planes;
  BlockedPlaces places, gradient_places;
  OutputPlaces output_places;
  int lanes;
};

/// What a thread holds of one pixel's channels: `kept` vectors of `width`, -infinity where there are no channels.
template <class Stored, int width, int kept>
struct PixelShare {
  using T = ComputeType<Stored>;
  using Elements = cuda::Vector<Stored, width>;
  T values[kept][width];

  /// Of the `left` channels from `first` on. `apart` channels and `step` elements lie between two vectors of a thread. Where there are
  /// none, it reads `anything`: loads without conditions are under way together.
  __device__ void load(const Stored* first, std::int64_t left, int apart, std::int64_t step, const Stored* anything) {
#pragma unroll
    for (int k = 0; k < kept; ++k) {
      const bool there = k * apart < left;
      const Elements elements = *reinterpret_cast<const Elements*>(there ? first + k * step : anything);
#pragma unroll
      for (int j = 0; j < width; ++j) values[k][j] = there ? convert<T>(elements[j]) : -std::numeric_limits<T>::infinity();
    }
  }
  /// Zeros for the factor 0: a pixel that is cut off may be infinite.
  __device__ void store_times(T factor, Stored* first, std::int64_t left, int apart, std::int64_t step) const {
#pragma unroll
    for (int k = 0; k < kept; ++k) {
      Elements elements;
#pragma unroll
      for (int j = 0; j < width; ++j) elements[j] = convert<Stored>(factor == 0 ? T(0) : values[k][j] * factor);
      if (k * apart < left) *reinterpret_cast<Elements*>(first + k * step) = elements;
    }
  }
  /// NaNs aside.
  __device__ T largest() const {
    T result = values[0][0];
#pragma unroll
    for (int i = 1; i < kept * width; ++i) result = max(result, values[i / width][i % width]);
    return result;
  }
  /// Replaces the values by their exponentials and returns the sum.
  __device__ T exponentiate(T shift) {
    T sum = 0;
#pragma unroll
    for (int i = 0; i < kept * width; ++i) sum += values[i / width][i % width] = fast_exponential(values[i / width][i % width] - shift);
    return sum;
  }
};

/// The logsumexp of a pixel, and what its gradient needs.
template <class T>
struct LogSumExp {
  T shift, sum;  ///< shift is the largest element where that is finite, else 0; sum is that of exp(element - shift)

  __device__ T value() const { return log(sum) + shift; }
};

/// A block's share of the pixels, `at_once` of them to each group of lanes, so that several loads are under way. `small` says that a share
/// holds all of a pixel's channels; otherwise they are read again, from the cache, when they are needed again. The pixels of a warp follow
/// each other.
template <class Stored, int width, int kept, int at_once, bool small>
class PixelWalk {
 public:
  using T = ComputeType<Stored>;
  using Share = PixelShare<Stored, width, kept>;

  __device__ PixelWalk(const Stored* input, const Sharing& sharing)
      : input_(input),
        planes_(sharing.planes),
        places_(sharing.places),
        lanes_(sharing.lanes),
        lane_(static_cast<int>(threadIdx.x) % lanes_),
        rows_(cuda::warp_size / lanes_),
        left_(planes_.channels - lane_ * width) {}

  /// Calls close(sample, pixel, logsumexp) once for each pixel, and then use(share, sample, pixel, shift, what close gave) in all its
  /// lanes.
  template <class Close, class Use>
  __device__ void run(const Close& close, const Use& use) const {
    constexpr int warps = default_threads / cuda::warp_size;
    const int warp = static_cast<int>(threadIdx.x) / cuda::warp_size, lane = static_cast<int>(threadIdx.x) % cuda::warp_size;
    const int row = warp * rows_ * at_once + lane / lanes_;
    const std::int64_t block_pixels = warps * rows_ * at_once, step = gridDim.x * block_pixels;
    for (std::int64_t n = blockIdx.y; n < planes_.samples; n += gridDim.y) {
      // Whole warps walk on together, also past the last pixel.
      for (std::int64_t first = blockIdx.x * block_pixels; first < planes_.pixels; first += step) {
        const std::int64_t p = first + row;
        Share shares[at_once];
        T shifts[at_once], sums[at_once], closed[at_once] = {};
        reduce(shares, shifts, sums, n, p);
        for (int done = 0; done < at_once; done += lanes_) close_some(done, closed, shifts, sums, n, p, close);
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          if (p + u * rows_ < planes_.pixels) use(shares[u], n, p + u * rows_, shifts[u], closed[u]);
        }
      }
    }
  }

  /// exp(element - shift) * factor goes to the elements' places in `result`.
  __device__ void store(Share& share, T shift, T factor, Stored* result, const BlockedPlaces& places, std::int64_t n,
                        std::int64_t p) const {
    Stored* const own = result + places(n, lane_ * width, p);
    for (std::int64_t done = 0; done < (small ? 1 : left_); done += share_channels()) {
      if constexpr (!small) {
        load(share, input_ + places_(n, lane_ * width, p), p, done);
        share.exponentiate(shift);
      }
      share.store_times(factor, own + done * places.channel, left_ - done, apart(), apart() * places.channel);
    }
  }

 private:
  __device__ int apart() const { return lanes_ * width; }
  __device__ int share_channels() const { return lanes_ * width * kept; }
  /// `own` is the thread's first element of pixel p.
  __device__ void load(Share& share, const Stored* own, std::int64_t p, std::int64_t done) const {
    const std::int64_t left = p < planes_.pixels ? left_ - done : 0;
    share.load(own + done * places_.channel, left, apart(), apart() * places_.channel, input_);
  }

  /// The shares, which hold the first channels, come back with their exponentials if they are all.
  __device__ void reduce(Share (&shares)[at_once], T (&shifts)[at_once], T (&sums)[at_once], std::int64_t n, std::int64_t p) const {
    const Stored* const own = input_ + places_(n, lane_ * width, p);
    const std::int64_t apart = rows_ * places_.pixel;
#pragma unroll
    for (int u = 0; u < at_once; ++u) load(shares[u], own + u * apart, p + u * rows_, 0);
#pragma unroll
    for (int u = 0; u < at_once; ++u) shifts[u] = shares[u].largest();
    if constexpr (!small) {
      for (std::int64_t done = share_channels(); done < planes_.channels; done += share_channels()) {
        load(shares[0], own, p, done);
        shifts[0] = max(shifts[0], shares[0].largest());
      }
    }
    for (int mask = lanes_ / 2; mask > 0; mask /= 2) {
#pragma unroll
      for (int u = 0; u < at_once; ++u) shifts[u] = max(shifts[u], __shfl_xor_sync(0xffffffffu, shifts[u], mask));
    }
#pragma unroll
    for (int u = 0; u < at_once; ++u) shifts[u] = isfinite(shifts[u]) ? shifts[u] : T(0);
    if constexpr (small) {
#pragma unroll
      for (int u = 0; u < at_once; ++u) sums[u] = shares[u].exponentiate(shifts[u]);
    } else {
      sums[0] = 0;
      for (std::int64_t done = 0; done < planes_.channels; done += share_channels()) {
        load(shares[0], own, p, done);
        sums[0] += shares[0].exponentiate(shifts[0]);
      }
    }
    for (int mask = lanes_ / 2; mask > 0; mask /= 2) {
#pragma unroll
      for (int u = 0; u < at_once; ++u) sums[u] += __shfl_xor_sync(0xffffffffu, sums[u], mask);
    }
  }

  /// Pixels done, done + 1, ... of those at once, each closed by a lane of its own, which tells the others.
  template <class Close>
  __device__ void close_some(int done, T (&closed)[at_once], const T (&shifts)[at_once], const T (&sums)[at_once], std::int64_t n,
                             std::int64_t p, const Close& close) const {
    const int mine = done + lane_;
    LogSumExp<T> own{shifts[0], sums[0]};
#pragma unroll
    for (int u = 1; u < at_once; ++u) {
      const T shift = in_register(shifts[u]), sum = in_register(sums[u]);
      own.shift = u == mine ? shift : own.shift;
      own.sum = u == mine ? sum : own.sum;
    }
    T result = 0;
    if (mine < at_once && p + mine * rows_ < planes_.pixels) result = close(n, p + mine * rows_, own);
#pragma unroll
    for (int u = 0; u < at_once; ++u) {
      const T told = __shfl_sync(0xffffffffu, result, u - done, lanes_);
      if (u >= done && u < done + lanes_) closed[u] = told;
    }
  }

  const Stored* input_;
  Planes planes_;
  BlockedPlaces places_;
  int lanes_, lane_, rows_;  ///< rows: pixels that a warp's threads hold side by side
  std::int64_t left_;        ///< channels from the thread's first on
};

template <class T>
__device__ T sigmoid_of_shifted(T y) {
  return 1 / (1 + fast_exponential(-(y + ScaledSigmoid<T>::shift)));
}

/// Reads the input once and writes a number a pixel. Deterministic.
template <class Stored, int width, int kept, int at_once, bool small>
__global__ void reduce_channels(Stored* output /* (N, image) */, const Stored* input, const Stored* bias, Clamp<ComputeType<Stored>> clamp,
                                const __grid_constant__ Sharing sharing) {
  using T = ComputeType<Stored>;
  const PixelWalk<Stored, width, kept, at_once, small> walk(input, sharing);
  const T subtracted = convert<T>(*bias);
  walk.run(
      [&](std::int64_t n, std::int64_t p, const LogSumExp<T>& sums) {
        const T y = sums.value();
        const T result = clamp(ScaledSigmoid<T>::value(y, sigmoid_of_shifted(y)) - subtracted);
        const std::int64_t place = sharing.output_places(n * sharing.planes.pixels + p);
        if (place >= 0) output[place] = convert<Stored>(result);
        return result;
      },
      [](const auto&...) {});
}

/// Finds the softmax anew: reads the input and the output's gradient once and writes the input's gradient, which may lie over the input,
/// and a sum a block. Deterministic.
template <class Stored, int width, int kept, int at_once, bool small>
__global__ void carry_back(Stored* input_gradient /* or null */, double* block_sums, const Stored* gradient /* (N, image) */,
                           const Stored* input, const Stored* bias, Clamp<ComputeType<Stored>> clamp,
                           const __grid_constant__ Sharing sharing) {
  using T = ComputeType<Stored>;
  __shared__ double shared[cuda::warp_size];
  const PixelWalk<Stored, width, kept, at_once, small> walk(input, sharing);
  const T subtracted = convert<T>(*bias);
  double total = 0;
  walk.run(
      [&](std::int64_t n, std::int64_t p, const LogSumExp<T>& sums) {
        const std::int64_t place = sharing.output_places(n * sharing.planes.pixels + p);
        if (place < 0) return T(0);
        const T y = sums.value(), sigmoid = sigmoid_of_shifted(y);
        const T passed = clamp.gradient(convert<T>(gradient[place]), ScaledSigmoid<T>::value(y, sigmoid) - subtracted);
        total += static_cast<double>(passed);
        return ScaledSigmoid<T>::gradient(passed, y, sigmoid) / sums.sum;
      },
      [&](auto& share, std::int64_t n, std::int64_t p, T shift, T factor) {
        if (input_gradient != nullptr) walk.store(share, shift, factor, input_gradient, sharing.gradient_places, n, p);
      });
  total = cuda::block_reduce(total, shared);
  if (threadIdx.x == 0) block_sums[blockIdx.y * gridDim.x + blockIdx.x] = total;
}

/// One block. Deterministic.
template <class Stored>
__global__ void negate_sum(Stored* bias_gradient, const double* block_sums, int blocks) {
  __shared__ double shared[cuda::warp_size];
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += default_threads) total += block_sums[i];
  total = cuda::block_reduce(total, shared);
  if (threadIdx.x == 0) *bias_gradient = convert<Stored>(static_cast<ComputeType<Stored>>(-total));
}

constexpr std::int64_t most_blocks = 4096;

/// Calls body.operator()<width, kept, at_once, small>(sharing, launch shape) with what suits the channels and the layout.
template <class Stored, class Body>
void dispatch_sharing(const Tensor& input, const Tensor& input_gradient, const ChainAttributes& attributes, const Body& body) {
  constexpr int vector = cuda::vector_width<Stored>, at_once = 4, kept = 16;
  const Planes planes = planes_of(input.shape(), attributes);
  const BlockedPlaces places(input, planes, attributes.block());
  const BlockedPlaces gradient_places = input_gradient.defined() ? BlockedPlaces(input_gradient, planes, attributes.block()) : places;
  Sharing sharing{planes, places, gradient_places, OutputPlaces(input.shape(), attributes, /*cells_first=*/true), 1};
  const auto wide = [](const Tensor& tensor) {
    return tensor.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(tensor.raw());
  };
  const bool vectors = sharing.places.channels_last() && planes.channels % vector == 0 && planes.channels <= vector * cuda::warp_size &&
                       wide(input) && (!input_gradient.defined() || wide(input_gradient));
  if (sharing.places.channels_last()) sharing.lanes = lanes_for(vectors ? planes.channels / vector : planes.channels);
  const auto shape = [&](std::int64_t pixels_at_once) {
    const std::int64_t block_pixels = default_threads / sharing.lanes * pixels_at_once;
    const std::int64_t rows = std::clamp<std::int64_t>(sharing.planes.samples, 1, most_blocks);
    const std::int64_t columns = std::clamp<std::int64_t>((sharing.planes.pixels + block_pixels - 1) / block_pixels, 1, most_blocks / rows);
    return cuda::LaunchShape{dim3(static_cast<unsigned>(columns), static_cast<unsigned>(rows)), dim3(default_threads)};
  };
  if (vectors) {
    // Samples, cells and places in a block follow each other without a gap.
    sharing.planes.pixels *= std::exchange(sharing.planes.samples, 1);
    sharing.places.block = sharing.gradient_places.block = 1;
    sharing.places.pixel = sharing.gradient_places.pixel = planes.channels;
    sharing.output_places.cells_inside = false;
    body.template operator()<vector, 1, at_once, true>(sharing, shape(at_once));
  } else if (planes.channels <= kept * sharing.lanes) {
    body.template operator()<1, kept, 1, true>(sharing, shape(1));
  } else {
    body.template operator()<1, kept, 1, false>(sharing, shape(1));
  }
}

/// inputs (input, bias)
void run_forward(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (!output.defined() || output.elements() == 0) return;
  dispatch_stored(input.dtype(), [&]<class Stored>() {
    const auto& attributes = call.as<ChainAttributes>();
    dispatch_sharing<Stored>(
        input, {}, attributes, [&]<int width, int kept, int at_once, bool small>(const Sharing& sharing, const cuda::LaunchShape& shape) {
          cuda::launch(reduce_channels<Stored, width, kept, at_once, small>, shape, call.stream, output.data<Stored>(),
                       input.data<Stored>(), call.inputs[1].data<Stored>(), Clamp<ComputeType<Stored>>(attributes.clamp()), sharing);
        });
  });
}

/// inputs (gradient, input, bias), outputs (input_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  const Tensor &input = call.inputs[1], &input_gradient = call.outputs[0], &bias_gradient = call.outputs[1];
  auto* const block_sums = reinterpret_cast<double*>(call.scratch.data());
  dispatch_stored(input.dtype(), [&]<class Stored>() {
    const auto& attributes = call.as<ChainAttributes>();
    dispatch_sharing<Stored>(input, input_gradient, attributes,
                             [&]<int width, int kept, int at_once, bool small>(const Sharing& sharing, const cuda::LaunchShape& shape) {
                               cuda::launch(carry_back<Stored, width, kept, at_once, small>, shape, call.stream,
                                            data_or_null<Stored>(input_gradient), block_sums, call.inputs[0].data<Stored>(),
                                            input.data<Stored>(), call.inputs[2].data<Stored>(),
                                            Clamp<ComputeType<Stored>>(attributes.clamp()), sharing);
                               if (!bias_gradient.defined()) return;
                               cuda::launch(negate_sum<Stored>, {dim3(1), dim3(default_threads)}, call.stream, bias_gradient.data<Stored>(),
                                            block_sums, static_cast<int>(shape.grid.x * shape.grid.y));
                             });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(logsumexp_sigmoid_scale_subtract_clamp) {
  using namespace frit::ops;
  registry.add_cuda("logsumexp_sigmoid_scale_subtract_clamp", {.run = run_forward, .halves = true, .any_layout_inputs = {0}});
  registry.add_cuda("logsumexp_sigmoid_scale_subtract_clamp_backward",
                    {.run = run_backward,
                     .halves = true,
                     .scratch = [](const InferContext&) { return static_cast<std::size_t>(most_blocks) * sizeof(double); },
                     .any_layout_inputs = {1},
                     .any_layout_outputs = {0}});
}
