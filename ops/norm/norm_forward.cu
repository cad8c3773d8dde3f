// The norms forward: (x - mean) * rstd * weight + bias.

#include "frit/ops/cuda/cluster.cuh"
#include "frit/ops/norm/column_moments.cuh"
#include "frit/ops/norm/column_plan.cuh"
#include "frit/ops/norm/normalize_slices.cuh"
#include "frit/ops/norm/odd_rows.cuh"

namespace frit::ops {
namespace {

/// Finalizes a slice whose sums came in parts.
template <class T>
struct FinishStatistics {
  StatisticsRule<T> rule;
  const T* input;
  ColumnGeometry g;  ///< where slices begin

  __device__ double weight(std::int64_t, std::int64_t) const { return 1; }
  __device__ void operator()(std::int64_t slice, const SumPair& sums, const cuda::Team& team) const {
    const double pivot = rule.count > 0 ? convert<double>(input[g.first_of(slice)]) : 0;
    rule.write_coefficients(slice, rule(slice, sums, pivot, team.rank() == 0), team);
  }
};

/// The statistics at inference, one thread a slice.
template <class T>
__global__ void take_running_statistics(StatisticsRule<T> rule, std::int64_t slices) {
  for (std::int64_t slice = cuda::first_item(); slice < slices; slice += cuda::item_step()) {
    const SliceStatistics found{load(rule.running.mean, slice), rsqrt(load(rule.running.variance, slice) + rule.eps)};
    rule.write(slice, found.mean, found.rstd);
    rule.write_coefficients(slice, found, cuda::Team{1});
  }
}

/// The statistics of slices of which several processes have parts, one thread a slice.
template <class T>
__global__ void combine_statistics(StatisticsRule<T> rule, ProcessPairs pairs, std::int64_t count /* of a part's elements */) {
  for (std::int64_t slice = cuda::first_item(); slice < pairs.slices; slice += cuda::item_step()) {
    const Moments found = moments_of_all(pairs, slice, count);
    const SliceStatistics statistics = rule(slice, {0, found.variance * rule.count}, found.mean, true);
    rule.write_coefficients(slice, statistics, cuda::Team{1});
  }
}

/// One team a slice: its statistics, from the moments of its `count` parts. No part lies further from the first than their spread allows,
/// so sums around its mean lose nothing.
template <class T>
__global__ void merge_moments(StatisticsRule<T> rule, PartialMoments moments, std::int64_t slices, int count, cuda::Team team) {
  __shared__ SumPair shared[cuda::warp_size];
  for (std::int64_t first = team.first_item(); first < slices; first += team.item_step()) {
    const std::int64_t slice = first + team.place();
    const double* const parts = moments.numbers + min(slice, slices - 1) * count * PartialMoments::count;
    const double pivot = parts[1];
    SumPair sums{0, 0};
#pragma unroll 4
    for (int i = team.rank(); i < count; i += team.size) {
      const double* const part = parts + i * PartialMoments::count;
      const double difference = part[0] > 0 ? part[1] - pivot : 0;
      sums = sums + SumPair{part[0] * difference, part[2] + part[0] * difference * difference};
    }
    const SliceStatistics found = rule(slice, team.sum(sums, shared), pivot, slice < slices && team.rank() == 0);
    if (slice < slices) rule.write_coefficients(slice, found, team);
  }
}

/// A thread for a few rows of a vector of columns, with statistics that are known. Reads and writes each element once; the output may lie
/// on the input.
template <class T, int width>
__global__ void __launch_bounds__(ColumnSplit::threads)
    normalize_columns(T* output, const T* input, ChannelWeights<T> weights, const double* means, const double* rstds, ColumnGeometry g,
                      ColumnSplit split, bool aligned) {
  const ColumnIterator it(split);
  NormCoefficients<Computed<T>> own[width];
  make_once(own, it, split, [&](int column) {
    const std::int64_t slice = g.slice(it.matrix, column);
    return weights.coefficients({means[slice], rstds[slice]}, g.channel(column));
  });
  if (it.inside) write_columns(output, input, own, it, split, aligned);
}

/// Few blocks have a multiprocessor to themselves: more is under way in each.
template <class T, int width>
using WholeColumnMoments = ColumnMoments<T, width, /*rows_at_once=*/8>;

/// A block, or a cluster that shares the rows, for all columns of some slices, which it reads twice, the second time from a cache, and
/// writes once. The output may lie on the input: pivots are read before any block writes. Deterministic.
template <class T, int width>
__global__ void __launch_bounds__(ColumnSplit::threads)
    normalize_whole_columns(T* output, StatisticsRule<T> rule, WholeColumnMoments<T, width> moments, ColumnSplit split) {
  constexpr int most = ColumnSplit::most_lanes * width;
  __shared__ SumPair column_sums[most];
  __shared__ double means[most], rstds[most];  // (slices of the block)
  const ColumnGeometry& g = moments.g;
  const ColumnIterator it(split);
  const bool writes = it.chunk == 0;
  {
    const ColumnTotal<WholeColumnMoments<T, width>> found(moments, it, split);
    const SumPair total = total_of_cluster(found, split);
    const int thread = static_cast<int>(threadIdx.x), group = static_cast<int>(g.group);
    if (found.valid) column_sums[thread] = total;
    if (found.valid && thread % group == 0) means[thread / group] = found.base;
  }
  __syncthreads();
  for_slices(column_sums, g, it, split, [&](int place, int column, const SumPair& sums) {
    const SliceStatistics found = rule(g.slice(it.matrix, column), sums, /*pivot=*/means[place], writes);
    means[place] = found.mean;
    rstds[place] = found.rstd;
  });
  __syncthreads();
  if (output != nullptr || rule.coefficients.any()) {
    NormCoefficients<Computed<T>> own[width];
    const int first = it.column - it.lane * width;
    make_once(own, it, split, [&](int column) {
      const int place = (column - first) / static_cast<int>(g.group);
      const auto found = rule.weights.coefficients({means[place], rstds[place]}, g.channel(column));
      if (writes && g.is_first_of_channel(column)) rule.coefficients.write(it.matrix * rule.channels + g.channel(column), found);
      return found;
    });
    if (it.inside && output != nullptr) write_columns(output, moments.input, own, it, split, moments.aligned);
  }
  leave_cluster(split);
}

/// How the sums of a call's slices are shared out.
struct ForwardPlan {
  bool known;  ///< there are none: the statistics are fixed
  std::optional<ColumnGeometry> columns;
  std::int64_t parts, partial_sums;

