#pragma once

#include <bit>
#include <type_traits>

#include "frit/core/convert.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/packed.cuh"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/cuda/planes.cuh"
#include "frit/ops/cuda/tensor_cores.cuh"

namespace frit::ops {

/// A convolution's weight (K, C, kernel...), in either layout: its taps are those of im2col in reverse.
template <class Stored>
struct KernelWeight : WeightSteps {
  const Stored* elements;

  explicit KernelWeight(const Tensor& tensor) : WeightSteps(tensor), elements(tensor.data<Stored>()) {}
};

/// The pixels that the taps of a tile of positions take (see Im2colAttributes), in shared memory: vectors of 4 channels of a pixel, zeros
/// for what the image does not have.
struct StagedTaps {
  static constexpr int width = 4;

  Planes planes;
  Places places;                                           ///< of the image
  int image[3], taps[3], shift[3];                         ///< as Im2colAttributes
  int output_size[3];                                      ///< likewise
  int tap_vectors;                                         ///< to a tap
  int used_columns;                                        ///< of an output channel of the weight
  int ones;                                                ///< the channel of tap 0 that is 1, or -1
  bool whole_vectors;                                      ///< 4 channels can be loaded at once
  int staged[3] = {};                                      ///< pixels that a tile takes
  cuda::Divisor staged_vectors, row_vectors, staged_rows;  ///< vectors of a pixel and of a row of pixels, rows of a depth
  int row_step = 0, depth_step = 0, pixel_step = 0;        ///< between pixels in shared memory, in elements
  std::size_t staged_bytes = 0;

  /// `columns`: of the weight.
  StagedTaps(const Tensor& from, std::int64_t columns, const Im2colAttributes& im2col)
      : planes(from.shape()),
        places(from, planes),
        tap_vectors(static_cast<int>(im2col.channels) / width),
        used_columns(static_cast<int>(columns)),
        ones(im2col.ones ? static_cast<int>(planes.channels) : -1),
        whole_vectors(places.channel == 1 && planes.channels % width == 0 && ones < 0 && cuda::aligned_for_vectors(from.raw())),
        staged_vectors(tap_vectors) {
    const int axes = from.rank() - 2;
    for (int axis = 0; axis < 3; ++axis) {
      const int given = axis - (3 - axes);
      image[axis] = given < 0 ? 1 : static_cast<int>(from.shape()[given + 2]);
      taps[axis] = given < 0 ? 1 : static_cast<int>(im2col.taps[given]);
      shift[axis] = given < 0 ? 0 : static_cast<int>(im2col.shift[given]);
      output_size[axis] = given < 0 ? 1 : static_cast<int>(im2col.output_size[given]);
    }
  }

  /// Of a convolution with a kernel (K, C, kernel...) and some padding, whose other options are as usual: as the taps that im2col
  /// would give.
  static StagedTaps of_convolution(const Tensor& from, const Dims& kernel, const Dims& padding) {
    Im2colAttributes im2col{.taps = kernel, .channels = (from.shape()[1] + width - 1) / width * width};
    for (int axis = 0; axis < kernel.rank(); ++axis) {
      const std::int64_t own = padding.empty() ? 0 : padding[axis];
      im2col.shift.push_back(kernel[axis] - 1 - own);
      im2col.output_size.push_back(from.shape()[axis + 2] + 2 * own - (kernel[axis] - 1));
    }
    return {from, product(kernel) * im2col.channels, im2col};
  }

  /// For tiles of so many positions on each axis, with so many elements from one pixel to the next.
  void lay_out(int depths, int rows, int columns, std::size_t element_bytes, int pixel_elements) {
    const int tile[3] = {depths, rows, columns};
    for (int axis = 0; axis < 3; ++axis) staged[axis] = tile[axis] + taps[axis] - 1;
    row_vectors = cuda::Divisor(staged[2] * tap_vectors);
    staged_rows = cuda::Divisor(staged[1]);
    pixel_step = pixel_elements;
    row_step = staged[2] * pixel_step;
    depth_step = staged[1] * row_step;
    staged_bytes = static_cast<std::size_t>(staged[0] * depth_step) * element_bytes;
  }
  /// Likewise; from one row of pixels to the next the bytes are `row_bank` apart modulo what all banks hold, from one depth to the next
  /// `depth_bank`.
  void lay_out(int depths, int rows, int columns, std::size_t element_bytes, int row_bank, int depth_bank) {
    lay_out(depths, rows, columns, element_bytes, tap_vectors * width);
    const int element = static_cast<int>(element_bytes), banks = 128 / element;
    const auto spread = [&](int least, int bank) { return least + (bank / element - least % banks + banks) % banks; };
    row_step = spread(row_step, row_bank);
    depth_step = spread(staged[1] * row_step, depth_bank);
    staged_bytes = static_cast<std::size_t>(staged[0] * depth_step) * element_bytes;
  }
  /// Of a vector of the weight's columns, from a position's first pixel on, in elements.
  int offset_of(int vector) const {
    const int tap = vector / tap_vectors, x = tap % taps[2], y = tap / taps[2] % taps[1], z = tap / (taps[2] * taps[1]);
    return (taps[0] - 1 - z) * depth_step + (taps[1] - 1 - y) * row_step + (taps[2] - 1 - x) * pixel_step + vector % tap_vectors * width;
  }

