// clamp(ScaledSigmoid(logsumexp(input over channels)) - bias) and its gradients.

#include "frit/core/cuda/vector.h"
#include "frit/ops/elementwise/activation_functors.h"
#include "frit/ops/fused/chain_cuda.h"
#include "frit/ops/fused/logsumexp_sigmoid_scale_subtract_clamp.h"
#include "frit/ops/registry.h"

namespace frit::ops {
namespace {

using cuda::default_threads;

/// The fast exponential errs by a unit or two at 0, where the terms that count lie, and by more only where they are small.
__device__ float fast_exponential(float x) { return __expf(x); }
__device__ double fast_exponential(double x) { return exp(x); }

/// How threads share out a tensor: `lanes` neighbouring threads a pixel, and of its channels `width` at a time to each.
struct Sharing {
  Planes planes;
  Places places;
  int lanes;
};

/// A thread's share of one pixel's channels. With `kept` > 0 the share is that many vectors of `width`, held in registers; with 0 it is read
/// from memory, in practice from the cache, whenever it is walked over.
template <class Stored, int width, int kept>
class PixelShare {
 public:
  using T = ComputeType<Stored>;
  using Elements = cuda::Vector<Stored, width>;

  __device__ PixelShare(const Stored* pixel, const Sharing& sharing, int lane, bool inside)
      : pixel_(pixel), sharing_(sharing), first_(static_cast<std::int64_t>(lane) * width), inside_(inside) {
    if constexpr (kept > 0) {
#pragma unroll
      for (int k = 0; k < kept; ++k) {
        if (holds(k)) elements_[k] = load(k);
      }
    }
  }

  /// Calls body(element, its place from the pixel's first) for each channel of the share.
  template <class Body>
  __device__ void walk(const Body& body) const {
    if constexpr (kept > 0) {
#pragma unroll
      for (int k = 0; k < kept; ++k) {
        if (holds(k)) hand_over(elements_[k], k, body);
      }
    } else {
      for (int k = 0; holds(k); ++k) hand_over(load(k), k, body);
    }
  }

 private:
  __device__ std::int64_t channel(int k) const { return first_ + static_cast<std::int64_t>(k) * sharing_.lanes * width; }
  __device__ bool holds(int k) const { return inside_ && channel(k) < sharing_.planes.channels; }
  __device__ Elements load(int k) const { return *reinterpret_cast<const Elements*>(pixel_ + channel(k) * sharing_.places.channel); }
  template <class Body>
  __device__ void hand_over(const Elements& elements, int k, const Body& body) const {
    cuda::Vector<T, width> values;
#pragma unroll
    for (int j = 0; j < width; ++j) values[j] = convert<T>(elements[j]);
    body(values, channel(k));
  }

  const Stored* pixel_;
  const Sharing& sharing_;
  std::int64_t first_;
  bool inside_;
  Elements elements_[kept > 0 ? kept : 1];
};
}  // namespace
}  // namespace frit::ops
