#include "frit/ops/convolution/cpu/convolution_cpu.h"

#include <algorithm>

#include "frit/ops/convolution/cpu/convolution_plan.h"
#include "frit/ops/convolution/cpu/small_groups_cpu.h"
#include "frit/ops/convolution/cpu/winograd_cpu.h"
#include "frit/ops/cpu/bfloat_product.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

using Plan = ConvolutionPlan;
using Item = ConvolutionItem;
using Phase = ConvolutionPlan::Phase;

/// Writes a phase's results (positions, channels) to the output.
template <class T>
void scatter(const Plan& plan, const Item& item, const ImageAxes& phase, const T* results, std::int64_t stride, T* output) {
  const Direction& d = plan.direction;
  const ImageStrides& to = plan.output;
  const Box& box = item.box;
  const std::int64_t pixel = d.output_step[2] * to.axis[2];
  for (std::int64_t n = 0; n < box.samples; ++n) {
    for (std::int64_t i = 0; i < box.size[0]; ++i) {
      for (std::int64_t j = 0; j < box.size[1]; ++j, results += box.size[2] * stride) {
        const ImageAxes place = {(box.begin[0] + i) * d.output_step[0] + phase[0], (box.begin[1] + j) * d.output_step[1] + phase[1],
                                 box.begin[2] * d.output_step[2] + phase[2]};
        if (place[0] >= d.output[0] || place[1] >= d.output[1] || place[2] >= d.output[2]) continue;
        const std::int64_t count = std::min(box.size[2], (d.output[2] - place[2] - 1) / d.output_step[2] + 1);
        T* const row = output + to.place(box.sample + n, item.first_channel(plan), place);
        if (to.channels_last()) {
          for (std::int64_t k = 0; k < count; ++k) std::copy_n(results + k * stride, item.channels, row + k * pixel);
        } else if (pixel == 1) {
          write_pixels(results, stride, count, item.channels, row, to.channel);
        } else {
          for (std::int64_t c = 0; c < item.channels; ++c) {
            for (std::int64_t k = 0; k < count; ++k) row[c * to.channel + k * pixel] = results[k * stride + c];
          }
        }
      }
    }
  }
}

/// Of the elements of the output that an item has computed.
void finish_item(const Plan& plan, const Item& item, const Finish& finish, std::byte* workspace) {
  const Direction& d = plan.direction;
  Box box = item.box;
  for (std::size_t i = 0; i < 3; ++i) {
    box.begin[i] *= d.output_step[i];
    box.size[i] = std::min(box.size[i] * d.output_step[i], d.output[i] - box.begin[i]);
  }
  for_each_runs(plan.numbers, box, item.first_channel(plan), item.channels, [&](const Runs& runs) { finish.run(runs, workspace); });
}

/// The positions of an item, and where each has its results, if they are spread over the output.
template <class A>
struct Positions {
  const A** sources;
  std::int64_t* places;
  std::int64_t count;

  /// Those of a phase that lie in the output, after all of them in memory.
  Positions inside(const Plan& plan, const Box& box, const ImageAxes& phase) const {
    const Direction& d = plan.direction;
    ImageAxes most;
    for (std::size_t i = 0; i < 3; ++i) {
      most[i] = std::clamp<std::int64_t>((d.output[i] - phase[i] - 1) / d.output_step[i] + 1 - box.begin[i], 0, box.size[i]);
    }
    if (most == box.size) return *this;
    Positions some{sources + count, places + count, 0};
    for (std::int64_t k = 0; k < count; ++k) {
      const ImageAxes place = {k / box.size[2] / box.size[1] % box.size[0], k / box.size[2] % box.size[1], k % box.size[2]};
      if (place[0] >= most[0] || place[1] >= most[1] || place[2] >= most[2]) continue;
      some.sources[some.count] = sources[k];
      some.places[some.count++] = places[k];
    }
    return some;
  }
};

template <class A>
Positions<A> positions_of(const Plan& plan, const Box& box, const A* first, std::byte* workspace) {
  Positions<A> result{reinterpret_cast<const A**>(workspace + plan.positions_place), nullptr, 0};
  plan.window.for_each_position(box, [&](std::int64_t offset) { result.sources[result.count++] = first + offset; });
  if (!plan.spread) return result;
  result.places = reinterpret_cast<std::int64_t*>(workspace + plan.places_place);
  std::int64_t* next = result.places;
  for_each_position(box, plan.output.sample, plan.direction.output_step, plan.output.axis, [&](std::int64_t offset) { *next++ = offset; });
  return result;
}