  /// Brings the pixels of the tile that begins at a position to shared memory. For all of so many threads.
  template <int threads, class Stored, class Image>
  __device__ void stage(Stored* to, const Image* from, std::int64_t sample, int depth, int row, int column) const {
    load<threads>(from, sample, depth, row, column, [&](int z, int y, int x, int first, const cuda::Vector<float, width>& elements) {
      store(to + z * depth_step + y * row_step + x * pixel_step + first, elements);
    });
  }
  /// Calls put(depth, row, column, first channel, elements) for each vector of the tile's pixels.
  template <int threads, class Image, class Put>
  __device__ void load(const Image* from, std::int64_t sample, int depth, int row, int column, const Put& put) const {
    const int d = depth + shift[0] - taps[0] + 1, h = row + shift[1] - taps[1] + 1, w = column + shift[2] - taps[2] + 1;
    const Image* const own = from + sample * places.sample;
    const int channels = static_cast<int>(planes.channels), channel_step = static_cast<int>(places.channel),
              pixel = static_cast<int>(places.pixel), count = staged[0] * staged[1] * row_vectors.value<int>();
    const auto for_each_vector = [&](const auto& load) {
#pragma unroll 3
      for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
        const auto number = static_cast<std::uint32_t>(i), own_line = row_vectors.quotient(number), z = staged_rows.quotient(own_line),
                   vector = row_vectors.remainder(number, own_line), x = staged_vectors.quotient(vector),
                   y = staged_rows.remainder(own_line, z);
        const int first = static_cast<int>(staged_vectors.remainder(vector, x)) * width;
        const unsigned from_z = d + z, from_y = h + y, from_x = w + x;
        const bool inside = from_z < static_cast<unsigned>(image[0]) && from_y < static_cast<unsigned>(image[1]) &&
                            from_x < static_cast<unsigned>(image[2]);
        const int place = static_cast<int>((from_z * image[1] + from_y) * image[2] + from_x) * pixel + first * channel_step;
        put(static_cast<int>(z), static_cast<int>(y), static_cast<int>(x), first, load(own + place, inside, first));
      }
    };
    if (whole_vectors) {
      for_each_vector([&](const Image* pixel, bool inside, int) {
        cuda::Vector<Image, width> loaded;
#pragma unroll
        for (int j = 0; j < width; ++j) loaded[j] = Image(0.0f);
        if (inside) loaded = *reinterpret_cast<const cuda::Vector<Image, width>*>(pixel);
        cuda::Vector<float, width> elements;
#pragma unroll
        for (int j = 0; j < width; ++j) elements[j] = convert<float>(loaded[j]);
        return elements;
      });
    } else {
      const auto in_steps = [&](auto step) {
        for_each_vector([&](const Image* pixel, bool inside, int first) {
          cuda::Vector<float, width> elements;
#pragma unroll
          for (int j = 0; j < width; ++j) {
            elements[j] = inside && first + j < channels ? convert<float>(pixel[j * step]) : first + j == ones ? 1.0f : 0.0f;
          }
          return elements;
        });
      };
      if (channel_step == 1) {
        in_steps(std::integral_constant<int, 1>());
      } else {
        in_steps(channel_step);
      }
    }
  }

  /// A vector as an instruction takes it.
  template <class Stored>
  using Words = cuda::Vector<std::uint32_t, sizeof(Stored)>;
  template <class Stored>
  __device__ static Words<Stored> words(const cuda::Vector<float, width>& elements) {
    if constexpr (is_half_type<Stored>) {
      using Pair = cuda::Packed<Stored>;
      return {Pair::narrow(elements[0], elements[1]), Pair::narrow(elements[2], elements[3])};
    } else {
      return std::bit_cast<Words<Stored>>(tensor_cores::Product<float>::rounded(elements));
    }
  }
  template <class Stored>
  __device__ static void store(Stored* to, const cuda::Vector<float, width>& elements) {
    *reinterpret_cast<Words<Stored>*>(to) = words<Stored>(elements);
  }

  /// Whether a vector's column is multiplied with anything but zeros.
  __device__ bool counts(int vector, int column) const {
    const int tap = vector / tap_vectors, c = (vector - tap * tap_vectors) * width + column;
    return vector >= 0 && vector * width < used_columns && (c < planes.channels || (tap == 0 && c == ones));
  }
  /// A vector of an output channel of a convolution's weight; zeros for what no tap has.
  template <class Stored>
  __device__ Words<Stored> weights(const KernelWeight<Stored>& weight, int out_channel, int vector) const {
    const int tap = vector / tap_vectors, first = (vector - tap * tap_vectors) * width, last_tap = taps[0] * taps[1] * taps[2] - 1;
    cuda::Vector<float, width> elements;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      const std::int64_t place = out_channel * weight.row + (first + j) * weight.channel + (last_tap - tap) * weight.tap;
      elements[j] = vector >= 0 && first + j < planes.channels ? convert<float>(weight.elements[place]) : 0;
    }
    return words<Stored>(elements);
  }
  /// A vector of an output channel of the weight times a factor; zeros for what no tap has.
  template <class Stored>
  __device__ Words<Stored> weights(const Stored* weight, int out_channel, int vector, float factor = 1) const {
    cuda::Vector<float, width> elements;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      elements[j] = counts(vector, j) ? convert<float>(weight[out_channel * used_columns + vector * width + j]) * factor : 0;
    }
    return words<Stored>(elements);
  }
};

/// Calls body.operator()<Stored, Image>() for what the weight and the image are stored in.
template <class Body>
void dispatch_weight_and_image(DType weight, DType image, const Body& body) {
  dispatch_f32_and_halves(weight, [&]<class Stored>() {
    if (image == DType::f32) {
      body.template operator()<Stored, float>();
    } else {
      body.template operator()<Stored, Stored>();
    }
  });
}

/// As many blocks as run at a time, which loop over the tiles with that stride.
inline unsigned tile_blocks(int tiles, int to_multiprocessor, int device) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(tiles, 1, cuda::properties(device).multiprocessors * to_multiprocessor));
}

}  // namespace frit::ops
