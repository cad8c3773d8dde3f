#pragma once

#include <utility>

#include "frit/core/cuda/vector.cuh"
#include "frit/ops/convolution/tiles/image_tiles.cuh"
#include "frit/ops/cuda/async_copy.cuh"
#include "frit/ops/cuda/stages.cuh"
#include "frit/ops/cuda/warpgroup_products.cuh"

// Transposed convolutions phase by phase, on tensor cores: output positions that are equal modulo the stride meet the same taps. NVRTC
// compiles this header, for the sizes of a call.

namespace frit::ops {

/// An axis of a transposed convolution, cut into tiles of positions q. Output position stride q + phase - shift meets tap t with input
/// position q + (phase + padding - shift - t) / stride, where that is a whole number.
struct PhaseAxis {
  int kernel, stride, padding;
  int shift;  ///< below the stride
  int tile;   ///< positions q

  /// The tap, or -1, of a phase and input position q + offset.
  constexpr int tap(int phase, int offset) const {
    const int t = phase + padding - shift - stride * offset;
    return t >= 0 && t < kernel ? t : -1;
  }
  constexpr bool has_tap(int offset) const {
    for (int phase = 0; phase < stride; ++phase) {
      if (tap(phase, offset) >= 0) return true;
    }
    return false;
  }
  /// The least offset.
  constexpr int first() const {
    int offset = (padding - shift - kernel) / stride - 1;
    while (!has_tap(offset)) ++offset;
    return offset;
  }
  constexpr int offsets() const {
    int count = 1;
    while (has_tap(first() + count)) ++count;
    return count;
  }
  /// Input positions that a tile meets.
  constexpr int staged() const { return tile + offsets() - 1; }
};

/// What a kernel is compiled for. A step is 64 bytes of the input's channels, which zeros fill up to whole steps; columns are output
/// channels of a block.
struct PhaseShape {
  static constexpr int step_bytes = 64, chunk = 16;

  int steps, columns;
  PhaseAxis z, y, x;

  constexpr int phases() const { return z.stride * y.stride * x.stride; }
  constexpr int offsets() const { return z.offsets() * y.offsets() * x.offsets(); }
  constexpr int taps() const { return z.kernel * y.kernel * x.kernel; }
  constexpr int staged() const { return z.staged() * y.staged() * x.staged(); }
  constexpr int pixel_bytes() const { return steps * step_bytes; }
  constexpr int tile_bytes() const { return staged() * pixel_bytes(); }
  /// Of the weight, for one instruction.
  constexpr int product_bytes() const { return 2 * columns * chunk; }
  constexpr int weight_bytes() const { return taps() * steps * 2 * product_bytes(); }

  struct Triple {
    int z, y, x;
  };
  constexpr Triple phase(int n) const { return {n / (x.stride * y.stride), n / x.stride % y.stride, n % x.stride}; }
  constexpr Triple offset(int n) const { return {n / (x.offsets() * y.offsets()), n / x.offsets() % y.offsets(), n % x.offsets()}; }
  /// Of the kernel, -1 if there is none.
  constexpr int tap(int phase_number, int offset_number) const {
    const Triple p = phase(phase_number), o = offset(offset_number);
    const Triple t = {z.tap(p.z, z.first() + o.z), y.tap(p.y, y.first() + o.y), x.tap(p.x, x.first() + o.x)};
    return t.z < 0 || t.y < 0 || t.x < 0 ? -1 : (t.z * y.kernel + t.y) * x.kernel + t.x;
  }
  /// Where a position of the tile stands among those that are staged, and how much further its neighbour at an offset.
  constexpr Triple position(int n) const { return {n / (y.tile * x.tile), n / x.tile % y.tile, n % x.tile}; }
  constexpr int staged_at(const Triple& p) const { return (p.z * y.staged() + p.y) * x.staged() + p.x; }
};

/// A call's numbers.
struct PhaseCall {
  const void* weight;
  int channel_step, result_step, tap_step;  ///< of the weight, in elements: an input channel, an output channel, a tap
  int in_channels, out_channels;
  int pitch;  ///< elements from a pixel of the input to the next
  int input[3], output[3];
  int channel_parts;  ///< blocks that share the output channels of a tile
  ImageTiles tiles;
  int tile_count;  ///< of all samples, below 2^31
};

/// The kernel: of images in channels-last layout. A block keeps its part of the weight in shared memory. Its warpgroups go through tiles of
/// 64 positions, of which each computes all phases: the left factor is the input, which comes to shared memory while the tile before is
/// written, and to registers shifted by each offset once, for all phases that meet it. Reads the input once for each channel part, but for
/// the borders of tiles; deterministic.
template <class Stored, PhaseShape shape>
struct PhaseTaps : PhaseCall {
  static constexpr int chunk = PhaseShape::chunk, step_bytes = PhaseShape::step_bytes, group_threads = warpgroup::threads;
  static constexpr int element_bytes = sizeof(Stored), width = chunk / element_bytes;
  static constexpr int columns = shape.columns, phases = shape.phases(), offsets = shape.offsets();
  static constexpr int staged = shape.staged(), pixel_bytes = shape.pixel_bytes(), product_bytes = shape.product_bytes();
  /// Steps of every other pixel change places, so that neighbours' meet no bank twice.
  static constexpr bool swaps = pixel_bytes % 128 == 0;
  static_assert(shape.z.tile * shape.y.tile * shape.x.tile == warpgroup::rows);

