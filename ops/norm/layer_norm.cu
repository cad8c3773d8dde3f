// (x - mean) * rstd * weight + bias and its gradients. Rows that the lanes of a warp hold are computed here, each in one go; longer ones by
// the kernels that all norms share.

#include <bit>

#include "frit/ops/norm/gradients.cuh"
#include "frit/ops/norm/norm.cuh"

namespace frit::ops {
namespace {

/// Rows one after the other, each held by the smallest team of lanes, a power of 2, that has room for its `vectors`.
struct ShortRows {
  static constexpr int threads = cuda::default_threads;

  std::int64_t rows;
  int vectors, lanes, length;

  /// Vectors that a lane holds, at most.
  template <class T, int width>
  static constexpr int most_held() {
    return width > 1 && sizeof(T) > 2 ? 8 : 4;
  }

  template <class T, int width>
  static bool fit(const NormGeometry& g) {
    return g.slices > 0 && g.run_length > 0 && g.run_length <= most_held<T, width>() * width * cuda::warp_size;
  }

  ShortRows(const NormGeometry& g, int width, int held)
      : rows(g.slices), vectors(static_cast<int>(g.run_length) / width), length(static_cast<int>(g.run_length)) {
    lanes = static_cast<int>(std::bit_ceil(static_cast<unsigned>((vectors + held - 1) / held)));
  }

  int teams() const { return threads / lanes; }
  /// That each team of a block takes a row once.
  std::int64_t rounds() const { return (rows + teams() - 1) / teams(); }
  /// Blocks that sum columns: as many as are resident together, or more, so that no thread sums more rows than it can in its own type.
  std::int64_t summing_blocks() const {
    constexpr std::int64_t resident = 132 * 2, least_rows = 2, most_rows = 64;
    return std::max(std::min(resident, (rounds() + least_rows - 1) / least_rows), (rounds() + most_rows - 1) / most_rows);
  }
};

/// The calling thread's part of rows: vectors rank, rank + lanes, ...
template <class T, int width, int held>
struct HeldRow {
  cuda::VectorWords<T, width> vectors[held];

  __device__ static bool has(const ShortRows& rows, int v) { return rank(rows) + v * rows.lanes < rows.vectors; }
  __device__ static int rank(const ShortRows& rows) { return static_cast<int>(threadIdx.x) & (rows.lanes - 1); }
  /// Of a vector, from the row's beginning.
  __device__ static int offset(const ShortRows& rows, int v) { return (rank(rows) + v * rows.lanes) * width; }

  __device__ void load(const T* row, const ShortRows& rows, bool active, bool aligned) {
#pragma unroll
    for (int v = 0; v < held; ++v) {
      if (active && has(rows, v)) vectors[v] = cuda::VectorWords<T, width>::load(row + offset(rows, v), aligned);
    }
  }
  __device__ Computed<T> operator()(int v, int k) const { return convert<Computed<T>>(vectors[v][k]); }
};

template <class T, class Combine = cuda::Plus>
__device__ T combine_lanes(T value, int lanes, Combine combine = {}) {
#pragma unroll 1
  for (int mask = lanes / 2; mask > 0; mask /= 2) value = combine(value, cuda::shuffle_xor(value, mask));
  return value;
}

struct Greater {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return fmax(a, b);
  }
};

/// Sums around `center`, which is near the mean.
template <class C>
struct RowMoments {
  SumPair sums{0, 0};
  double center = 0;

  /// `x` is the calling thread's part; `origin` is an element of the row.
  template <class T, int width, int held>
  __device__ RowMoments(const HeldRow<T, width, held>& x, C origin, const ShortRows& rows, bool active) {
    constexpr bool may_overflow = sizeof(C) == sizeof(float) && !std::is_same_v<T, Half>;
    const auto for_each = [&](const auto& body) {
#pragma unroll
      for (int v = 0; v < held; ++v) {
        if (!active || !x.has(rows, v)) continue;
#pragma unroll
        for (int k = 0; k < width; ++k) body(x(v, k));
      }
    };
    C sum = 0, largest = 0;
    for_each([&](C element) {
      sum += element - origin;
      if (may_overflow) largest = fmax(largest, fabs(element - origin));
    });
    C mean = combine_lanes(sum, rows.lanes) / static_cast<C>(rows.length);
    if (may_overflow) largest = combine_lanes(largest, rows.lanes, Greater{});
    if (may_overflow && largest > 0 && !(largest > C(1e-15) && largest < C(1e15))) {  // squares that float cannot hold
      mean = 0;
      for_each([&](C element) {
        const double difference = static_cast<double>(element) - static_cast<double>(origin);
        sums = sums + SumPair{difference, difference * difference};
      });
    } else {
      C rest = 0, squares = 0;
      for_each([&](C element) {
        const C difference = (element - origin) - mean;
        rest += difference;
        squares += difference * difference;
      });
      sums = {std::isfinite(mean) ? static_cast<double>(rest) : 0, static_cast<double>(squares)};  // an infinite mean stays infinite
    }
    sums = combine_lanes(sums, rows.lanes);
    center = static_cast<double>(origin) + static_cast<double>(mean);
  }

