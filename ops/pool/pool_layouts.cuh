#pragma once

#include <bit>

#include "frit/ops/cuda/dispatch.cuh"
#include "frit/ops/cuda/planes.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/operator/kernel.h"
#include "frit/ops/pool/channel_windows.cuh"
#include "frit/ops/pool/pool.cuh"

namespace frit::ops {

// Pooling of images in either layout: the launches for those that lie channels-last, and the choice.

inline ChannelSplit channel_split(std::int64_t channels, int width, std::int64_t window_elements) {
  const std::int64_t vectors = (channels + width - 1) / width, channel_blocks = (vectors + pool_threads - 1) / pool_threads;
  const int lanes = static_cast<int>((vectors + channel_blocks - 1) / channel_blocks), room = pool_threads / lanes;
  constexpr std::int64_t most_elements = 64;  // that a thread takes in one by one
  const int strips = static_cast<int>(std::clamp<std::int64_t>(window_elements / most_elements, 1, room));
  return {lanes, strips, room / strips, channel_blocks};
}

/// A kernel of channels-last images: what runs in it, and its blocks.
template <class Body>
struct ChannelKernel {
  Body body;
  cuda::LaunchShape shape;
};

/// `samples` of them with `channels` channels each.
template <int width, class Index, class Reduction>
ChannelKernel<ChannelWindows<width, Index, Reduction>> channel_windows(const Reduction& reduction, const PoolGeometry& g,
                                                                       std::int64_t samples, std::int64_t channels) {
  const ChannelSplit split = channel_split(channels, width, window_elements(g));
  const std::int64_t windows = samples * g.output_elements(), blocks = (windows + split.windows - 1) / split.windows * split.channel_blocks;
  return {{reduction, pool_plan<Index>(g), static_cast<Index>(windows), static_cast<Index>(channels), split},
          cuda::loop_shape(blocks * pool_threads, pool_threads)};
}

template <int width, class Index, class Share>
ChannelKernel<ChannelShares<width, Index, Share>> channel_shares(const Share& share, const PoolGeometry& g, std::int64_t samples,
                                                                 std::int64_t channels) {
  const std::int64_t vectors = channels / width, rows = samples * g.image[0] * g.image[1];
  const auto of_row = static_cast<std::uint64_t>(std::clamp<std::int64_t>(vectors * g.image[2], 1, pool_threads));
  const int row_threads = static_cast<int>(std::bit_ceil(of_row));
  return {{share, pool_plan<Index>(g), cuda::Divisor(vectors), cuda::Divisor(g.image[1]), cuda::Divisor(g.image[0]),
           static_cast<Index>(rows), row_threads},
          cuda::loop_shape(rows * row_threads, pool_threads)};
}

template <class Sink, class T, class Body>
__global__ void __launch_bounds__(pool_threads, resident_pool_blocks) pool_channels(T* output, const T* input, Body body) {
  body(stages::Stored<T>{input, true}, Sink{output, true});
}

/// Whether channels-last images are read in vectors of channels, if all else is aligned too.
inline bool in_vectors(const Tensor& image) {
  return image.dim(1) * size_of(image.dtype()) % 16 == 0 && cuda::aligned_for_vectors(image.raw());
}

/// For Kernel::describe; `backward`: of a gradient.
inline std::string pool_schedule(const KernelContext& call, bool backward) {
  const Tensor& image = backward ? call.outputs[0] : call.inputs[0];
  if (image.layout() == Layout::channels_last) {
    return in_vectors(image) ? "channels in vectors" : "channels one by one, which fill no vectors";
  }
  const PoolOptions& options = backward ? call.as<PoolBackwardAttributes>().options : call.as<PoolOptions>();
  const bool small = backward || windows_are_small(pool_geometry(image.shape(), options, image.rank() - 2));
  return small ? "planes, by a thread each" : "planes, by a team each, as windows are large";
}

/// Whether an image and what windows of it give lie channels-last; one of them may be a pixel, which lies either way.
inline bool lie_channels_last(const Tensor& image, const Tensor& result) {
  return image.layout() == Layout::channels_last || (result.defined() && result.layout() == Layout::channels_last);
}

/// A pooling operator's reduction over all windows of an image, or backward the gradient of the image from what the windows, whose
/// gradients are given, hand to its elements. make(offset) gives the Reduction or Share for windows that begin so many elements further on.
template <class T, bool backward, class Make>
void pool_all_windows(const Tensor& windows, const Tensor& image, const PoolGeometry& g, cudaStream_t stream, const Make& make) {
  const bool channels_last = lie_channels_last(image, windows);
  const std::int64_t channels = channels_last ? image.dim(1) : 1;
  for_each_launch(g, channels, [&]<class Index>(std::int64_t first, std::int64_t count) {
    const std::int64_t offset = first * g.output_elements() * channels;
    const auto part = make(offset);
    T* const x = image.data<T>() + first * g.image_elements() * channels;
    T* const y = moved(data_or_null<T>(windows), offset);
    const bool vectors = in_vectors(image) && cuda::aligned_for_vectors(y) && part.aligned();
    const auto launch = [&](const auto& kernel) {
      using Sink = std::conditional_t<backward, stages::StoredSink<T>, OptionalSink<T>>;
      cuda::launch(pool_channels<Sink, T, decltype(kernel.body)>, kernel.shape, stream, backward ? x : y, backward ? y : x, kernel.body);
    };
    constexpr int width = cuda::vector_width<T>;
    if constexpr (backward) {
      if (!channels_last) return launch_gather<Index>(x, part, y, g, count, stream);
      vectors ? launch(channel_shares<width, Index>(part, g, count, channels)) : launch(channel_shares<1, Index>(part, g, count, channels));
    } else {
      if (!channels_last) return launch_reduction<Index>(part, y, x, g, count, stream);
      vectors ? launch(channel_windows<width, Index>(part, g, count, channels))
              : launch(channel_windows<1, Index>(part, g, count, channels));
    }
  });
}

/// Whether windows overlap so much that a program before them is better computed once for each element.
inline bool overlap_much(const PoolGeometry& g) { return g.output_elements() * window_elements(g) > 3 * g.image_elements(); }

/// A pooling operator's kernel between stages, on images of this type: make.template operator()<T, width, Index>(samples, channels) gives
/// it, "ChannelWindows" or "ChannelShares", with the last template argument `part` in the header.
template <class Make>
std::optional<CentreKernel> channel_centre(const PoolGeometry& g, const TensorType& image, const Stages& stages, const char* header,
                                           const char* kind, const std::string& part, const Make& make) {
  std::optional<CentreKernel> centre;
  const std::int64_t samples = image.shape[0], channels = image.shape[1];
  dispatch_floating_and_halves(image.dtype, [&]<class T>() {
    constexpr int width = cuda::vector_width<T>;
    if (channels % width != 0 || g.planes == 0) return;
    const auto with_index = [&]<class Index>(const char* index) {
      const auto kernel = make.template operator()<T, width, Index>(samples, channels);
      centre.emplace(header, concat(kind, '<', width, ", ", index, ", ", part, '>'), kernel.body, kernel.shape,
                     /*asks_for_each_sample=*/true);
      if (stages.before.instructions.empty()) centre->resident_blocks = resident_pool_blocks;  // programs take more registers
    };
    short_indices_do(g, g.planes) ? with_index.template operator()<std::int32_t>("std::int32_t")
                                  : with_index.template operator()<std::int64_t>("std::int64_t");
  });
  return centre;
}

/// What a pooling operator's kernel says of layouts: its images lie all in one, best channels-last, where threads read vectors.
inline Kernel pool_kernel(KernelFunction run, std::vector<int> inputs, std::vector<int> outputs, CentreRule centre, bool backward = false) {
  return {.run = std::move(run),
          .halves = true,
          .any_layout_inputs = std::move(inputs),
          .any_layout_outputs = std::move(outputs),
          .one_layout = true,
          .prefers_channels_last = true,
          .staged = staged_by(std::move(centre)),
          .describe = [backward](const KernelContext& call) { return pool_schedule(call, backward); }};
}

}  // namespace frit::ops
