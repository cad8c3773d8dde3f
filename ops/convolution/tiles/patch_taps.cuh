#pragma once

#include <utility>

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/tiles/image_tiles.cuh"
#include "frit/ops/cuda/async_copy.cuh"
#include "frit/ops/cuda/phase_barrier.cuh"
#include "frit/ops/cuda/stages.cuh"
#include "frit/ops/cuda/warpgroup_products.cuh"

// Convolutions on tensor cores from staged tiles of the input, with the left factor in registers: what a thread has read there serves
// several taps along one axis, each for other output positions. NVRTC compiles this header, for the sizes of a call.

namespace frit::ops {

/// What a kernel is compiled for. Axes are z, y, x. A warpgroup computes a patch of output positions, `reuse()` products of 64 rows: those
/// of a product are so many positions apart along the axis whose taps share what is read.
struct PatchShape {
  static constexpr int step_bytes = 64;  ///< of the depth: a pixel's channels, which are staged at a time, or some pixels
  static constexpr int chunk = 16, warpgroups = 2;

  int columns;  ///< output channels of a block: 32, 64 or 128
  int kernel[3], stride[3];
  int patch[3];   ///< powers of 2
  int groups[3];  ///< how the patches of a block's warpgroups make a tile
  int input_stages, weight_stages;
  int pixel_bytes = step_bytes;  ///< 16 or 32: a step is 4 or 2 pixels along the width, with all their channels
  int spread[3] = {1, 1, 1};     ///< 2: a zero stands between neighbouring pixels of the input, as where a data gradient has a stride

  constexpr int step_pixels() const { return step_bytes / pixel_bytes; }
  /// Steps of the taps along the width.
  constexpr int across() const { return (kernel[2] + step_pixels() - 1) / step_pixels(); }
  constexpr int shared_axis() const { return kernel[0] > 1 ? 0 : 1; }
  constexpr int shared_taps() const { return kernel[shared_axis()]; }
  constexpr int reuse() const { return patch[0] * patch[1] * patch[2] / warpgroup::rows; }
  /// Along the shared axis, from a patch's first input on.
  constexpr int fragments() const { return stride[shared_axis()] * (reuse() - 1) + shared_taps(); }
  /// The shared axis's tap with which a fragment is multiplied for product i, or -1.
  constexpr int tap(int fragment, int i) const {
    const int t = fragment - stride[shared_axis()] * i;
    return t >= 0 && t < shared_taps() ? t : -1;
  }
  constexpr int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// Or steps of them.
  constexpr int other_taps() const { return kernel[0] * kernel[1] * across() / shared_taps(); }

  constexpr int positions(int axis) const { return patch[axis] * groups[axis]; }
  constexpr int staged(int axis) const {
    return (positions(axis) - 1) * stride[axis] + (axis == 2 ? across() * step_pixels() : kernel[axis]);
  }
  constexpr int pixels() const { return staged(0) * staged(1) * staged(2); }
  constexpr int input_bytes() const { return pixels() * pixel_bytes; }
  /// Of the weight, for one instruction, and for the taps that share what is read.
  constexpr int product_bytes() const { return 2 * columns * chunk; }
  constexpr int weight_bytes() const { return shared_taps() * 2 * product_bytes(); }
  constexpr int barriers() const { return 2 * (input_stages + weight_stages); }
  constexpr int shared_bytes() const {
    return weight_stages * weight_bytes() + input_stages * input_bytes() + barriers() * cuda::PhaseBarrier::bytes;
  }