  ForwardPlan(const NormGeometry& g, Layout layout)
      : known(g.fixed_statistics), columns(column_geometry(g, layout)), parts(columns ? 1 : parts_of(g.slices, g.slice_elements())) {
    partial_sums = columns ? most_column_sums(*columns) : parts > 1 ? g.slices * parts : 0;
  }
};

enum class ForwardWay { known, slices, whole_columns, clusters, columns, parts };

template <class T>
ForwardWay way_of(const ForwardPlan& plan, const Device& device) {
  if (plan.known) return ForwardWay::known;
  if (plan.partial_sums == 0) return ForwardWay::slices;
  if (!plan.columns) return ForwardWay::parts;
  ForwardWay way = ForwardWay::columns;
  dispatch_column_width<T>(*plan.columns, [&]<int width>() {
    const auto split = whole_slices(*plan.columns, width, sizeof(T), statistics_at_once, most_sharing_blocks(device));
    if (split) way = split->cluster > 1 ? ForwardWay::clusters : ForwardWay::whole_columns;
  });
  return way;
}

/// Contiguous slices as one run each: weights do not matter to sums.
NormGeometry with_long_runs(NormGeometry g) {
  if (g.run_stride != g.run_length) return g;
  g.run_length = g.run_stride = g.slice_elements();
  g.runs = 1;
  return g;
}

template <class T>
struct Forward {
  const KernelContext& call;
  const NormGeometry& g;
  SumPair* sums;
  const T *input, *weight, *bias;
  T* output;
  StatisticsRule<T> rule;

  Forward(const KernelContext& call_, const NormGeometry& geometry, double eps, const RunningStatistics& running)
      : call(call_),
        g(geometry),
        sums(reinterpret_cast<SumPair*>(call.scratch.data())),
        input(call.inputs[0].data<T>()),
        weight(data_or_null<T>(call.inputs, 1)),
        bias(data_or_null<T>(call.inputs, 2)),
        output(data_or_null<T>(call.outputs, 0)),
        rule{data_or_null<double>(call.outputs, 1),
             data_or_null<double>(call.outputs, 2),
             CoefficientOutputs<Computed<T>>(call.outputs),
             {weight, bias},
             g.channels,
             g.slice_channels(),
             running,
             eps,
             static_cast<double>(g.slice_elements()),
             g.slice_elements() > 0 ? 1 / static_cast<double>(g.slice_elements()) : 0} {}