  __device__ SliceStatistics statistics(double inverse_count, double eps) const {
    const double difference = sums.first * inverse_count, found = sums.second * inverse_count - difference * difference;
    return {center + difference, rsqrt((found < 0 ? 0 : found) + eps)};
  }
};

/// A team of lanes a row, which it reads and writes once. The output may lie on the input. Deterministic.
template <class T, int width, int held>
__global__ void __launch_bounds__(ShortRows::threads, sizeof(T) == 8 ? 2 : 4)
    normalize_short_rows(T* output, double* means, double* rstds, const T* input, const T* weight, const T* bias, ShortRows rows,
                         double inverse_count, double eps, Alignment aligned) {
  using C = Computed<T>;
  const int teams = ShortRows::threads / rows.lanes, team = static_cast<int>(threadIdx.x) / rows.lanes;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams; first < rows.rows;
       first += static_cast<std::int64_t>(gridDim.x) * teams) {
    const std::int64_t row = first + team, place = row * rows.length;
    const bool active = row < rows.rows;
    HeldRow<T, width, held> x;
    x.load(input + place, rows, active, aligned.data);
    const C origin = active ? convert<C>(input[place]) : C{0};
    const SliceStatistics statistics = RowMoments<C>(x, origin, rows, active).statistics(inverse_count, eps);
    if (!active) continue;
    if (x.rank(rows) == 0) {
      if (means != nullptr) means[row] = statistics.mean;
      if (rstds != nullptr) rstds[row] = statistics.rstd;
    }
    if (output == nullptr) continue;
    const Normalizer<C> xhat(statistics.mean, statistics.rstd);
#pragma unroll
    for (int v = 0; v < held; ++v) {
      if (!x.has(rows, v)) continue;
      const int offset = x.offset(rows, v);
      cuda::Vector<T, width> results;
      if (weight != nullptr) {
        const auto w = cuda::VectorWords<T, width>::load(weight + offset, aligned.weights);
        const auto b = cuda::VectorWords<T, width>::load(bias + offset, aligned.weights);
#pragma unroll
        for (int k = 0; k < width; ++k) results[k] = convert<T>(xhat(x(v, k)) * convert<C>(w[k]) + convert<C>(b[k]));
      } else {
#pragma unroll
        for (int k = 0; k < width; ++k) results[k] = convert<T>(xhat(x(v, k)));
      }
      store_vector(output + place + offset, results, aligned.data);
    }
  }
}

/// Sums down columns that the threads of a block have parts of.
template <class C, int width, int held>
struct ColumnParts {
  C sums[held][width] = {};

