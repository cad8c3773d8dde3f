// The gradients of the norms: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g weighted; of weight the sum of g * xhat, of bias that of
// g.

#include "frit/ops/norm/gradients_cuda.h"
#include "frit/ops/norm/norm_cuda.h"

namespace frit::ops {
namespace {

/// One team a slice of one weight, or of one an element: it sums the slice and writes the input gradient, from registers where they hold
/// the slice, or else by a second read. The input gradient may lie on the gradient. Deterministic.
template <class T, class C, int width>
__global__ void __launch_bounds__(1024)
    backward_slices(T* input_gradient, SumPair* parameter_sums /* (slices), or null */, GradientInputs<T> from, DeviceGeometry g,
                    double inverse_count, Alignment aligned, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t item = team.first_item(); item < g.slices; item += team.item_step()) {
    const bool active = item + team.place() < g.slices;
    const std::int64_t slice = active ? item + team.place() : 0, first = slice * g.slice_stride * width;
    const SliceWalk walk(g, team, 0, 1, active);
    const double rstd = from.rstds[slice];
    const Normalizer<C> xhat(from.means[slice], rstd);
    const SliceWeights weights(g, slice, from.weight != nullptr);
    GradientTiles<T, width> tiles;
    SumPair sums = team.sum(sum_gradients(tiles, from, xhat, weights, first, g, walk, aligned), shared);
    if (!active) continue;
    if (parameter_sums != nullptr && team.rank() == 0) parameter_sums[slice] = sums;
    if (input_gradient == nullptr) continue;
    const double w = slice_weight(from.weight, weights), scale = w * inverse_count;
    const InputGradientRule<C> rule(w, rstd, {scale * sums.first, scale * sums.second});
    write_gradient(input_gradient, tiles, Tile<T, width>::holds(walk.end, team.size), from, xhat, rule, weights, first, g, walk, aligned);
  }
}

/// One team a part of a row: as sums that are not multiplied by weights but for those of elements. Reads g and x once. Deterministic.
template <class T, class C, int width>
__global__ void __launch_bounds__(1024)
    sum_gradient_parts(SumPair* partial /* (rows, parts) */, GradientInputs<T> from, DeviceGeometry rows, SliceOfRow slice_of,
                       std::int64_t parts, Alignment aligned, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < rows.slices * parts; first += team.item_step()) {
    const std::int64_t item = first + team.place();
    const bool active = item < rows.slices * parts;
    const std::int64_t row = active ? item / parts : 0, slice = slice_of(row);
    const SliceWalk walk(rows, team, item - row * parts, parts, active);
    const Normalizer<C> xhat(from.means[slice], from.rstds[slice]);
    GradientTiles<T, width> tiles;
    const SumPair sums = team.sum(sum_gradients(tiles, from, xhat, SliceWeights(rows, row, from.weight != nullptr),
                                                row * rows.slice_stride * width, rows, walk, aligned),
                                  shared);
    if (active && team.rank() == 0) partial[item] = sums;
  }
}

/// One team a part of a row. Reads g, and x unless the statistics are fixed, and writes dx once; dx may lie on g.
template <class T, class C, int width>
__global__ void __launch_bounds__(1024)
    backward_rows(T* input_gradient, GradientInputs<T> from, const SumPair* means /* (slices), null if fixed */, DeviceGeometry rows,
                  SliceOfRow slice_of, std::int64_t parts, Alignment aligned, cuda::Team team) {
  for (std::int64_t first = team.first_item(); first < rows.slices * parts; first += team.item_step()) {
    const std::int64_t item = first + team.place(), row = item / parts;
    if (row >= rows.slices) continue;
    const std::int64_t slice = slice_of(row);
    const SliceWeights weights(rows, row, from.weight != nullptr);
    const double rstd = from.rstds[slice], w = slice_weight(from.weight, weights);
    const InputGradientRule<C> rule = means == nullptr ? InputGradientRule<C>(w, rstd) : InputGradientRule<C>(w, rstd, means[slice]);
    GradientTiles<T, width> tiles;
    write_gradient(input_gradient, tiles, /*held=*/false, from, Normalizer<C>(from.means[slice], rstd), rule, weights,
                   row * rows.slice_stride * width, rows, SliceWalk(rows, team, item - row * parts, parts, true), aligned);
  }
}

/// The sums of the columns of (rows, columns), each element having statistics row * row_statistics + column / columns_per_statistic.
template <class T, int width_>
struct ColumnGradients {
  static constexpr int width = width_;

  GradientInputs<T> from;
  std::int64_t columns, row_statistics, columns_per_statistic;  ///< of which the last is a multiple of width
  bool aligned;

