// The first of the greatest (or least) elements along an axis, and its place.

#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/channel_centre.cuh"

FRIT_CUDA_KERNELS(max) {
  registry.add_cuda("max", staged_extremum_kernel<FirstExtremum, MaximumOrder, AxisReductionAttributes>("FirstExtremum"));
  registry.add_cuda("min", staged_extremum_kernel<FirstExtremum, MinimumOrder, AxisReductionAttributes>("FirstExtremum"));
  registry.add_cuda("argmax", extremum_kernel<FirstExtremum, MaximumOrder, AxisReductionAttributes>());
}