  Alignment aligned(int width) const { return {width, {input, output}, {weight, bias}}; }

  void run_slices() const {
    dispatch_width<T>(g, [&]<int width>() {
      const cuda::TeamShape shape(g.slices, g.slice_elements() / width, Tile<T, width>::vectors);
      cuda::launch(normalize_slices<T, width>, shape.launch, call.stream, output, rule, input, weight, bias, DeviceGeometry(g, width),
                   aligned(width), shape.team);
    });
  }

  void sum_columns(const ForwardPlan& plan) const {
    const ColumnGeometry columns = with_merged_rows(*plan.columns, cuda::vector_width<T>);
    dispatch_column_width<T>(columns, [&]<int width>() {
      const ColumnSplit split(columns, width);
      launch_columns(sums, ColumnMoments<T, width>{input, columns, aligned(width).data}, split, call.stream);
      const FinishStatistics<T> finish{rule, input, *plan.columns};
      launch_finish(finish, {sums, split.chunks * columns.merged_rows, g.slices, columns.group}, call.stream);
    });
  }

  void sum_parts(const ForwardPlan& plan) const {
    const NormGeometry slices = with_long_runs(g);
    dispatch_width<T>(slices, [&]<int width>() {
      const cuda::TeamShape shape(g.slices * plan.parts, g.slice_elements() / plan.parts / width, Tile<T, width>::vectors);
      cuda::launch(frit::ops::sum_parts<T, width>, shape.launch, call.stream, sums, input, DeviceGeometry(slices, width), plan.parts,
                   aligned(width).data, shape.team);
    });
    const ColumnGeometry a_matrix_each{{g.slices, 1, g.slice_stride}, g.slice_stride, 1};
    const FinishStatistics<T> finish{rule, input, a_matrix_each};
    launch_finish(finish, {sums, 1, g.slices, plan.parts}, call.stream);
  }

  void run_whole_columns(const ForwardPlan& plan) const {
    const ColumnGeometry& columns = *plan.columns;
    dispatch_column_width<T>(columns, [&]<int width>() {
      const int most_cluster = most_sharing_blocks(call.inputs[0].device());
      const ColumnSplit split = whole_slices(columns, width, sizeof(T), statistics_at_once, most_cluster).value();
      const WholeColumnMoments<T, width> moments{input, columns, aligned(width).data};
      const void* const arguments[] = {&output, &rule, &moments, &split};
      cuda::launch_clusters(reinterpret_cast<const void*>(normalize_whole_columns<T, width>), split.shape(), split.cluster, call.stream,
                            arguments);
    });
  }

  void write_columns(const ForwardPlan& plan) const {
    const ColumnGeometry columns = with_merged_rows(*plan.columns, cuda::vector_width<T>);
    dispatch_column_width<T>(columns, [&]<int width>() {
      const ColumnSplit split(columns, width, ColumnSplit::passing_blocks);
      cuda::launch(normalize_columns<T, width>, split.shape(), call.stream, output, input, rule.weights, rule.means, rule.rstds, columns,
                   split, aligned(width).data);
    });
  }

  void write_rows() const {
    const NormGeometry rows = rows_of(g);
    const std::int64_t parts = parts_of(rows.slices, rows.run_length);
    if (are_odd<T>(rows)) {
      const OddRows odd{rows.slices, rows.run_length, g.channels, parts, SliceOfRow(g)};
      const cuda::TeamShape shape = odd.shape<T>();
      return cuda::launch(normalize_odd_rows<T>, shape.launch, call.stream, output, input, rule.weights, rule.means, rule.rstds, odd,
                          aligned(cuda::vector_width<T>).data, shape.team);
    }
    dispatch_width<T>(rows, [&]<int width>() {
      const cuda::TeamShape shape(rows.slices * parts, rows.run_length / parts / width, Tile<T, width>::vectors);
      cuda::launch(normalize_rows<T, width>, shape.launch, call.stream, output, input, weight, bias, rule.means, rule.rstds,
                   DeviceGeometry(rows, width), SliceOfRow(g), parts, aligned(width), shape.team);
    });
  }

  /// With statistics that are known.
  void write(const ForwardPlan& plan) const {
    if (output == nullptr || call.inputs[0].elements() == 0) return;
    plan.columns ? write_columns(plan) : write_rows();
  }