/// Copies rows [begin, end) of what a box reads of a group's channels.
template <class A>
void copy_rows(const Plan& plan, const Box& box, std::int64_t group, const A* source, std::int64_t begin, std::int64_t end, A* to) {
  using Bits = std::conditional_t<std::is_same_v<A, BFloat16>, std::uint16_t, A>;
  copy_window(plan.window, box, plan.source, reinterpret_cast<const Bits*>(source), group * plan.direction.channels, begin, end,
              reinterpret_cast<Bits*>(to));
}

template <class A>
A* shared_window(const Plan& plan, std::int64_t box, std::int64_t group, std::span<std::byte> scratch) {
  const std::int64_t index = box * plan.direction.geometry.groups + group;
  return scratch_part<A>(scratch, plan.windows_place) + index * plan.window.elements(plan.boxes.largest());
}

/// All windows.
template <class A>
void copy_windows(const Plan& plan, const A* source, std::span<std::byte> scratch) {
  const std::int64_t groups = plan.direction.geometry.groups, rows = plan.window.rows(plan.boxes.largest());
  const std::int64_t elements = plan.window.elements(plan.boxes.largest());
  parallel_for(plan.boxes.count() * groups * rows, 1 + 16384 * rows / elements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin, last; index < end; index = last) {
      const std::int64_t window = index / rows, row = index % rows;
      last = std::min(end, (window + 1) * rows);
      const Box box = plan.boxes[window / groups];
      const std::int64_t end_row = std::min(row + last - index, plan.window.rows(box));
      copy_rows(plan, box, window % groups, source, row, end_row, shared_window<A>(plan, window / groups, window % groups, scratch));
    }
  });
}

/// Where an item's positions begin in a group's channels of the source, or in a copy of their window.
template <class A>
const A* window_of(const Plan& plan, const Item& item, std::int64_t group, const A* source, std::span<std::byte> scratch,
                   std::byte* workspace) {
  if (!plan.window.copied) return source + group * plan.direction.channels + plan.window.first(item.box);
  if (plan.shares_windows()) return shared_window<A>(plan, item.box_index, group, scratch);
  A* const copy = reinterpret_cast<A*>(workspace + plan.window_place);
  copy_rows(plan, item.box, group, source, 0, plan.window.rows(item.box), copy);
  return copy;
}

/// A block of columns of a phase, as products read it, and what is read next while a chunk of it is multiplied: the next chunk, or what
/// that chunk of the next block is made of.
template <class A>
struct WeightBlock {
  const A *data, *next;
  std::int64_t next_chunk;  ///< how many chunks later
};

template <class T, class A>
WeightBlock<A> weight_block(const Plan& plan, const Phase& phase, std::int64_t group, std::int64_t column, const Weight<A>& weight,
                            std::byte* workspace) {
  if (weight.packed != nullptr) {
    const A* const packed = weight.packed + phase.weights + plan.packed.place(phase.taps, group, column, 0);
    return {packed, packed, 1};
  }
  if constexpr (std::is_same_v<T, A>) {
    A* const own = reinterpret_cast<A*>(workspace + plan.weights_place);
    plan.packed.pack_block<A>(phase.elements, group, column, 0, weight.unpacked.data, own);
    return {own, plan.packed.unpacked_block<A>(group, column + product_columns<T>, weight.unpacked.data), 0};
  }
  FRIT_CHECK(false);
}

