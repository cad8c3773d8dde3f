// The gradients of the norms: dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), g weighted; of weight the sum of g * xhat, of bias that of
// g.

#include "frit/ops/cuda/cluster.cuh"
#include "frit/ops/norm/backward_slices.cuh"
#include "frit/ops/norm/column_gradients.cuh"
#include "frit/ops/norm/compiled_gradients.cuh"
#include "frit/ops/norm/finish_gradients.cuh"
#include "frit/ops/norm/norm.cuh"
#include "frit/ops/norm/odd_rows.cuh"

namespace frit::ops {
namespace {

// The passes of column_gradients.cuh, where gradients are tensors.

template <class T, class C, int width, bool by_row>
__global__ void __launch_bounds__(ColumnSplit::threads, 3)
    sum_gradient_columns(SumPair* partial, stages::Stored<T> gradient, NormOfColumns<T> norm, ColumnSplit split) {
  write_column_sums(partial, ColumnGradients<T, C, width, by_row>{gradient, norm}, split);
}

template <class T, class C, int width>
__global__ void __launch_bounds__(ColumnSplit::threads)
    backward_columns(const SumPair* means, stages::Stored<T> gradient, NormOfColumns<T> norm, ColumnSplit split,
                     stages::StoredSink<T> input_gradient) {
  write_column_gradients<C, width>(input_gradient, gradient, norm, means, split);
}

template <class T, class C, int width>
__global__ void __launch_bounds__(ColumnSplit::threads, sizeof(C) == sizeof(float) ? 2 : 1)
    backward_whole_columns(SumPair* partial, stages::Stored<T> gradient, NormOfColumns<T> norm, ColumnSplit split,
                           stages::StoredSink<T> input_gradient, double inverse_count, FinishParameters<T> parameters) {
  write_whole_column_gradients(input_gradient, partial, parameters, WholeColumnGradients<T, C, width>{gradient, norm}, inverse_count,
                               split);
}

template <class T, class C, int width>
const void* column_kernel(ColumnPass pass) {
  switch (pass) {
    case ColumnPass::sums: return reinterpret_cast<const void*>(sum_gradient_columns<T, C, width, false>);
    case ColumnPass::sums_by_row: return reinterpret_cast<const void*>(sum_gradient_columns<T, C, width, true>);
    case ColumnPass::input_gradient: return reinterpret_cast<const void*>(backward_columns<T, C, width>);
    case ColumnPass::whole: break;
  }
  if constexpr (std::is_same_v<C, Computed<T>>) return reinterpret_cast<const void*>(backward_whole_columns<T, C, width>);
  return nullptr;  // the others' sums do not fit shared memory
}

/// Their means over all elements of the channels, weighted, one thread a channel.
template <class T>
__global__ void combine_means(SumPair* means /* (channels) */, const T* weights /* or null */, ProcessPairs pairs, double inverse_count) {
  for (std::int64_t channel = cuda::first_item(); channel < pairs.slices; channel += cuda::item_step()) {
    const NormGradientSums sums = sums_of_all(pairs, channel);
    const double share = inverse_count * (weights == nullptr ? 1 : convert<double>(weights[channel]));
    means[channel] = {share * sums.gradient, share * sums.product};
  }
}

/// How the sums of a call are shared out.
struct BackwardPlan {
  std::optional<ColumnGeometry> columns;     ///< all sums are of columns
  std::optional<ColumnGeometry> parameters;  ///< those of weights that belong to elements are, over slices of `group` elements
  NormGeometry rows;                         ///< that are summed, each with one weight or with one an element
  std::int64_t parts, partial_sums;

  BackwardPlan(const NormGeometry& g, Layout layout)
      : columns(column_geometry(g, layout)),
        rows(g.weight_axis == WeightAxis::run ? rows_of(g) : g),
        parts(parts_of(rows.slices, rows.slice_elements())),
        partial_sums(columns ? most_column_sums(*columns) : rows.slices * parts) {
    if (g.weight_axis != WeightAxis::element || g.channels == 0) return;
    parameters = ColumnGeometry{{1, g.slices * g.run_length / g.channels, g.channels}, g.run_length, 1};
    partial_sums = std::max(partial_sums, parameters->most_sums());
  }
};

/// Of a tensor that a program writes, in a type of its own, or null.
void* memory_of(const Tensor& tensor) { return tensor.defined() ? tensor.raw() : nullptr; }

template <class T>
struct Backward {
  const KernelContext& call;
  const NormGeometry& g;
  BackwardPlan plan;
  GradientInputs<T> from;
  T *input_gradient, *weight_gradient, *bias_gradient;
  SumPair *sums, *means;
  const SharedSlices* shared;                 ///< or null
  std::optional<CompiledGradients> compiled;  ///< that have stages