  __device__ void operator()(SumPair (&sums)[width], std::int64_t column, std::int64_t row, std::int64_t end, int step) const {
    constexpr int rows_at_once = 8;
    const std::int64_t place = column / columns_per_statistic;
    while (row < end) {
      Computed<T> sum[width] = {}, product[width] = {};
#pragma unroll
      for (int i = 0; i < rows_at_once; ++i, row += step) {
        if (row >= end) continue;
        const std::int64_t offset = row * columns + column, statistic = row * row_statistics + place;
        const Normalizer<Computed<T>> xhat(from.means[statistic], from.rstds[statistic]);
        const auto g = load_vector<width>(from.gradient + offset, aligned), x = load_vector<width>(from.input + offset, aligned);
#pragma unroll
        for (int k = 0; k < width; ++k) {
          const auto term = convert<Computed<T>>(g[k]);
          sum[k] += term;
          product[k] += term * xhat(convert<Computed<T>>(x[k]));
        }
      }
#pragma unroll
      for (int k = 0; k < width; ++k) sums[k] = sums[k] + SumPair{static_cast<double>(sum[k]), static_cast<double>(product[k])};
    }
  }
};

template <class T>
struct FinishParameters {
  T *weight_gradient, *bias_gradient;  // (channels), or null

  __device__ double weight(std::int64_t, std::int64_t) const { return 1; }
  __device__ void operator()(std::int64_t channel, const SumPair& sums) const {
    if (weight_gradient != nullptr) weight_gradient[channel] = convert<T>(sums.second);
    if (bias_gradient != nullptr) bias_gradient[channel] = convert<T>(sums.first);
  }
};

/// The means over a slice whose sums came in parts, `parts` of each row.
template <class T>
struct FinishMeans {
  SumPair* means;    // (slices)
  const T* weights;  ///< or null
  NormGeometry g;
  std::int64_t parts;

  __device__ double weight(std::int64_t slice, std::int64_t p) const {
    if (weights == nullptr || g.weight_axis == WeightAxis::element) return 1;
    return convert<double>(weights[g.channel(slice, p / parts)]);
  }
  __device__ void operator()(std::int64_t slice, const SumPair& sums) const {
    const double inverse_count = 1 / static_cast<double>(g.slice_elements());
    means[slice] = {sums.first * inverse_count, sums.second * inverse_count};
  }
};

/// How the sums of a call are shared out.
struct BackwardPlan {
  bool by_columns;  ///< all sums
  ColumnSplit columns;
  NormGeometry rows;  ///< that are summed, each with one weight or with one an element
  std::int64_t parts, partial_sums;

  explicit BackwardPlan(const NormGeometry& g)
      : by_columns(lies_in_columns(g)),
        columns(parameter_columns(g)),
        rows(g.weight_axis == WeightAxis::run ? rows_of(g) : g),
        parts(parts_of(rows.slices, rows.slice_elements())),
        partial_sums(std::max(columns.chunks * columns.columns, by_columns ? 0 : rows.slices * parts)) {}

  /// Slices that one team can do all of.
  bool rows_are_slices(const NormGeometry& g) const { return !by_columns && parts == 1 && rows.slices == g.slices; }

 private:
  /// The columns that are summed: those of all elements, where slices or weights lie in them.
  static ColumnSplit parameter_columns(const NormGeometry& g) {
    if (lies_in_columns(g)) return {g.runs, g.slices * g.run_length};
    if (g.weight_axis == WeightAxis::element && g.channels > 0) return {g.slices * g.run_length / g.channels, g.channels};
    return {0, 0};
  }
};

template <class T>
struct Backward {
  const KernelContext& call;
  const NormGeometry& g;
  BackwardPlan plan;
  GradientInputs<T> from;
  T *input_gradient, *weight_gradient, *bias_gradient;
  SumPair *sums, *means;

  Backward(const KernelContext& call_, const NormGeometry& geometry)
      : call(call_),
        g(geometry),
        plan(geometry),
        from{call.inputs[0].data<T>(), call.inputs[1].data<T>(), data_or_null<T>(call.inputs, 4), call.inputs[2].data<double>(),
             call.inputs[3].data<double>()},
        input_gradient(data_or_null<T>(call.outputs, 0)),
        weight_gradient(data_or_null<T>(call.outputs, 1)),
        bias_gradient(data_or_null<T>(call.outputs, 2)),
        sums(reinterpret_cast<SumPair*>(call.scratch.data())),
        means(sums + plan.partial_sums) {}

  bool per_element() const { return g.weight_axis == WeightAxis::element; }
  bool wants_parameters() const { return weight_gradient != nullptr || bias_gradient != nullptr; }
  Alignment aligned(int width) const { return {width, {from.gradient, from.input, input_gradient}, {from.weight}}; }

