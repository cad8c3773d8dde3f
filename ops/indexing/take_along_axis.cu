// Elements that indices name on each line along an axis.

#include <limits>

#include "frit/core/convert.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/strided.cuh"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {
namespace {

/// One thread an element. Reads its index and one element. An index outside the line, for which the CPU throws, gives NaN (an integer: 0).
/// Deterministic.
template <class T>
__global__ void take_elements(T* y, const T* x, const std::int64_t* indices, cuda::StridedIndex<2> elements, std::int64_t axis_stride,
                              std::int64_t axis_size, std::int64_t count) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    std::int64_t offsets[2];
    elements.offsets(i, offsets);
    const std::int64_t index = indices[offsets[1]];
    const bool inside = index >= 0 && index < axis_size;
    y[i] = inside ? x[offsets[0] + index * axis_stride] : convert<T>(std::numeric_limits<float>::quiet_NaN());
  }
}

void run(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  const auto& [axis, keep_dims] = call.as<AxisReductionAttributes>();
  const IndexedValues values(input.shape(), axis, keep_dims, call.inputs[1]);
  Strides lines = input.strides();
  const std::int64_t stride = std::exchange(lines[values.axis], 0);
  const cuda::StridedIndex<2> elements(values.shape, {lines, values.indices});
  dispatch_all(input.dtype(), [&]<class T>() {
    cuda::launch(take_elements<T>, cuda::loop_shape(output.elements()), call.stream, output.data<T>(), input.data<T>(),
                 call.inputs[1].data<std::int64_t>(), elements, stride, input.dim(values.axis), output.elements());
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(take_along_axis) {
  registry.add_cuda("take_along_axis", {.run = run, .strided = true, .halves = true, .any_layout_inputs = {0, 1}});
}