  Backward(const KernelContext& call_, const NormGeometry& geometry, const Stages* stages = nullptr, const SharedSlices* shared_ = nullptr)
      : call(call_),
        g(geometry),
        plan(geometry, call.inputs[1].layout()),
        from{data_or_null<T>(call.inputs, 0), call.inputs[1].data<T>(), data_or_null<T>(call.inputs, 4), call.inputs[2].data<double>(),
             call.inputs[3].data<double>()},
        input_gradient(stages == nullptr ? data_or_null<T>(call.outputs, 0) : static_cast<T*>(memory_of(call.outputs[0]))),
        weight_gradient(data_or_null<T>(call.outputs, 1)),
        bias_gradient(data_or_null<T>(call.outputs, 2)),
        sums(reinterpret_cast<SumPair*>(call.scratch.data())),
        means(sums + plan.partial_sums),
        shared(shared_) {
    if (stages == nullptr) return;
    compiled.emplace(*stages, call.inputs[0], call.inputs[1], call.outputs[0], g.weight_axis != WeightAxis::slice);
  }

  /// What the first runs of the passes would wait for.
  void prepare() const {
    const int width = compiled->width(*plan.columns);
    if (shared == nullptr && whole_split()) {
      (void)compiled->kernel(ColumnPass::whole, width);
    } else {
      for (const ColumnPass pass : {ColumnPass::sums, ColumnPass::input_gradient}) (void)compiled->kernel(pass, width);
    }
  }

  bool per_element() const { return g.weight_axis == WeightAxis::element; }
  bool slice_is_channel() const { return g.weight_axis == WeightAxis::slice; }
  bool wants_parameters() const { return weight_gradient != nullptr || bias_gradient != nullptr; }
  Alignment aligned(int width) const { return {width, {from.gradient, from.input, input_gradient}, {from.weight}}; }

  /// Null where dx has no such terms.
  const SumPair* means_or_null() const { return g.fixed_statistics ? nullptr : means; }

  /// Whether to compute in double although the data is not.
  bool is_wide() const { return !std::is_same_v<T, double> && g.slice_elements() < least_elements_in_float; }
  template <class Body>
  void with_computed(const Body& body) const {
    is_wide() ? body.template operator()<double>() : body.template operator()<Computed<T>>();
  }

  /// Of vectors of columns.
  int width(const ColumnGeometry& columns) const {
    if (compiled) return compiled->width(columns);
    return columns.columns % cuda::vector_width<T> == 0 ? cuda::vector_width<T> : 1;
  }
  /// For passes that read whole rows. Stages want the channels of a vector to be neighbours.
  ColumnGeometry whole_rows() const { return compiled ? *plan.columns : with_merged_rows(*plan.columns, cuda::vector_width<T>); }
  /// Of the sums.
  ColumnSplit column_split(const ColumnGeometry& columns) const { return ColumnSplit(columns, width(columns)); }

  /// Of the kernels that are compiled with frit, or of those that are compiled with the stages.
  void launch(ColumnPass pass, const ColumnGeometry& columns, const ColumnSplit& split, const SumPair* sums_or_means,
              const FinishParameters<T>& finish = {}) const {
    if (split.columns == 0 || split.matrices == 0) return;
    const std::int64_t samples = std::max<std::int64_t>(1, call.inputs[1].shape()[0] / std::max<std::int64_t>(1, columns.matrices));
    const std::int64_t sample_rows = std::max<std::int64_t>(1, columns.rows / samples);
    const bool data_aligned = aligned(split.width).data;
    const NormOfColumns<T> norm{{from.input, data_aligned}, from.weight, from.means, from.rstds, columns, cuda::Divisor(sample_rows)};
    const stages::Stored<T> gradient{from.gradient, data_aligned};
    const stages::StoredSink<T> sink{input_gradient, data_aligned};
    const double inverse_count = 1 / static_cast<double>(std::max<std::int64_t>(1, g.slice_elements()));
    const void* kernel = nullptr;
    if (compiled) {
      kernel = compiled->kernel(pass, split.width);
    } else {
      with_computed(
          [&]<class C>() { kernel = split.width == 1 ? column_kernel<T, C, 1>(pass) : column_kernel<T, C, cuda::vector_width<T>>(pass); });
    }
    const void* const arguments[] = {&sums_or_means, compiled ? compiled->gradient() : &gradient,   &norm,
                                     &split,         compiled ? compiled->input_gradient() : &sink, &inverse_count,
                                     &finish};
    cuda::launch_clusters(kernel, split.shape(), split.cluster, call.stream, arguments);
  }

  std::pair<OddRows, cuda::TeamShape> odd_rows(const NormGeometry& rows, std::int64_t parts) const {
    const OddRows odd{rows.slices, rows.run_length, g.channels, parts, SliceOfRow(g)};
    return {odd, odd.shape<T>()};
  }
  bool odd_aligned() const { return aligned(cuda::vector_width<T>).data; }