  void merge(const PartialMoments& moments) const {
    const std::int64_t count = g.slice_channels() * moments.parts;
    const cuda::TeamShape shape(g.slices, count, 4);
    cuda::launch(merge_moments<T>, shape.launch, call.stream, rule, moments, g.slices, static_cast<int>(count), shape.team);
  }

  /// Statistics that are not wanted for themselves are kept in scratch memory until the results are written.
  void keep_statistics(const ForwardPlan& plan) {
    auto* const memory = reinterpret_cast<double*>(sums + plan.partial_sums);
    if (rule.means == nullptr) rule.means = memory;
    if (rule.rstds == nullptr) rule.rstds = memory + g.slices;
  }
};

}  // namespace

std::size_t cuda_norm_scratch(const NormGeometry& geometry, Layout layout) {
  const std::int64_t sums = std::max(ForwardPlan(geometry, layout).partial_sums, ForwardPlan(geometry, Layout::contiguous).partial_sums);
  return static_cast<std::size_t>(sums + geometry.slices) * sizeof(SumPair);
}

void run_cuda_norm(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running) {
  if (geometry.slices == 0) return;
  const ForwardPlan plan(geometry, call.inputs[0].layout());
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    Forward<T> forward(call, geometry, eps, running);
    if (call.moments.parts > 0) return forward.merge(call.moments);
    const ForwardWay way = way_of<T>(plan, call.inputs[0].device());
    if (way == ForwardWay::slices) return forward.run_slices();
    if (way == ForwardWay::whole_columns || way == ForwardWay::clusters) return forward.run_whole_columns(plan);
    forward.keep_statistics(plan);
    if (way == ForwardWay::known) {
      cuda::launch(take_running_statistics<T>, cuda::loop_shape(geometry.slices), call.stream, forward.rule, geometry.slices);
    } else {
      way == ForwardWay::columns ? forward.sum_columns(plan) : forward.sum_parts(plan);
    }
    forward.write(plan);
  });
}

void find_cuda_statistics(const KernelContext& call, const NormGeometry& geometry, double eps, double* means, double* rstds) {
  const auto statistic = [&](double* memory) {
    return Tensor::over(memory, {geometry.slices}, DType::f64, call.inputs[0].device(), nullptr);
  };
  const Tensor outputs[] = {Tensor(), statistic(means), statistic(rstds)};
  NormGeometry own = geometry;
  own.fixed_statistics = false;
  run_cuda_norm({call.op, call.attributes, call.inputs.first(1), outputs, call.scratch, call.stream}, own, eps);
}

void run_cuda_shared_norm(const KernelContext& call, const NormGeometry& geometry, double eps, const RunningStatistics& running,
                          const SharedSlices& shared) {
  if (geometry.slices == 0) return;
  find_cuda_statistics(call, geometry, /*eps=*/0, shared.own(), shared.own() + geometry.slices);
  const ProcessPairs pairs = shared.gather();
  const ForwardPlan plan(geometry, call.inputs[0].layout());
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    Forward<T> forward(call, geometry, eps, running);
    forward.rule.count *= static_cast<double>(pairs.processes);
    forward.rule.inverse_count /= static_cast<double>(pairs.processes);
    forward.keep_statistics(plan);
    cuda::launch(combine_statistics<T>, cuda::loop_shape(geometry.slices), call.stream, forward.rule, pairs, geometry.slice_elements());
    forward.write(plan);
  });
}

std::string describe_cuda_norm(const KernelContext& call, const NormGeometry& geometry) {
  ForwardWay way = ForwardWay::slices;
  bool odd = false;
  const ForwardPlan plan(geometry, call.inputs[0].layout());
  dispatch_floating_and_halves(call.inputs[0].dtype(), [&]<class T>() {
    way = way_of<T>(plan, call.inputs[0].device());
    odd = are_odd<T>(rows_of(geometry));
  });
  switch (way) {
    case ForwardWay::known: return "statistics known";
    case ForwardWay::slices: return "in one launch, slice by slice";
    case ForwardWay::whole_columns: return "in one launch, whole columns";
    case ForwardWay::clusters: return "in one launch, columns shared by clusters";
    case ForwardWay::columns: return "statistics first, of columns";
    case ForwardWay::parts: break;
  }
  return odd ? "statistics first, of parts; rows in vectors of memory" : "statistics first, of parts";
}

}  // namespace frit::ops
