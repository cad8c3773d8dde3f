// Channels of a pixel to a block of the image, and back, on CUDA devices.

#include "frit/ops/convolution/lowerings/subpixel.cuh"
#include "frit/ops/operator/registry.h"

namespace frit::ops {
namespace {

struct Blocks {
  subpixel::Elements output;
  subpixel::Steps input;
  subpixel::Axes block, offset, image;  ///< image: of space_to_depth's input
  subpixel::Sizes places;               ///< in a block
  cuda::Divisor widths;                 ///< of the image's channels
  std::int64_t channels;                ///< of the image
};

/// Where the elements of depth_to_space's output come from.
template <class Integer, int width>
__device__ std::int64_t block_of(const Blocks& blocks, Integer item) {
  Integer index[3];
  const Integer channel = blocks.output.find(item, index);
  Integer place = 0;
  std::int64_t offset = item * blocks.input.sample;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    Integer position = index[axis] + blocks.offset[axis];
    place = place * blocks.block[axis] + subpixel::split(position, blocks.places.values[axis]);
    offset += position * blocks.input.image[axis];
  }
  return offset + (place * blocks.channels + channel * width) * blocks.input.channel;
}

/// Those of space_to_depth; -1: nowhere.
template <class Integer, int width>
__device__ std::int64_t pixel_of(const Blocks& blocks, Integer item) {
  Integer index[3], place[3];
  Integer row = blocks.output.find(item, index);
  const Integer channel = subpixel::split(row, blocks.widths);
  blocks.places.split(row, place);
  std::int64_t offset = item * blocks.input.sample + channel * width * blocks.input.channel;
  bool inside = true;
#pragma unroll
  for (int axis = 0; axis < 3; ++axis) {
    const std::int64_t pixel = static_cast<std::int64_t>(index[axis]) * blocks.block[axis] + place[axis] - blocks.offset[axis];
    inside = inside && pixel >= 0 && pixel < blocks.image[axis];
    offset += pixel * blocks.input.image[axis];
  }
  return inside ? offset : -1;
}

/// A thread an element of the output, or `width` channels of it where they are neighbours on both sides: reads and writes each once.
/// Deterministic.
template <class T, int width, class Integer, bool to_space>
__global__ void rearrange(T* output, const T* input, const __grid_constant__ Blocks blocks, std::int64_t items) {
  using Vector = cuda::Vector<T, width>;
  for (std::int64_t item = cuda::first_item(); item < items; item += cuda::item_step()) {
    const std::int64_t source = to_space ? block_of<Integer, width>(blocks, static_cast<Integer>(item))
                                         : pixel_of<Integer, width>(blocks, static_cast<Integer>(item));
    Vector elements{};
    if (source >= 0) elements = *reinterpret_cast<const Vector*>(input + source);
    reinterpret_cast<Vector*>(output)[item] = elements;
  }
}

template <bool to_space>
void run(const KernelContext& call) {
  const auto& a = call.as<BlockAttributes>();
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  if (output.elements() == 0) return;
  const Tensor& image = to_space ? output : input;
  dispatch_floating_and_halves(output.dtype(), [&]<class T>() {
    const auto launch = [&]<int width>() {
      const Blocks blocks{subpixel::Elements(output, width),
                          subpixel::Steps(input),
                          subpixel::Axes(a.block, 1),
                          subpixel::Axes(a.offset, 0),
                          subpixel::Axes(image_of(image.shape()), 1),
                          subpixel::Sizes(a.block),
                          cuda::Divisor(std::max<std::int64_t>(1, image.dim(1) / width)),
                          image.dim(1)};
      const std::int64_t items = output.elements() / width;
      subpixel::dispatch_count(items, [&]<class Integer>() {
        cuda::launch(rearrange<T, width, Integer, to_space>, cuda::loop_shape(items), call.stream, output.data<T>(), input.data<T>(),
                     blocks, items);
      });
    };
    constexpr int vector = cuda::vector_width<T>;
    const auto wide = [](const Tensor& tensor) {
      return tensor.is_contiguous(Layout::channels_last) && !tensor.is_contiguous() && cuda::aligned_for_vectors(tensor.raw());
    };
    if (image.dim(1) % vector == 0 && wide(input) && wide(output)) {
      launch.template operator()<vector>();
    } else {
      launch.template operator()<1>();
    }
  });
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(depth_to_space) {
  registry.add_cuda("depth_to_space",
                    {.run = run<true>, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
  registry.add_cuda("space_to_depth",
                    {.run = run<false>, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}});
}