  using Tile = ImageTiles::Tile;  ///< its first position
  __device__ Tile tile_at(int number) const {
    const Tile tile = tiles.at(static_cast<std::uint32_t>(number));
    return {tile.sample, tile.z * shape.z.tile, tile.y * shape.y.tile, tile.x * shape.x.tile};
  }

  /// An element of the block's part of the weight.
  struct WeightPlace {
    static constexpr int channels = shape.steps * step_bytes / element_bytes, all = shape.taps() * channels * columns;
    int column, channel, tap;

    __device__ explicit WeightPlace(int i) : column(i % columns), channel(i / columns % channels), tap(i / columns / channels) {}
  };

  /// The block's part of the weight, rounded to what products take. A thread's 4 words of a step are of both its instructions: word w of
  /// chunk t is in half w % 2 of the depth of instruction w / 2, where it is word t.
  __device__ void stage_weight(Stored* to, int first_channel) const {
    constexpr int of_word = 4 / element_bytes, of_step = step_bytes / element_bytes, at_once = 16;
    const auto* const from = static_cast<const Stored*>(weight);
    const auto number = [](int first, int u) { return first + u * static_cast<int>(blockDim.x); };
    for (int first = static_cast<int>(threadIdx.x); first < WeightPlace::all; first = number(first, at_once)) {
      Stored elements[at_once];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const WeightPlace place(number(first, u));
        const int result = first_channel + warpgroup::neighbour_of(place.column);
        const bool exists = number(first, u) < WeightPlace::all && place.channel < in_channels && result < out_channels;
        elements[u] = exists ? from[place.channel * channel_step + result * result_step + place.tap * tap_step] : Stored{};
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        const WeightPlace place(number(first, u));
        const int word = place.channel % of_step / of_word;
        const int instruction = (place.tap * shape.steps + place.channel / of_step) * 2 + word / 2 % 2;
        const int bytes = instruction * product_bytes + (word % 2 * columns + place.column) * chunk + word / 4 * 4;
        if (number(first, u) < WeightPlace::all) to[bytes / element_bytes + place.channel % of_word] = warpgroup::rounded(elements[u]);
      }
    }
  }

  __device__ void stage_tile(std::uint32_t to, const Stored* image, const Tile& tile, int thread) const {
    constexpr int chunks = pixel_bytes / chunk, at_once = group_threads / chunks;
    if (thread >= at_once * chunks) return;
    const int part = thread % chunks;
    int position = thread / chunks;
    BoxPixel<shape.y.staged(), shape.x.staged()> place(position);
    const bool has_part = part * width < in_channels;
    const Stored* const sample = image + static_cast<std::int64_t>(tile.sample) * input[0] * input[1] * input[2] * pitch;
#pragma unroll 1
    for (; position < staged; position += at_once) {
      const int in_z = place.z + tile.z + shape.z.first(), in_y = place.y + tile.y + shape.y.first();
      const int in_x = place.x + tile.x + shape.x.first();
      const bool exists = has_part && is_in(in_z, in_y, in_x, input);
      const int from = exists ? ((in_z * input[1] + in_y) * input[2] + in_x) * pitch + part * width : 0;
      const int own_part = swaps ? part ^ (position % 2 * 4) : part;
      cuda::copy_bytes_or_zeros<chunk>(to + static_cast<std::uint32_t>(position * pixel_bytes + own_part * chunk), sample + from, exists);
      place.template advance<at_once>();
    }
  }

  using Fragment = warpgroup::Fragment<Stored>;

  /// Where a thread reads its rows: even and odd steps, which change places at every other position.
  struct Rows {
    std::uint32_t even, odd;

    __device__ Rows(std::uint32_t tile, int warp, int lane) {
      const int position = shape.staged_at(shape.position(warp * 16 + lane / 4));
      const std::uint32_t own = tile + static_cast<std::uint32_t>(position * pixel_bytes + lane % 4 * chunk);
      const std::uint32_t swap = swaps ? static_cast<std::uint32_t>(position % 2 * step_bytes) : 0;
      even = own + swap;
      odd = own - swap;
    }
    template <int further, int step>
    __device__ __forceinline__ std::uint32_t at() const {
      constexpr int place = swaps && further % 2 == 1 ? step ^ 1 : step;
      return (place % 2 == 0 ? even : odd) + static_cast<std::uint32_t>(further * pixel_bytes + place * step_bytes);
    }
    template <int item>
    __device__ __forceinline__ Fragment fragment() const {
      constexpr int further = shape.staged_at(shape.offset(item % offsets)), step = item / offsets;
      constexpr int to_lower = shape.staged_at(shape.position(8));
      return Fragment::read(at<further, step>(), at<further + to_lower, step>());
    }
  };

  using Sums = float[phases][columns / 2];