  /// By all threads of the block; put(column, sum) is called once a column. `shared` may be used again after a barrier.
  template <class Put>
  __device__ void total(C (&shared)[ShortRows::threads * held * width], const ShortRows& rows, const Put& put) {
    const int thread = static_cast<int>(threadIdx.x), warp = thread / cuda::warp_size, lane = thread % cuda::warp_size;
#pragma unroll 1
    for (int mask = rows.lanes; mask < cuda::warp_size; mask *= 2) {
#pragma unroll
      for (int v = 0; v < held; ++v) {
#pragma unroll
        for (int k = 0; k < width; ++k) sums[v][k] += cuda::shuffle_xor(sums[v][k], mask);
      }
    }
    const int stride = held * width * rows.lanes;
    if (lane < rows.lanes) {
#pragma unroll
      for (int v = 0; v < held; ++v) {
#pragma unroll
        for (int k = 0; k < width; ++k) shared[warp * stride + (v * rows.lanes + lane) * width + k] = sums[v][k];
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int column = thread; column < rows.length; column += ShortRows::threads) {
      double sum = 0;
#pragma unroll
      for (int other = 0; other < ShortRows::threads / cuda::warp_size; ++other) {
        sum += static_cast<double>(shared[other * stride + column]);
      }
      put(column, sum);
    }
  }
};

/// Registers for what a thread sums, g and x, at least.
template <class T, int width, int held>
inline constexpr int least_registers = held* width* static_cast<int>(2 * sizeof(Computed<T>) + 2 * sizeof(T)) / 4;

/// A team of lanes a row of g and x, which it reads once, for the input gradient, which may lie on g, and the sums of g and g * xhat over
/// the rows of a block. Deterministic.
template <class T, int width, int held>
__global__ void __launch_bounds__(ShortRows::threads, (least_registers<T, width, held>) > 80 ? 1 : 2)
    backward_short_rows(T* input_gradient, SumPair* partial /* (blocks, length), or null */, GradientInputs<T> from, ShortRows rows,
                        double inverse_count, Alignment aligned) {
  using C = Computed<T>;
  __shared__ C shared[ShortRows::threads * held * width];
  const int teams = ShortRows::threads / rows.lanes, team = static_cast<int>(threadIdx.x) / rows.lanes;
  ColumnParts<C, width, held> gradient_sums, product_sums;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams; first < rows.rows;
       first += static_cast<std::int64_t>(gridDim.x) * teams) {
    const std::int64_t row = first + team, place = row * rows.length;
    const bool active = row < rows.rows;
    HeldRow<T, width, held> g, x;
    g.load(from.gradient + place, rows, active, aligned.data);
    x.load(from.input + place, rows, active, aligned.data);
    const double rstd = active ? from.rstds[row] : 0;
    const Normalizer<C> xhat(active ? from.means[row] : 0, rstd);
    const auto weight_of = [&](int v) {
      cuda::VectorWords<T, width> w;
      if (from.weight != nullptr) w = cuda::VectorWords<T, width>::load(from.weight + g.offset(rows, v), aligned.weights);
      return w;
    };
    const auto weighted = [&](C gradient, const cuda::VectorWords<T, width>& w, int k) {
      return from.weight != nullptr ? gradient * convert<C>(w[k]) : gradient;
    };
    C sum = 0, product = 0;
#pragma unroll
    for (int v = 0; v < held; ++v) {
      if (!active || !g.has(rows, v)) continue;
      const auto w = weight_of(v);
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const C gradient = g(v, k), normal = xhat(x(v, k)), term = weighted(gradient, w, k);
        gradient_sums.sums[v][k] += gradient;
        product_sums.sums[v][k] += gradient * normal;
        sum += term;
        product += term * normal;
      }
    }
    if (input_gradient == nullptr) continue;
    const SumPair sums = combine_lanes(SumPair{static_cast<double>(sum), static_cast<double>(product)}, rows.lanes);
    const InputGradientRule<C> rule(1, rstd, {sums.first * inverse_count, sums.second * inverse_count});
#pragma unroll
    for (int v = 0; v < held; ++v) {
      if (!active || !g.has(rows, v)) continue;
      const auto w = weight_of(v);
      cuda::Vector<T, width> results;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        results[k] = convert<T>(rule.of_weighted(weighted(g(v, k), w, k), [&] { return xhat(x(v, k)); }));
      }
      store_vector(input_gradient + place + g.offset(rows, v), results, aligned.data);
    }
  }
  if (partial == nullptr) return;
  SumPair* const own = partial + static_cast<std::int64_t>(blockIdx.x) * rows.length;
  gradient_sums.total(shared, rows, [&](int column, double sum) { own[column].first = sum; });
  __syncthreads();
  product_sums.total(shared, rows, [&](int column, double sum) { own[column].second = sum; });
}

/// Calls body.template operator()<width, held>(rows) for rows that lanes hold; returns whether they are.
template <class T, class Body>
bool dispatch_short_rows(const NormGeometry& g, const Body& body) {
  const auto with_width = [&]<int width>() {
    constexpr int most = ShortRows::most_held<T, width>(), fewer = most / 4 * 3;
    if (!ShortRows::fit<T, width>(g)) return false;
    // Lanes are a power of 2: what they hold is more than half of the most.
    const ShortRows of_fewer(g, width, fewer), of_most(g, width, most);
    of_fewer.lanes == of_most.lanes ? body.template operator()<width, fewer>(of_fewer) : body.template operator()<width, most>(of_most);
    return true;
  };
  constexpr int width = cuda::vector_width<T>;
  return g.run_length % width == 0 ? with_width.template operator()<width>() : with_width.template operator()<1>();
}