/// Of a group's channels at the item's positions, a phase; `results` are those of the first position and of the item's first column.
template <class T, class A>
void compute_phase(const Plan& plan, const Phase& phase, const Item& item, std::int64_t group, const Positions<A>& positions,
                   const Weight<A>& weight, const T* bias, const Rectifier<T>& rectifier, T* results, std::int64_t stride, const T* output,
                   std::byte* workspace) {
  for (std::int64_t begin = 0; begin < item.columns; begin += product_columns<T>) {
    const std::int64_t column = item.column + begin, in_group = group * plan.packed.columns() + column;
    const std::int64_t width = plan.packed.vectors(column) * simd::lanes<T>, rest = plan.direction.rows - column;
    const WeightBlock<A> block = weight_block<T>(plan, phase, group, column, weight, workspace);
    for (const Chunk& chunk : phase.taps.chunks) {
      Rectifier<T> last;
      if (chunk.begin + chunk.length == phase.taps.depth) last = rectifier;
      if (last.addend != nullptr) last.addend += results - output + begin;
      std::span<const A> read_next;
      if (block.next != nullptr) {
        read_next = {block.next + (chunk.packed_begin + block.next_chunk * chunk.packed_length) * width,
                     static_cast<std::size_t>(chunk.packed_length * width)};
      }
      const RunProduct<T, A> product{.runs = phase.taps.runs_of(chunk),
                                     .a = {positions.sources, static_cast<std::size_t>(positions.count)},
                                     .b = block.data + chunk.packed_begin * width,
                                     .vectors = plan.packed.vectors(column),
                                     .c = results + begin,
                                     .c_stride = stride,
                                     .last_columns = plan.through_buffer || rest >= width ? 0 : rest % simd::lanes<T>,
                                     .c_places = positions.places,
                                     .accumulate = chunk.begin > 0,
                                     .bias = bias == nullptr ? nullptr : bias + in_group,
                                     .rectifier = last,
                                     .next = read_next};
      if constexpr (std::is_same_v<A, float>) {
        if (phase.slides) {
          multiply(SlidingProduct<T>{product, plan.window.axis[2] * plan.window.reach.step[2]});
          continue;
        }
      }
      multiply(product);
    }
  }
}

template <class T, class A>
void compute_item(const Plan& plan, const Item& item, const A* source, const Weight<A>& weight, const T* bias,
                  const Rectifier<T>& rectifier, T* output, std::span<std::byte> scratch, std::byte* workspace) {
  const Direction& d = plan.direction;
  const ImageStrides& to = plan.output;
  T* const buffer = reinterpret_cast<T*>(workspace + plan.buffer_place);
  std::int64_t place = item.box.sample * to.sample + item.first_channel(plan);
  for (std::size_t i = 0; i < 3; ++i) place += item.box.begin[i] * d.output_step[i] * to.axis[i];
  const std::int64_t stride = plan.through_buffer ? plan.buffer_stride(item.columns) : to.axis[2];
  Positions<A> all;
  for (const Phase& phase : plan.phases) {
    T* results = buffer;
    if (!plan.through_buffer) {
      results = output + place;
      for (std::size_t i = 0; i < 3; ++i) results += phase.phase[i] * to.axis[i];
    }
    // In order: the vectors that end a group's results may reach into the next one's.
    for (std::int64_t g = 0; g < plan.groups; ++g) {
      if (&phase == &plan.phases.front())
        all = positions_of(plan, item.box, window_of(plan, item, item.group + g, source, scratch, workspace), workspace);
      compute_phase(plan, phase, item, item.group + g, plan.spread ? all.inside(plan, item.box, phase.phase) : all, weight, bias, rectifier,
                    results + g * d.rows, stride, output, workspace);
    }
    if (plan.through_buffer) scatter(plan, item, phase.phase, buffer, stride, output);
  }
}

}  // namespace

bool convolves_in_bfloat(const Direction& d, Layout source) {
  const ConvolutionGeometry& g = d.geometry;
  const BfloatInstructions instructions = bfloat_instructions();
  if (instructions == BfloatInstructions::none || has_small_groups(d, sizeof(float))) return false;
  // Winograd's filtering takes a quarter of the products, which only AMX makes up for.
  if (instructions != BfloatInstructions::amx && suits_winograd(d, sizeof(float))) return false;
  if (!ImageStrides(source, g.groups * d.channels, d.source).channels_last()) return false;
  const std::int64_t run = d.channels * (g.groups == 1 && g.dilation[2] == 1 ? g.kernel[2] : 1);
  return whole_bfloat_steps(run) <= 2 * run;  // else most products are with zeros that fill up steps
}

