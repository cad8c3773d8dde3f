// The coefficients by which elementwise operators normalise.

#include "frit/core/cuda/launch.cuh"
#include "frit/ops/cuda/parameter.cuh"
#include "frit/ops/norm/norm_coefficients.h"

namespace frit::ops {
namespace {

/// One thread a channel of a slice. Deterministic.
template <class T, class Stored>
__global__ void find_coefficients(T* reference, T* scale, T* shift /* (count), or null */, const double* means, const double* rstds,
                                  const Stored* weight, const Stored* bias /* (channels), or null */, std::int64_t count,
                                  std::int64_t slice_channels, std::int64_t channels) {
  for (std::int64_t i = cuda::first_item(); i < count; i += cuda::item_step()) {
    const std::int64_t slice = i / slice_channels, channel = i % channels;
    const NormCoefficients<T> found(means[slice], rstds[slice], weight != nullptr ? convert<double>(weight[channel]) : 1,
                                    bias != nullptr ? convert<double>(bias[channel]) : 0);
    if (reference != nullptr) reference[i] = found.reference;
    if (scale != nullptr) scale[i] = found.scale;
    if (shift != nullptr) shift[i] = found.shift;
  }
}

void run(const KernelContext& call) {
  const auto& attributes = call.as<NormCoefficientsAttributes>();
  const std::int64_t count = attributes.shape[0] * attributes.shape[1];
  if (count == 0) return;
  dispatch_floating(attributes.dtype, [&]<class T>() {
    dispatch_floating_and_halves(call.has(2) ? call.inputs[2].dtype() : attributes.dtype, [&]<class Stored>() {
      cuda::launch(find_coefficients<T, Stored>, cuda::loop_shape(count), call.stream, data_or_null<T>(call.outputs, 0),
                   data_or_null<T>(call.outputs, 1), data_or_null<T>(call.outputs, 2), call.inputs[0].data<double>(),
                   call.inputs[1].data<double>(), data_or_null<Stored>(call.inputs, 2), data_or_null<Stored>(call.inputs, 3), count,
                   count / call.inputs[0].elements(), attributes.shape[1]);
    });
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(norm_coefficients) { registry.add_cuda("norm_coefficients", {.run = run, .halves = true}); }