  struct Triple {
    int z, y, x;
  };
  /// Of a patch: row n of the first product.
  constexpr Triple position(int n) const {
    const int z_step = shared_axis() == 0 ? reuse() : 1, y_step = shared_axis() == 1 ? reuse() : 1;
    const int rows = patch[1] / y_step;
    return {n / (rows * patch[2]) * z_step, n / patch[2] % rows * y_step, n % patch[2]};
  }
  constexpr Triple shared(int n) const { return {shared_axis() == 0 ? n : 0, shared_axis() == 1 ? n : 0, 0}; }
  /// Of the patch's first position, within the tile.
  constexpr Triple group(int n) const {
    return {n / (groups[1] * groups[2]) * patch[0], n / groups[2] % groups[1] * patch[1], n % groups[2] * patch[2]};
  }
  /// The taps that are not along the shared axis.
  constexpr Triple other_tap(int n) const { return {0, shared_axis() == 0 ? n / across() : 0, n % across() * step_pixels()}; }
  constexpr int pixel(const Triple& p) const { return (p.z * staged(1) + p.y) * staged(2) + p.x; }
  constexpr int pixel_of_position(const Triple& p) const { return pixel({p.z * stride[0], p.y * stride[1], p.x * stride[2]}); }
};

/// Where the weights of a call are for the copy engine, which brings those of a step for the taps that share what is read at once: (parts
/// of the output channels, steps, other taps, shared taps, instructions, halves of their depth, columns, 16 bytes). A thread's 4 words of a
/// step are of both its instructions: word w of chunk t is in half w % 2 of the depth of instruction w / 2, where it is word t.
struct PackedWeight {
  int columns, steps, shared_taps, other_taps;

  struct Place {
    int part, column, channel, other_tap, shared_tap;
  };
  FRIT_HOST_DEVICE std::int64_t bytes(int parts) const {
    return static_cast<std::int64_t>(parts) * steps * other_taps * shared_taps * columns * PatchShape::step_bytes;
  }
  /// What stands at element `item`, of a dtype of `width` to a chunk.
  FRIT_HOST_DEVICE Place at(std::uint32_t item, int width) const {
    const auto n = static_cast<int>(item);
    const int element = n % width, column = n / width % columns;
    int rest = n / width / columns;
    const int half = rest % 2, instruction = rest / 2 % 2;
    rest /= 4;
    const int of_word = width / 4, chunk = element / of_word, word = instruction * 2 + half;
    const int shared_tap = rest % shared_taps;
    rest /= shared_taps;
    const int other_tap = rest % other_taps;
    rest /= other_taps;
    const int step = rest % steps, part = rest / steps;
    return {part, warpgroup::neighbour_of(column), step * 4 * width + chunk * width + word * of_word + element % of_word, other_tap,
            shared_tap};
  }
};

/// A call's numbers. Groups of channels are multiplied some at a time, a bundle of them, with zeros between one group and another.
struct PatchCall {
  const void* weight;             ///< a PackedWeight
  int in_channels, out_channels;  ///< of a bundle
  int pitch, out_pitch;           ///< elements from a pixel of the input to the next, and of the output
  int steps;                      ///< of a bundle's input channels
  int input[3], output[3], padding[3];
  bool stacks_samples;  ///< an image's depths are samples, of which a warpgroup has one
  ImageTiles tiles;
  cuda::Divisor parts, bundle_parts;  ///< of all output channels, each of a block; of a bundle's
  int tile_count;                     ///< of all samples and parts, below 2^31
};

/// The kernel: of images in channels-last layout. Of a warpgroup, one warp has the copy engine bring weights and the others stage the
/// input; two warpgroups multiply. Reads the input once for each part of the output channels, but for the borders of tiles; deterministic.
template <class Stored, PatchShape shape>
struct PatchTaps : PatchCall {
  static constexpr int chunk = PatchShape::chunk, step_bytes = PatchShape::step_bytes, chunks = step_bytes / chunk;
  static constexpr int columns = shape.columns, reuse = shape.reuse(), fragments = shape.fragments();
  static constexpr int width = chunk / static_cast<int>(sizeof(Stored)), channels = width * chunks;
  static constexpr int arrivals = PatchShape::warpgroups * warpgroup::threads / 32;  ///< one of a warp that multiplies
  static constexpr int stagers = warpgroup::threads - 32;

  /// A ring of places in shared memory. Who fills them waits for `empty`, who reads them for `full`.
  template <int stages>
  struct Ring {
    std::uint32_t barriers;
    int stage = 0;
    unsigned parity = 0;

    __device__ cuda::PhaseBarrier full() const { return {barriers + static_cast<std::uint32_t>(stage * cuda::PhaseBarrier::bytes)}; }
    __device__ cuda::PhaseBarrier empty() const { return {full().address + stages * cuda::PhaseBarrier::bytes}; }
    __device__ void next() {
      if (++stage == stages) stage = 0, parity ^= 1;
    }
  };
  struct Memory {
    std::uint32_t weights, inputs;
    Ring<shape.weight_stages> weight_ring;
    Ring<shape.input_stages> input_ring;