bool lanes_hold_rows(const NormGeometry& g, DType dtype) {
  bool held = false;
  dispatch_floating_and_halves(dtype, [&]<class T>() { dispatch_short_rows<T>(g, [&]<int, int>(const ShortRows&) { held = true; }); });
  return held;
}

constexpr const char* held_rows = "in one launch, rows held by lanes";

void run(const KernelContext& call, const NormGeometry& g) {
  const double eps = call.as<LayerNormAttributes>().eps;
  const double inverse_count = 1 / static_cast<double>(g.run_length);
  bool done = false;
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    const T *const x = call.inputs[0].data<T>(), *const weight = data_or_null<T>(call.inputs, 1),
                   *const bias = data_or_null<T>(call.inputs, 2);
    T* const y = data_or_null<T>(call.outputs, 0);
    done = dispatch_short_rows<T>(g, [&]<int width, int held>(const ShortRows& rows) {
      cuda::launch(normalize_short_rows<T, width, held>, cuda::loop_shape(rows.rounds() * ShortRows::threads), call.stream, y,
                   data_or_null<double>(call.outputs, 1), data_or_null<double>(call.outputs, 2), x, weight, bias, rows, inverse_count, eps,
                   Alignment(width, {x, y}, {weight, bias}));
    });
  });
  if (!done) run_cuda_norm(call, g, eps);
}

/// Rows of few elements are computed in double, by the kernels that all norms share.
bool is_exact_in_own_type(const NormGeometry& g, DType dtype) { return dtype == DType::f64 || g.run_length >= least_elements_in_float; }

void run_backward(const KernelContext& call, const NormGeometry& g) {
  const double inverse_count = 1 / static_cast<double>(g.run_length);
  bool done = false;
  dispatch_floating_and_halves(call.inputs[1].dtype(), [&]<class T>() {
    const GradientInputs<T> from{call.inputs[0].data<T>(), call.inputs[1].data<T>(), data_or_null<T>(call.inputs, 4),
                                 call.inputs[2].data<double>(), call.inputs[3].data<double>()};
    T* const dx = data_or_null<T>(call.outputs, 0);
    const FinishParameters<T> parameters{data_or_null<T>(call.outputs, 1), data_or_null<T>(call.outputs, 2)};
    const bool wants_parameters = parameters.weight_gradient != nullptr || parameters.bias_gradient != nullptr;
    if (!is_exact_in_own_type(g, call.inputs[1].dtype())) return;
    done = dispatch_short_rows<T>(g, [&]<int width, int held>(const ShortRows& rows) {
      auto* const sums = wants_parameters ? reinterpret_cast<SumPair*>(call.scratch.data()) : nullptr;
      const std::int64_t blocks = rows.summing_blocks();
      cuda::launch(backward_short_rows<T, width, held>, {dim3(static_cast<unsigned>(blocks)), dim3(ShortRows::threads)}, call.stream, dx,
                   sums, from, rows, inverse_count, Alignment(width, {from.gradient, from.input, dx}, {from.weight}));
      if (wants_parameters) launch_finish(parameters, {sums, blocks, g.run_length, 1}, call.stream);
    });
  });
  if (!done) run_cuda_norm_backward(call, g);
}

std::string describe(const KernelContext& call, const NormGeometry& g) {
  return lanes_hold_rows(g, call.inputs[0].dtype()) ? held_rows : describe_cuda_norm(call, g);
}

std::string describe_backward(const KernelContext& call, const NormGeometry& g) {
  const DType dtype = call.inputs[1].dtype();
  return is_exact_in_own_type(g, dtype) && lanes_hold_rows(g, dtype) ? held_rows : describe_cuda_norm_backward(call, g);
}

std::size_t backward_scratch(const NormGeometry& g, Layout layout) {
  std::int64_t sums = 0;
  const auto take_more = [&]<int, int>(const ShortRows& rows) { sums = std::max(sums, rows.summing_blocks() * g.run_length); };
  dispatch_short_rows<Half>(g, take_more);
  dispatch_short_rows<float>(g, take_more);
  dispatch_short_rows<double>(g, take_more);
  return std::max(cuda_norm_backward_scratch(g, layout), static_cast<std::size_t>(sums) * sizeof(SumPair));
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(layer_norm) {
  CudaNorm<LayerNormAttributes>{run, run_backward, describe, describe_backward, backward_scratch, /*images=*/false}.add_to(registry,
                                                                                                                           "layer_norm");
}