  void sum_rows() const {
    if (plan.rows.slices == 0) return;
    if (are_odd<T>(plan.rows)) {
      const auto [odd, shape] = odd_rows(plan.rows, plan.parts);
      return cuda::launch(sum_gradients_of_odd_rows<T>, shape.launch, call.stream, sums, from, odd, odd_aligned(), shape.team);
    }
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

  void run_columns() const {
    const ColumnGeometry columns = whole_rows();
    const ColumnSplit split(columns, width(columns), ColumnSplit::passing_blocks);
    launch(ColumnPass::input_gradient, columns, split, means_or_null());
  }

  /// For all but the sums over samples in one launch, if there are few elements.
  std::optional<ColumnSplit> whole_split() const {
    return whole_slices(*plan.columns, width(*plan.columns), sizeof(T), gradients_at_once, most_sharing_blocks(call.inputs[1].device()));
  }
  std::optional<ColumnSplit> split_of_whole_columns() const {
    const bool possible = plan.columns && input_gradient != nullptr && g.slice_elements() > 0 && !is_wide();
    return possible && !g.fixed_statistics && shared == nullptr ? whole_split() : std::nullopt;
  }
  /// A team can do all of a slice.
  bool slices_at_once() const {
    const bool possible = !plan.columns && plan.parts == 1 && plan.rows.slices == g.slices;
    return possible && !g.fixed_statistics && shared == nullptr;
  }
  bool run_whole_columns() const {
    const auto split = split_of_whole_columns();
    if (!split) return false;
    const ColumnGeometry& columns = *plan.columns;
    const bool column_is_channel = columns.matrices == 1 && columns.channel_columns == 1;
    if (column_is_channel) {
      launch(ColumnPass::whole, columns, *split, nullptr, parameters());
      return true;
    }
    launch(ColumnPass::whole, columns, *split, wants_parameters() ? sums : nullptr);
    if (wants_parameters() && g.channels > 0) {
      const std::int64_t inner = columns.channel_columns;
      launch_finish(parameters(), {sums, columns.matrices * columns.columns / (g.channels * inner), g.channels, inner}, call.stream);
    }
    return true;
  }

  void run_rows() const {
    const NormGeometry rows = rows_of(g);
    const std::int64_t parts = parts_of(rows.slices, rows.run_length);
    if (are_odd<T>(rows)) {
      const auto [odd, shape] = odd_rows(rows, parts);
      return cuda::launch(backward_odd_rows<T>, shape.launch, call.stream, input_gradient, from, means_or_null(), odd, odd_aligned(),
                          shape.team);
    }
    dispatch_width<T>(rows, [&]<int width>() {
      const cuda::TeamShape shape(rows.slices * parts, rows.run_length / parts / width, Tile<T, width>::vectors);
      with_computed([&]<class C>() {
        cuda::launch(backward_rows<T, C, width>, shape.launch, call.stream, input_gradient, from, means_or_null(),
                     DeviceGeometry(rows, width), SliceOfRow(g), parts, aligned(width), shape.team);
      });
    });
  }

  /// Partial sums of columns, as items of so many neighbouring columns each.
  PartialSums column_sums(const ColumnGeometry& columns, std::int64_t items, std::int64_t inner) const {
    const std::int64_t chunks = column_split(columns).chunks;
    const std::int64_t item_sums = std::max<std::int64_t>(1, items * inner);
    return {sums, chunks * columns.matrices * columns.columns / item_sums, items, inner};
  }

  FinishParameters<T> parameters() const { return {weight_gradient, bias_gradient}; }

  void finish_parameters() const {
    if (g.channels == 0) return;
    PartialSums partial{sums, 1, g.channels, plan.parts};
    if (g.weight_axis == WeightAxis::run) partial.outer = plan.rows.slices / g.channels;
    if (plan.columns) partial = column_sums(whole_rows(), g.channels, plan.columns->channel_columns);
    if (plan.parameters) partial = column_sums(*plan.parameters, g.channels, 1);
    launch_finish(parameters(), partial, call.stream);
  }

  PartialSums slice_sums() const {
    if (plan.columns) return column_sums(whole_rows(), g.slices, plan.columns->group);
    return {sums, 1, g.slices, plan.rows.slices / std::max<std::int64_t>(g.slices, 1) * plan.parts};
  }

  /// The parameters' too, where a slice is a channel.
  void finish_means() const {
    const PartialSums partial = slice_sums();
    const FinishMeans<T> finish{means, from.weight, g, plan.columns ? plan.columns->channel_columns : plan.parts};
    slice_is_channel() ? launch_finish(FinishChannels<T>{parameters(), finish}, partial, call.stream)
                       : launch_finish(finish, partial, call.stream);
  }

  void finish_shared_means() const {
    FRIT_CHECK(slice_is_channel());
    launch_finish(FinishParts<T>{parameters(), shared->own(), shared->own() + g.slices}, slice_sums(), call.stream);
    const ProcessPairs pairs = shared->gather();
    if (g.slices == 0) return;
    const double count = static_cast<double>(std::max<std::int64_t>(1, g.slice_elements() * pairs.processes));
    cuda::launch(combine_means<T>, cuda::loop_shape(g.slices), call.stream, means, from.weight, pairs, 1 / count);
  }

  const char* schedule() const {
    if (const auto split = split_of_whole_columns()) {
      return split->cluster > 1 ? "in one launch, columns shared by clusters" : "in one launch, whole columns";
    }
    if (slices_at_once()) return "in one launch, slice by slice";
    if (plan.columns) return "sums first, of columns";
    return are_odd<T>(rows_of(g)) ? "sums first, of rows in vectors of memory" : "sums first, of rows";
  }

  void run() const {
    const bool wants_means = input_gradient != nullptr && !g.fixed_statistics;
    if (plan.parameters && wants_parameters()) {
      launch(ColumnPass::sums_by_row, *plan.parameters, column_split(*plan.parameters), sums);
      finish_parameters();
    }
    if (run_whole_columns()) return;
    const bool at_once = slices_at_once();
    if (at_once) {
      run_slices();
    } else if (wants_means || (wants_parameters() && !per_element())) {
      plan.columns ? launch(ColumnPass::sums, whole_rows(), column_split(whole_rows()), sums) : sum_rows();
    }
    const bool with_means = wants_means && !at_once;
    if (with_means) shared != nullptr ? finish_shared_means() : finish_means();
    if (wants_parameters() && !per_element() && !(with_means && slice_is_channel())) finish_parameters();
    if (input_gradient == nullptr || at_once) return;
    if (call.inputs[1].elements() > 0) plan.columns ? run_columns() : run_rows();
  }
};

bool takes_stages(const KernelContext& call, const Stages& stages, const NormGeometry& g) {
  const Tensor& input = call.inputs[1];
  const Shape& image = input.shape();
  const bool lies_so =
      image.rank() >= 4 && input.layout() == Layout::channels_last && input.elements() > 0 && input.elements() / image[1] <= INT32_MAX;
  const bool is_large = input.dtype() == DType::f64 || g.slice_elements() >= least_elements_in_float;
  const bool fits = stages.before.instructions.empty() ? call.inputs[0].is_contiguous(Layout::channels_last)
                                                       : stages.input == 0 && stages.input_type.dtype == input.dtype();
  return lies_so && is_large && fits && is_stage_possible(stages.before_inputs, image) && is_stage_possible(stages.after_inputs, image) &&
         nvrtc::is_available(input.device().index);
}

}  // namespace

StagedKernel staged_norm_backward(GeometryRule geometry, bool is_shared) {
  const auto geometry_of_call = [=](const KernelContext& call) { return geometry(call.inputs[1].shape(), call.attributes); };
  const auto with_type = [=](const KernelContext& call, const Stages& stages, const auto& body) {
    dispatch_floating_and_halves(call.inputs[1].dtype(), [&]<class T>() {
      const NormGeometry g = geometry_of_call(call);
      if (!is_shared) return body(Backward<T>(call, g, &stages));
      const SharedSlices shared(call, 1);
      const KernelContext rest = shared.rest_of(call);
      body(Backward<T>(rest, g, &stages, &shared));
    });
  };
  return {.takes = [=](const KernelContext& call, const Stages& stages) { return takes_stages(call, stages, geometry_of_call(call)); },
          .run = [=](const KernelContext& call,
                     const Stages& stages) { with_type(call, stages, [](const auto& backward) { backward.run(); }); },
          .prepare = [=](const KernelContext& call,
                         const Stages& stages) { with_type(call, stages, [](const auto& backward) { backward.prepare(); }); }};
}

std::size_t cuda_norm_backward_scratch(const NormGeometry& geometry, Layout layout) {
  const std::int64_t sums = std::max(BackwardPlan(geometry, layout).partial_sums, BackwardPlan(geometry, Layout::contiguous).partial_sums);
  return static_cast<std::size_t>(sums + geometry.slices) * sizeof(SumPair);
}

std::string describe_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry) {
  std::string schedule;
  dispatch_floating_and_halves(call.inputs[1].dtype(), [&]<class T>() { schedule = Backward<T>(call, geometry).schedule(); });
  return schedule;
}

void run_cuda_norm_backward(const KernelContext& call, const NormGeometry& geometry, const SharedSlices* shared) {
  dispatch_floating_and_halves(call.inputs[1].dtype(), [&]<class T>() { Backward<T>(call, geometry, nullptr, shared).run(); });
}

}  // namespace frit::ops