    __device__ explicit Memory(std::uint32_t begin)
        : weights(begin),
          inputs(begin + shape.weight_stages * shape.weight_bytes()),
          weight_ring{inputs + shape.input_stages * shape.input_bytes()},
          input_ring{weight_ring.barriers + 2 * shape.weight_stages * cuda::PhaseBarrier::bytes} {}
    __device__ std::uint32_t weight() const { return weights + static_cast<std::uint32_t>(weight_ring.stage * shape.weight_bytes()); }
    __device__ std::uint32_t input() const { return inputs + static_cast<std::uint32_t>(input_ring.stage * shape.input_bytes()); }
  };

  struct Tile {
    int sample, z, y, x;  ///< its first position
    int part, bundle;
  };
  __device__ Tile tile_at(int number) const {
    const auto n = static_cast<std::uint32_t>(number);
    const std::uint32_t of_image = parts.quotient(n), part = parts.remainder(n, of_image);
    const auto [sample, z, y, x] = tiles.at(of_image);
    return {sample,
            z * shape.positions(0),
            y * shape.positions(1),
            x * shape.positions(2),
            static_cast<int>(part),
            static_cast<int>(bundle_parts.quotient(part))};
  }
  /// Calls body(tile) for each of the block's.
  template <class Body>
  __device__ __forceinline__ void for_each_tile(const Body& body) const {
#pragma unroll 1
    for (int number = static_cast<int>(blockIdx.x); number < tile_count; number += static_cast<int>(gridDim.x)) body(tile_at(number));
  }

  /// By one thread.
  __device__ void bring_weights(Memory memory) const {
    auto& ring = memory.weight_ring;
    for_each_tile([&](const Tile& tile) {
      const int count = steps * shape.other_taps();
      const auto* from = static_cast<const unsigned char*>(weight) + static_cast<std::int64_t>(tile.part) * count * shape.weight_bytes();
#pragma unroll 1
      for (int i = 0; i < count; ++i, from += shape.weight_bytes()) {
        ring.empty().wait(ring.parity ^ 1);
        ring.full().arrive_expecting(shape.weight_bytes());
        ring.full().copy(memory.weight(), from, shape.weight_bytes());
        ring.next();
      }
    });
  }

  /// By the other warps of the warpgroup.
  __device__ void stage_inputs(const Stored* image, Memory memory, int thread) const {
    auto& ring = memory.input_ring;
    for_each_tile([&](const Tile& tile) {
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        ring.empty().wait(ring.parity ^ 1);
        stage_input(image, memory.input(), tile, step, thread);
        ring.full().arrive_after_copies();
        ring.next();
      }
    });
  }
  __device__ void stage_input(const Stored* image, std::uint32_t to, const Tile& tile, int step, int thread) const {
    constexpr int of_pixel = shape.pixel_bytes / chunk, at_once = stagers / of_pixel;
    const int part = thread % of_pixel, channel = step * channels + part * width;
    int pixel = thread / of_pixel;
    BoxPixel<shape.staged(1), shape.staged(2)> place(pixel);
    const int first_z = tile.z * shape.stride[0] - padding[0], first_y = tile.y * shape.stride[1] - padding[1];
    const int first_x = tile.x * shape.stride[2] - padding[2];
    const Stored* const sample =
        image + static_cast<std::int64_t>(tile.sample) * input[0] * input[1] * input[2] * pitch + tile.bundle * in_channels;
    constexpr int between_z = shape.spread[0] - 1, between_y = shape.spread[1] - 1, between_x = shape.spread[2] - 1;  // 0 or 1
#pragma unroll 2
    for (; pixel < shape.pixels(); pixel += at_once) {
      const int spread_z = place.z + first_z, spread_y = place.y + first_y, spread_x = place.x + first_x;
      const bool between = (spread_z & between_z) != 0 || (spread_y & between_y) != 0 || (spread_x & between_x) != 0;
      const int in_z = spread_z >> between_z, in_y = spread_y >> between_y, in_x = spread_x >> between_x;
      const bool exists = channel < in_channels && !between && is_in(in_z, in_y, in_x, input);
      const int from = exists ? ((in_z * input[1] + in_y) * input[2] + in_x) * pitch + channel : 0;
      cuda::copy_bytes_or_zeros<chunk>(to + static_cast<std::uint32_t>(pixel * shape.pixel_bytes + part * chunk), sample + from, exists);
      place.template advance<at_once>();
    }
  }

