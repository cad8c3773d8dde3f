// The first of the greatest (or least) elements along an axis, and its place.

#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/channel_centre.cuh"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/reductions.cuh"

namespace frit::ops {
namespace {

Dims axis_of(const Attributes& attributes, int rank, const Operator& op) {
  return {normalize_axis(attributes.as<AxisReductionAttributes>().axis, rank, op.name.c_str())};
}

std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), axis_of(call.attributes, call.shape(0).rank(), call.op), sizeof(Extremum<MaximumOrder, double>));
}

/// Either result may be undefined.
template <class Order>
void run_extremum(const KernelContext& call, const Tensor& values, const Tensor& indices) {
  const Tensor& input = call.inputs[0];
  const Lines lines(input, axis_of(call.attributes, input.rank(), call.op));
  dispatch_all(input.dtype(), [&]<class T>() {
    const FirstExtremum<Order, T> reduction{{input.data<T>()}, data_or_null<T>(values), data_or_null<std::int64_t>(indices)};
    reduce_lines(call.stream, reduction, lines, call.scratch);
  });
}

template <class Order>
void kernel(const KernelContext& call) {
  run_extremum<Order>(call, call.outputs[0], call.outputs[1]);
}

template <class Order>
std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  const Dims axis = axis_of(call.attributes, staged_type(call, stages).shape.rank(), call.op);
  return channel_reduction(call, stages, axis, concat("FirstExtremum<", Order::name, ", "), [&]<class T>() {
    return FirstExtremum<Order, T>{{nullptr}, data_or_null<T>(call.outputs[0]), data_or_null<std::int64_t>(call.outputs[1])};
  });
}

void argmax_kernel(const KernelContext& call) { run_extremum<MaximumOrder>(call, {}, call.outputs[0]); }

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(max) {
  const auto add = [&](const char* name, KernelFunction run, CentreRule centre_rule) {
    registry.add_cuda(
        name,
        {.run = std::move(run), .halves = true, .scratch = scratch, .any_layout_inputs = {0}, .staged = staged_by(std::move(centre_rule))});
  };
  add("max", kernel<MaximumOrder>, centre<MaximumOrder>);
  add("min", kernel<MinimumOrder>, centre<MinimumOrder>);
  registry.add_cuda("argmax", {.run = argmax_kernel, .halves = true, .scratch = scratch, .any_layout_inputs = {0}});
}