  void sum_columns() const {
    const std::int64_t columns_per_statistic = g.run_length, row_statistics = per_element() ? g.channels / g.run_length : 0;
    const auto run = [&]<int width>() {
      const ColumnGradients<T, width> terms{from, plan.columns.columns, row_statistics, columns_per_statistic, aligned(width).data};
      launch_columns(sums, terms, plan.columns, call.stream);
    };
    constexpr int width = cuda::vector_width<T>;
    columns_per_statistic % width == 0 ? run.template operator()<width>() : run.template operator()<1>();
  }

  /// The type to compute in.
  template <class Body>
  void with_computed(const Body& body) const {
    if (std::is_same_v<T, double> || g.slice_elements() < least_elements_in_float) {
      body.template operator()<double>();
    } else {
      body.template operator()<Computed<T>>();
    }
  }

  void sum_rows() const {
    if (plan.rows.slices == 0) return;
    dispatch_width<T>(plan.rows, [&]<int width>() {
      const cuda::TeamShape shape(plan.rows.slices * plan.parts, plan.rows.slice_elements() / plan.parts / width, Tile<T, width>::vectors);
      with_computed([&]<class C>() {
        cuda::launch(sum_gradient_parts<T, C, width>, shape.launch, call.stream, sums, from, DeviceGeometry(plan.rows, width),
                     SliceOfRow(g), plan.parts, aligned(width), shape.team);
      });
    });
  }

  void run_slices() const {
    if (g.slices == 0) return;
    dispatch_width<T>(g, [&]<int width>() {
      const cuda::TeamShape shape(g.slices, g.slice_elements() / width, Tile<T, width>::vectors);
      with_computed([&]<class C>() {
        cuda::launch(backward_slices<T, C, width>, shape.launch, call.stream, input_gradient,
                     wants_parameters() && !per_element() ? sums : nullptr, from, DeviceGeometry(g, width),
                     1 / static_cast<double>(g.slice_elements()), aligned(width), shape.team);
      });
    });
  }

  void run_rows(bool fixed) const {
    if (call.inputs[1].elements() == 0) return;
    const NormGeometry rows = rows_of(g);
    const std::int64_t parts = parts_of(rows.slices, rows.run_length);
    dispatch_width<T>(rows, [&]<int width>() {
      const cuda::TeamShape shape(rows.slices * parts, rows.run_length / parts / width, Tile<T, width>::vectors);
      with_computed([&]<class C>() {
        cuda::launch(backward_rows<T, C, width>, shape.launch, call.stream, input_gradient, from, fixed ? nullptr : means,
                     DeviceGeometry(rows, width), SliceOfRow(g), parts, aligned(width), shape.team);
      });
    });
  }

  void finish_parameters() const {
    if (g.channels == 0) return;
    PartialSums partial{sums, 1, g.channels, plan.parts};
    if (g.weight_axis == WeightAxis::run) partial.outer = plan.rows.slices / g.channels;
    if (plan.by_columns || per_element()) partial = {sums, plan.columns.chunks, g.channels, plan.columns.columns / g.channels};
    launch_finish(FinishParameters<T>{weight_gradient, bias_gradient}, partial, call.stream);
  }

  void finish_means() const {
    PartialSums partial{sums, 1, g.slices, plan.rows.slices / std::max<std::int64_t>(g.slices, 1) * plan.parts};
    if (plan.by_columns) partial = {sums, plan.columns.chunks, g.slices, g.run_length};
    launch_finish(FinishMeans<T>{means, from.weight, g, plan.parts}, partial, call.stream);
  }

  void run(bool fixed) const {
    const bool wants_means = input_gradient != nullptr && !fixed;
    if (per_element() && wants_parameters() && g.channels > 0) {
      sum_columns();
      finish_parameters();
    }
    const bool at_once = plan.rows_are_slices(g) && !fixed;
    if (at_once) {
      run_slices();
    } else if (wants_means || (wants_parameters() && !per_element())) {
      plan.by_columns ? sum_columns() : sum_rows();
    }
    if (wants_parameters() && !per_element()) finish_parameters();
    if (input_gradient == nullptr || at_once) return;
    if (!fixed) finish_means();
    run_rows(fixed);
  }
};

}  // namespace

std::size_t cuda_norm_backward_scratch(const NormGeometry& geometry) {
  return static_cast<std::size_t>(BackwardPlan(geometry).partial_sums + geometry.slices) * sizeof(SumPair);
}

void run_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry, bool fixed_statistics) {
  dispatch_floating_and_halves(call.inputs[1].dtype(), [&]<class T>() { Backward<T>(call, geometry).run(fixed_statistics); });
}

}  // namespace frit::ops