  using Fragment = warpgroup::Fragment<Stored>;
  /// Where a thread reads its rows, for the other taps of a step.
  struct Rows {
    std::uint32_t address;
    bool beyond;  ///< the kernel's last tap: what stands there may not be a number, and zero times it is none
  };
  static constexpr bool goes_beyond = shape.kernel[2] % shape.step_pixels() != 0;
  __device__ __forceinline__ static Rows rows_of(std::uint32_t first, int other, int lane) {
    const auto tap = static_cast<std::uint32_t>(shape.pixel(shape.other_tap(other)) * shape.pixel_bytes);
    return {first + tap, goes_beyond && shape.other_tap(other).x + lane % chunks / (shape.pixel_bytes / chunk) >= shape.kernel[2]};
  }
  template <int number>
  __device__ __forceinline__ static Fragment fragment(const Rows& rows) {
    constexpr int further = shape.pixel(shape.shared(number)) * shape.pixel_bytes;
    constexpr int to_lower = shape.pixel_of_position(shape.position(8)) * shape.pixel_bytes;
    Fragment f = Fragment::read(rows.address + further, rows.address + further + to_lower);
    if (goes_beyond && rows.beyond) f = {};
    return f;
  }

  using Sums = float[reuse][columns / 2];

  template <int number, int i>
  __device__ __forceinline__ static void multiply(float (&sums)[columns / 2], const Fragment& f, std::uint64_t weights) {
    constexpr int tap = shape.tap(number, i);
    if constexpr (tap >= 0) {
      constexpr std::uint64_t units = shape.product_bytes() / 16;
      f.template multiply<columns>(sums, weights + tap * 2 * units, units);
    }
  }
  /// The products of a fragment; the next one comes meanwhile. `begun` is called when all products before are complete.
  template <int number, class Begun, int... products>
  __device__ __forceinline__ static void multiply(Sums& sums, const Fragment& own, Fragment& next, const Rows& rows, std::uint64_t weights,
                                                  const Begun& begun, std::integer_sequence<int, products...>) {
    warpgroup::begin_products();
    (multiply<number, products>(sums[products], own, weights), ...);
    warpgroup::commit_products();
    warpgroup::wait_for_products<1>();
    if constexpr (number == 0) begun();
    if constexpr (number + 1 < fragments) next = fragment<number + 1>(rows);
  }
  template <class Begun, int... numbers>
  __device__ __forceinline__ static void multiply_taps(Sums& sums, Fragment& even, Fragment& odd, const Rows& rows, std::uint64_t weights,
                                                       const Begun& begun, std::integer_sequence<int, numbers...>) {
    if constexpr (fragments % 2 == 1 || sizeof(Stored) == 2) warpgroup::wait_for_products();  // the last ones read `even` too
    even = fragment<0>(rows);
    (multiply<numbers>(sums, numbers % 2 == 0 ? even : odd, numbers % 2 == 0 ? odd : even, rows, weights, begun,
                       std::make_integer_sequence<int, reuse>()),
     ...);
  }

  /// A thread's arrival stands for its warp's.
  template <int stages>
  __device__ __forceinline__ static void release(Ring<stages>& ring, int lane) {
    if (lane == 0) ring.empty().arrive();
    ring.next();
  }