  template <int item, int phase>
  __device__ __forceinline__ static void multiply(float (&sums)[columns / 2], const Fragment& f, std::uint64_t weights) {
    constexpr int tap = shape.tap(phase, item % offsets);
    if constexpr (tap >= 0) {
      constexpr std::uint64_t units = product_bytes / 16, first = (tap * shape.steps + item / offsets) * 2 * units;
      f.template multiply<columns>(sums, weights + first, units);
    }
  }

  static constexpr int items = offsets * shape.steps, held = 3;

  /// The products of an item, a step at an offset. The words of the one after the next come meanwhile, to where those before it were.
  template <int item, int... all_phases>
  __device__ __forceinline__ static void multiply(Sums& sums, Fragment (&fragments)[held], const Rows& rows, std::uint64_t weights,
                                                  std::integer_sequence<int, all_phases...>) {
    warpgroup::begin_products();
    (multiply<item, all_phases>(sums[all_phases], fragments[item % held], weights), ...);
    warpgroup::commit_products();
    if constexpr (item + held - 1 < items) {
      warpgroup::wait_for_products<1>();
      fragments[(item + held - 1) % held] = rows.template fragment<item + held - 1>();
    }
  }
  template <int... all_items>
  __device__ __forceinline__ static void multiply_all(Sums& sums, const Rows& rows, std::uint64_t weights,
                                                      std::integer_sequence<int, all_items...>) {
    Fragment fragments[held] = {rows.template fragment<0>()};
    if constexpr (items > 1) fragments[1] = rows.template fragment<1>();
    (multiply<all_items>(sums, fragments, rows, weights, std::make_integer_sequence<int, phases>()), ...);
  }

  /// A thread has 4 neighbouring channels of each 16, at two positions.
  template <class Sink>
  __device__ void write(const Sink& sink, const Sums& sums, const Tile& tile, int first_channel, int warp, int lane) const {
#pragma unroll
    for (int part = 0; part < columns / 16; ++part) {
      const int channel = first_channel + part * 16 + lane % 4 * 4;
      if (channel >= out_channels) break;
      const auto channels = sink.template channels<4>(stages::Place{0, channel, tile.sample});
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const auto position = shape.position(warp * 16 + row * 8 + lane / 4);
        const int z = shape.z.stride * (tile.z + position.z) - shape.z.shift, y = shape.y.stride * (tile.y + position.y) - shape.y.shift;
        const int x = shape.x.stride * (tile.x + position.x) - shape.x.shift;
        const std::int64_t line = (static_cast<std::int64_t>(tile.sample) * output[0] + z) * output[1] + y;
        const std::int64_t first = (line * output[2] + x) * out_channels + channel;
        const auto exists = [&](int n) {
          const auto phase = shape.phase(n);
          return is_in(z + phase.z, y + phase.y, x + phase.x, output);
        };
        const auto place = [&](int n) {
          const auto phase = shape.phase(n);
          return stages::Place{first + ((phase.z * output[1] + phase.y) * output[2] + phase.x) * out_channels, channel, tile.sample};
        };
        stages::store_vectors<phases, 4>(sink, channels, exists, place, [&](int n) { return warpgroup::neighbours(sums[n], part, row); });
      }
    }
  }

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    extern __shared__ __align__(128) unsigned char memory[];
    const int groups = static_cast<int>(blockDim.x) / group_threads, group = static_cast<int>(threadIdx.x) / group_threads;
    const int thread = static_cast<int>(threadIdx.x) % group_threads, warp = thread / 32, lane = thread % 32;
    const int first_channel = static_cast<int>(blockIdx.x) % channel_parts * columns;
    const int step = static_cast<int>(gridDim.x) / channel_parts * groups;
    const std::uint32_t weights = cuda::shared_address(memory);
    const std::uint32_t own_tile = weights + static_cast<std::uint32_t>(shape.weight_bytes() + group * shape.tile_bytes());
    int number = static_cast<int>(blockIdx.x) / channel_parts * groups + group;
    if (number < tile_count) stage_tile(own_tile, source.data, tile_at(number), thread);
    stage_weight(reinterpret_cast<Stored*>(memory), first_channel);
    warpgroup::fence_stores();
    __syncthreads();
    const std::uint64_t right = (warpgroup::first_word(0, columns * chunk) + warpgroup::units(weights)) |
                                static_cast<std::uint64_t>(warpgroup::second_word(warpgroup::group_rows * chunk)) << 32;
    const Rows rows(own_tile, warp, lane);
    const auto meet = [&] { asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(group_threads) : "memory"); };
#pragma unroll 1
    for (; number < tile_count; number += step) {
      cuda::wait_for_copies();
      meet();
      Sums sums = {};
      for (auto& of_phase : sums) warpgroup::hold(of_phase);
      multiply_all(sums, rows, right, std::make_integer_sequence<int, items>());
      warpgroup::wait_for_products();
      for (auto& of_phase : sums) warpgroup::hold(of_phase);
      meet();  // all have read the tile
      if (number + step < tile_count) stage_tile(own_tile, source.data, tile_at(number + step), thread);
      write(sink, sums, tile_at(number), first_channel, warp, lane);
    }
  }
};

}  // namespace frit::ops