bool adds_in_registers(const Direction& d, Layout output, std::size_t element_size) {
  if (!in_bfloat(element_size) && has_small_groups(d, element_size)) return false;
  return writes_to_output(d, ImageStrides(output, d.geometry.groups * d.rows, d.output), element_size);
}

const char* convolve_schedule(const Direction& d, std::size_t element_size) {
  if (in_bfloat(element_size)) return "sums over runs of taps, in bf16";
  if (has_small_groups(d, element_size)) return small_groups_schedule(d);
  return suits_winograd(d, element_size) ? "in 4 x 4 tiles by Winograd's filtering" : "sums over runs of taps";
}

template <class T>
void pack_weight(const Direction& d, ImageLayouts layouts, Image<const T> weight, T* packed) {
  if constexpr (!std::is_same_v<T, BFloat16>) {
    if (has_small_groups(d, sizeof(T))) return pack_small_groups(d, weight, packed);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (suits_winograd(d, sizeof(T))) return pack_for_winograd(d, weight, packed);
  }
  const Plan plan(d, layouts, weight.place, sizeof(T), {});
  for (const Phase& phase : plan.phases) plan.packed.pack(phase.taps, weight.data, packed + phase.weights);
}

Packing packing_of(const Direction& d, ImageLayouts layouts, std::size_t element_size) {
  if (!in_bfloat(element_size) && has_small_groups(d, element_size)) return {packed_small_groups_elements(d), true};
  if (suits_winograd(d, element_size)) return winograd_packing(d);
  const Plan plan(d, layouts, Layout::contiguous, element_size, {});
  return {plan.weights, !plan.packs_in_parts()};
}

template <class T, class A>
void convolve(const Direction& d, Image<const A> source, const Weight<A>& weight, const T* bias, Image<T> output,
              std::span<std::byte> scratch, const Finish& finish) {
  if constexpr (std::is_same_v<T, A>) {
    if (has_small_groups(d, sizeof(T))) return convolve_small_groups(d, source, weight.packed, bias, output, scratch, finish);
  }
  if constexpr (std::is_same_v<A, float>) {
    if (suits_winograd(d, sizeof(T))) return winograd_convolve(d, source, weight, bias, output, scratch, finish);
  }
  Plan plan(d, {source.place, output.place}, weight.unpacked.place, sizeof(A), finish);
  for (Phase& phase : plan.phases) {
    if (weight.packed == nullptr) phase.elements = plan.packed.elements_of(phase.taps, d.channels);
  }
  T* const packed_bias = bias == nullptr ? nullptr : scratch_part<T>(scratch, plan.bias_place);
  if (bias != nullptr) plan.packed.pack_bias(bias, packed_bias);
  if (plan.shares_windows()) copy_windows(plan, source.data, scratch);
  plan.work.run(scratch.subspan(plan.shared.bytes()), [&](std::int64_t index, std::byte* workspace) {
    const Item item(plan, index);
    compute_item(plan, item, source.data, weight, packed_bias, finish.rectifier<T>(), output.data, scratch, workspace);
    if (finish.run) finish_item(plan, item, finish, workspace);
  });
}

std::size_t convolve_scratch(const Direction& d, ImageLayouts layouts, std::size_t element_size, const Finish& finish) {
  if (!in_bfloat(element_size) && has_small_groups(d, element_size)) return small_groups_scratch(d, layouts, element_size, finish);
  if (suits_winograd(d, element_size)) return winograd_scratch(d, layouts, finish);
  return Plan(d, layouts, Layout::contiguous, element_size, finish).scratch();
}

template void pack_weight(const Direction&, ImageLayouts, Image<const float>, float*);
template void pack_weight(const Direction&, ImageLayouts, Image<const double>, double*);
template void pack_weight(const Direction&, ImageLayouts, Image<const BFloat16>, BFloat16*);
template void convolve(const Direction&, Image<const float>, const Weight<float>&, const float*, Image<float>, std::span<std::byte>,
                       const Finish&);
template void convolve(const Direction&, Image<const double>, const Weight<double>&, const double*, Image<double>, std::span<std::byte>,
                       const Finish&);
template void convolve(const Direction&, Image<const BFloat16>, const Weight<BFloat16>&, const float*, Image<float>, std::span<std::byte>,
                       const Finish&);

}  // namespace frit::ops
