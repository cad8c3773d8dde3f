// Channels of a pixel to a block of the image, and back, on CUDA devices.

#include <algorithm>

#include "frit/ops/convolution/lowerings/depth_to_space.cuh"
#include "frit/ops/convolution/lowerings/subpixel.cuh"
#include "frit/ops/elementwise/compiled_program.cuh"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {

BlockMap block_map(const BlockAttributes& a, const Tensor& output, const Tensor& input, bool to_space, int width) {
  const Tensor& image = to_space ? output : input;
  BlockMap map{};
  map.channels_last = !output.is_contiguous();
  FRIT_CHECK(!map.channels_last || output.is_contiguous(Layout::channels_last));
  map.channels_first = a.channels_first;
  map.channels = image.dim(1);
  map.places = product(a.block);
  map.widths = cuda::Divisor(std::max<std::int64_t>(1, image.dim(1) / width));
  map.sample_step = input.strides()[0];
  map.channel_step = input.strides()[1];
  for (int axis = 0; axis < 3; ++axis) {
    const int given = axis - (3 - a.block.rank());
    const bool is = given >= 0;
    map.output[axis] = cuda::Divisor(is ? std::max<std::int64_t>(1, output.dim(given + 2)) : 1);
    map.block[axis] = cuda::Divisor(is ? a.block[given] : 1);
    map.offset[axis] = is ? static_cast<int>(a.offset[given]) : 0;
    map.image[axis] = is ? static_cast<int>(image.dim(given + 2)) : 1;
    map.step[axis] = is ? input.strides()[given + 2] : 0;
  }
  return map;
}

namespace {

/// A thread an element of the output, or `width` channels of it where they are neighbours on both sides: reads and writes each once.
/// Deterministic.
template <class T, int width, class Integer, bool to_space>
__global__ void rearrange(T* output, const T* input, const __grid_constant__ BlockMap map, std::int64_t items) {
  using Vector = cuda::Vector<T, width>;
  for (std::int64_t item = cuda::first_item(); item < items; item += cuda::item_step()) {
    const std::int64_t source = map.place_of<to_space, width>(static_cast<Integer>(item)).input;
    Vector elements{};
    if (source >= 0) elements = *reinterpret_cast<const Vector*>(input + source);
    reinterpret_cast<Vector*>(output)[item] = elements;
  }
}

template <bool to_space>
void run(const KernelContext& call) {
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  const std::int64_t channels = to_space ? output.dim(1) : input.dim(1);
  dispatch_floating_and_halves(output.dtype(), [&]<class T>() {
    const auto launch = [&]<int width>() {
      const BlockMap map = block_map(call.as<BlockAttributes>(), output, input, to_space, width);
      const std::int64_t items = output.elements() / width;
      subpixel::dispatch_count(items, [&]<class Integer>() {
        cuda::launch(rearrange<T, width, Integer, to_space>, cuda::loop_shape(items), call.stream, output.data<T>(), input.data<T>(), map,
                     items);
      });
    };
    constexpr int vector = cuda::vector_width<T>, half = vector / 2;
    const auto lies_in_vectors = [](const Tensor& tensor, int width) {
      bool lies = tensor.strides()[1] == 1 && cuda::aligned_for_vectors(tensor.raw());
      for (int axis = 0; axis < tensor.shape().rank(); ++axis) lies = lies && (axis == 1 || tensor.strides()[axis] % width == 0);
      return lies;
    };
    const bool in_channels = !output.is_contiguous() && !call.as<BlockAttributes>().channels_first;
    const auto takes = [&](int width) {
      return in_channels && channels % width == 0 && lies_in_vectors(input, width) && lies_in_vectors(output, width);
    };
    if (takes(vector)) return launch.template operator()<vector>();
    if (takes(half)) return launch.template operator()<half>();
    launch.template operator()<1>();
  });
}

/// depth_to_space with a program after it, or space_to_depth with one before it.
template <bool to_space>
std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) {
  constexpr std::int64_t most_vectors = std::int64_t{1} << 30;
  constexpr unsigned threads = 256;
  const Tensor& output = call.outputs[0];
  const TensorType given = staged_type(call, stages);
  const Tensor input = Tensor::over(nullptr, given.shape, given.dtype, output.device(), nullptr, Layout::channels_last);
  const std::int64_t channels = to_space ? output.dim(1) : given.shape[1];
  int width = 16 / static_cast<int>(std::min(size_of(output.dtype()), size_of(given.dtype)));
  while (channels % width != 0 || (width > 1 && call.as<BlockAttributes>().channels_first)) width /= 2;
  const std::int64_t vectors = output.elements() / width;
  // What lies in both layouts at once counts as contiguous, whose channels are not neighbours.
  const bool in_channels = !output.is_contiguous() && !input.is_contiguous();
  if (output.elements() < smallest_compiled || vectors > most_vectors || !in_channels) return std::nullopt;
  // The width is a number of the type alone, not of the body.
  const Rearrangement<to_space, 1> body{block_map(call.as<BlockAttributes>(), output, input, to_space, width),
                                        static_cast<std::uint32_t>(vectors)};
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>((vectors + threads - 1) / threads)), dim3(threads)};
  return CentreKernel("frit/ops/convolution/lowerings/block_map.cuh",
                      concat("Rearrangement<", to_space ? "true" : "false", ", ", width, '>'), body, shape,
                      /*asks_for_each_sample=*/false);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(depth_to_space) {
  const auto add = [&](const char* name, KernelFunction run, CentreRule centre_rule) {
    registry.add_cuda(name, {.run = std::move(run),
                             .strided = true,
                             .halves = true,
                             .any_layout_inputs = {0},
                             .any_layout_outputs = {0},
                             .staged = staged_by(std::move(centre_rule))});
  };
  add("depth_to_space", run<true>, centre<true>);
  add("space_to_depth", run<false>, centre<false>);
}