  /// All products of a tile. A stage is given back when the products after it have begun.
  __device__ __forceinline__ void multiply_tile(Sums& sums, Memory& memory, Memory& used, std::uint32_t own_row, int lane) const {
    const std::uint64_t right =
        warpgroup::first_word(0, columns * chunk) | static_cast<std::uint64_t>(warpgroup::second_word(warpgroup::group_rows * chunk)) << 32;
    Fragment even, odd;
    bool weights_used = false, inputs_used = false;
    const auto begun = [&] {
      if (weights_used) release(used.weight_ring, lane);
      if (inputs_used) release(used.input_ring, lane);
      weights_used = true, inputs_used = false;
    };
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      memory.input_ring.full().wait(memory.input_ring.parity);
#pragma unroll 1
      for (int other = 0; other < shape.other_taps(); ++other) {
        const Rows rows = rows_of(own_row + memory.input(), other, lane);
        memory.weight_ring.full().wait(memory.weight_ring.parity);
        multiply_taps(sums, even, odd, rows, right + warpgroup::units(memory.weight()), begun,
                      std::make_integer_sequence<int, fragments>());
        memory.weight_ring.next();
      }
      inputs_used = true;
      memory.input_ring.next();
    }
    warpgroup::wait_for_products();
    release(used.weight_ring, lane);
    release(used.input_ring, lane);
  }

  /// A thread has 4 neighbouring channels of each 16, at two positions of a product.
  template <class Sink>
  __device__ void write(const Sink& sink, const Sums& sums, const Tile& tile, int group, int warp, int lane) const {
    const auto first = shape.group(group);
    const int sample = stacks_samples ? min(tile.z + first.z, output[0] - 1) : tile.sample;
    const int of_bundle = (tile.part - tile.bundle * bundle_parts.value<int>()) * columns + lane % 4 * 4;
#pragma unroll
    for (int part = 0; part < columns / 16; ++part) {
      if (of_bundle + part * 16 >= out_channels) break;
      const int channel = tile.bundle * out_channels + of_bundle + part * 16;
      const auto channels = sink.template channels<4>(stages::Place{0, channel, sample});
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const auto position = shape.position(warp * 16 + row * 8 + lane / 4);
        const int z = tile.z + first.z + position.z, y = tile.y + first.y + position.y, x = tile.x + first.x + position.x;
        const auto exists = [&](int i) { return is_in(z + shape.shared(i).z, y + shape.shared(i).y, x, output); };
        const auto place = [&](int i) {
          const std::int64_t line =
              (static_cast<std::int64_t>(tile.sample) * output[0] + z + shape.shared(i).z) * output[1] + y + shape.shared(i).y;
          return stages::Place{(line * output[2] + x) * out_pitch + channel, channel, sample};
        };
        stages::store_vectors<reuse, 4>(sink, channels, exists, place, [&](int i) { return warpgroup::neighbours(sums[i], part, row); });
      }
    }
  }

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    constexpr int multiplier_registers = 224, stager_registers = 56;
    extern __shared__ __align__(128) unsigned char shared_memory[];
    Memory memory(cuda::shared_address(shared_memory));
    const int group = static_cast<int>(threadIdx.x) / warpgroup::threads, thread = static_cast<int>(threadIdx.x) % warpgroup::threads;
    if (threadIdx.x == 0) {
      Memory all = memory;
      for (int i = 0; i < shape.weight_stages; ++i, all.weight_ring.next()) {
        all.weight_ring.full().init(1);
        all.weight_ring.empty().init(arrivals);
      }
      for (int i = 0; i < shape.input_stages; ++i, all.input_ring.next()) {
        all.input_ring.full().init(stagers);
        all.input_ring.empty().init(arrivals);
      }
    }
    __syncthreads();
    if (group == PatchShape::warpgroups) {
      warpgroup::leave_registers<stager_registers>();
      if (thread == 0) bring_weights(memory);
      if (thread >= 32) stage_inputs(source.data, memory, thread - 32);
    } else {
      warpgroup::take_registers<multiplier_registers>();
      const int warp = thread / 32, lane = thread % 32;
      const int own_pixel = shape.pixel_of_position(shape.group(group)) + shape.pixel_of_position(shape.position(warp * 16 + lane / 4));
      const auto own_row = static_cast<std::uint32_t>(own_pixel * shape.pixel_bytes + lane % chunks * chunk);
      Memory used = memory;
      for_each_tile([&](const Tile& tile) {
        Sums sums = {};
        for (auto& of_product : sums) warpgroup::hold(of_product);
        multiply_tile(sums, memory, used, own_row, lane);
        for (auto& of_product : sums) warpgroup::hold(of_product);
        write(sink, sums, tile, group, warp, lane);
      });
    }
  }
};

}  // namespace frit::ops
