// The first of the greatest (or least) elements along an axis, and its place.

#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/channel_centre.cuh"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/reductions.cuh"

namespace frit::ops {
namespace {

Dims axis_of(const Attributes& attributes, int rank, const Operator& op) {
  return {normalize_axis(attributes.as<AxisReductionAttributes>().axis, rank, op.name.c_str())};
}

std::size_t scratch(const InferContext& call) {
  return LinePlan::scratch_bytes(call.shape(0), axis_of(call.attributes, call.shape(0).rank(), call.op),
                                 sizeof(Extremum<MaximumOrder, double>));
}

/// Either result may be undefined.
template <class Order, class Body>
void with_extremum(const KernelContext& call, const Tensor& values, const Tensor& indices, const Body& body) {
  const Tensor& input = call.inputs[0];
  dispatch_all(input.dtype(), [&]<class T>() {
    body(FirstExtremum<Order, T>{{input.data<T>()}, data_or_null<T>(values), data_or_null<std::int64_t>(indices)},
         Lines(input, axis_of(call.attributes, input.rank(), call.op)));
  });
}

template <class Order>
Kernel kernel() {
  const auto with_reduction = [](const KernelContext& call, const auto& body) {
    with_extremum<Order>(call, call.outputs[0], call.outputs[1], body);
  };
  return line_kernel(with_reduction, scratch);
}

template <class Order>
std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  const Dims axis = axis_of(call.attributes, staged_type(call, stages).shape.rank(), call.op);
  if (!call.outputs[1].defined()) return channel_extremes<Order>(call, stages, axis);
  return channel_reduction(call, stages, axis, concat("FirstExtremum<", Order::name, ", "), [&]<class T>() {
    return FirstExtremum<Order, T>{{nullptr}, data_or_null<T>(call.outputs[0]), data_or_null<std::int64_t>(call.outputs[1])};
  });
}

Kernel argmax_kernel() {
  const auto with_reduction = [](const KernelContext& call, const auto& body) {
    with_extremum<MaximumOrder>(call, {}, call.outputs[0], body);
  };
  return line_kernel(with_reduction, scratch);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(max) {
  registry.add_cuda("max", with_stages(values_compiled(kernel<MaximumOrder>(), centre<MaximumOrder>), centre<MaximumOrder>));
  registry.add_cuda("min", with_stages(values_compiled(kernel<MinimumOrder>(), centre<MinimumOrder>), centre<MinimumOrder>));
  registry.add_cuda("argmax", argmax_kernel());
}
