#pragma once

#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/block_program.h"
#include "frit/ops/norm/column_sums.h"
#include "frit/ops/norm/norm_core.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {

// How the CPU's kernels go through the image of a norm over channels, in either layout.

/// Neighbours in memory: all pixels' channels, or one channel of a contiguous image.
struct NormPart {
  std::int64_t offset;             ///< of its first element
  std::int64_t channel, channels;  ///< of its unit
  std::int64_t pixels;

  std::int64_t elements() const { return channels * pixels; }
};

/// Part of a unit, small enough to stay in a core's cache.
struct NormTile {
  std::int64_t unit, sample, channel, channels, pixel, pixels;
  std::int64_t section;  ///< of those that split a unit's channels
};

/// Whole slices that lie together: one of a contiguous image; of a channels-last one all that a sample, or the batch, has.
struct NormUnits {
  bool channels_last;
  std::int64_t slice_channels, all_channels;
  std::int64_t count, samples, channels, pixels;  ///< units; of a unit
  std::int64_t tile_channels;
  EvenBlocks tile_pixels;
  std::int64_t workers = INT64_MAX;  ///< the most at a time

  NormUnits(const NormGeometry& geometry, Layout layout);

  std::int64_t elements() const { return samples * channels * pixels; }
  std::int64_t slices() const { return channels / std::max<std::int64_t>(1, slice_channels); }  ///< of a unit
  std::int64_t slice_elements() const { return samples * slice_channels * pixels; }
  std::int64_t sections() const { return samples * tile_pixels.count; }
  std::int64_t tiles() const { return sections() * channel_blocks(); }

  /// Of all channels, a unit's first.
  std::int64_t first_channel(std::int64_t unit) const { return all_channels == 0 ? 0 : unit * channels % all_channels; }
  std::int64_t slice_of(std::int64_t unit, std::int64_t channel) const { return unit * slices() + channel / slice_channels; }
  std::int64_t offset(std::int64_t unit, std::int64_t sample, std::int64_t channel, std::int64_t pixel) const {
    const std::int64_t inner = channels_last ? pixel * channels + channel : channel * pixels + pixel;
    return unit * channels * pixels + sample * all_channels * pixels + inner;
  }

  /// Calls body(unit, worker) for all, in parallel; body may have parallel loops, of use where there are few units: their worker is -1.
  template <class Body>
  void for_each(const Body& body) const {
    const bool many = tasks() >= thread_count() && tasks() > 1;
    parallel_for_workers(count, many ? grain() : std::max<std::int64_t>(1, count), workers,
                         [&](std::int64_t begin, std::int64_t end, std::int64_t own) {
                           for (std::int64_t unit = begin; unit < end; ++unit) body(unit, many ? own : -1);
                         });
  }
  /// Calls body(tile, workspace) for all of a unit, in parallel; no two calls at a time share a workspace.
  template <class Body>
  void for_each_tile(std::int64_t unit, std::int64_t worker, const Body& body) const {
    const std::int64_t some = std::max<std::int64_t>(2, (tiles() + most_tasks - 1) / most_tasks);
    parallel_for_workers(tiles(), some, workers, [&](std::int64_t begin, std::int64_t end, std::int64_t own) {
      for (std::int64_t tile = begin; tile < end; ++tile) body(tile_at(unit, tile), worker < 0 ? own : worker);
    });
  }
  /// One for each thread that there is, as far as there is work for them.
  std::int64_t workspaces() const {
    return std::min<std::int64_t>(thread_count(), std::max({std::int64_t{1}, tasks(), std::min(most_tasks, (tiles() + 1) / 2)}));
  }
  template <class Body>
  void for_each_part(const NormTile& tile, const Body& body) const {
    const std::int64_t side_by_side = channels_last ? tile.channels : 1;
    for (std::int64_t channel = tile.channel; channel < tile.channel + tile.channels; channel += side_by_side) {
      body(NormPart{offset(tile.unit, tile.sample, channel, tile.pixel), channel, side_by_side, tile.pixels});
    }
  }

  Runs runs_of(const NormTile& tile) const {
    const std::int64_t begin = offset(tile.unit, tile.sample, tile.channel, tile.pixel);
    if (channels_last) return {.begin = begin, .length = tile.channels * tile.pixels};
    return {begin, tile.channels, pixels, tile.pixels};
  }

 private:
  static constexpr std::int64_t most_tasks = 64;

  std::int64_t grain() const {
    constexpr std::int64_t least_elements = 16384;
    return std::max({std::int64_t{1}, least_elements / std::max<std::int64_t>(1, elements()), (count + most_tasks - 1) / most_tasks});
  }
  std::int64_t tasks() const { return (count + grain() - 1) / grain(); }
  std::int64_t channel_blocks() const { return (channels + tile_channels - 1) / tile_channels; }
  NormTile tile_at(std::int64_t unit, std::int64_t tile) const;
};

/// The programs that a norm is computed with, if any, and their workspaces.
class NormPrograms {
 public:
  /// `given`: what the program before it is to give, if there is one; `result`: output 0.
  NormPrograms(const Stages* stages, const Tensor& given, const Tensor& result) {
    if (stages == nullptr) return;
    if (!stages->before.instructions.empty()) add(before_, stages->before, stages->before_inputs, given);
    if (!stages->after.instructions.empty() && result.defined()) add(after_, stages->after, stages->after_operands(result), result);
  }

  std::size_t scratch(const NormUnits& units) const { return bytes_ * static_cast<std::size_t>(units.workspaces()); }
  /// As many as have workspaces in such scratch memory, of which `other_bytes` serve something else.
  std::int64_t workers(std::span<std::byte> scratch, std::size_t other_bytes) const {
    if (bytes_ == 0) return INT64_MAX;
    const std::size_t bytes = scratch.size() / 64 * 64;
    FRIT_CHECK(bytes >= other_bytes + bytes_);
    return static_cast<std::int64_t>((bytes - other_bytes) / bytes_);
  }
  /// `scratch` ends in the workspaces.
  void run_before(const NormUnits& units, const NormTile& tile, std::span<std::byte> scratch, std::int64_t workspace) const {
    run(before_, units, tile, scratch, workspace);
  }
  void run_after(const NormUnits& units, const NormTile& tile, std::span<std::byte> scratch, std::int64_t workspace) const {
    run(after_, units, tile, scratch, workspace);
  }

 private:
  using Program = std::optional<BlockProgram>;

  void add(Program& program, const ElementwiseProgram& instructions, std::span<const Tensor> operands, const Tensor& result) {
    program.emplace(instructions, types_of(operands));
    program->bind(operands, {&result, 1});
    bytes_ = std::max(bytes_, aligned(program->workspace_bytes()));
  }
  void run(const Program& program, const NormUnits& units, const NormTile& tile, std::span<std::byte> scratch,
           std::int64_t workspace) const {
    if (program)
      program->run(units.runs_of(tile), scratch.data() + scratch.size() / 64 * 64 - static_cast<std::size_t>(workspace + 1) * bytes_);
  }

  Program before_, after_;
  std::size_t bytes_ = 0;
};

/// A unit's numbers in scratch memory: sums of tiles, and coefficients of type C as apply_coefficients reads them.
template <class C>
class NormUnitMemory {
 public:
  NormUnitMemory(const NormUnits& units, std::int64_t unit, std::span<std::byte> scratch)
      : units_(units), memory_(scratch.data() + static_cast<std::size_t>(unit) * bytes(units)) {}

  static std::size_t bytes(const NormUnits& units) { return number_bytes(units) + 4 * coefficient_bytes(units); }

  /// A number for each channel.
  double* pivots() const { return reinterpret_cast<double*>(memory_); }
  /// Of each section, or of all.
  double* sums(std::int64_t section, int k) const { return pivots() + (1 + 2 * section + k) * units_.channels; }
  C* coefficients(int k) const {
    return reinterpret_cast<C*>(memory_ + number_bytes(units_) + static_cast<std::size_t>(k) * coefficient_bytes(units_));
  }
  /// Two sums of each channel over a unit. pivot_of(channel) is what terms_of(part, pivots) gets for the lanes of a part: it gives the
  /// terms of sum_lanes. make_tile(tile, workspace) comes before a tile is read.
  template <class PivotOf, class MakeTile, class TermsOf>
  void sum_channels(std::int64_t unit, std::int64_t worker, const PivotOf& pivot_of, const MakeTile& make_tile,
                    const TermsOf& terms_of) const {
    for (std::int64_t channel = 0; channel < units_.channels; ++channel) {
      pivots()[channel] = pivot_of(channel);
      sums(0, 0)[channel] = sums(0, 1)[channel] = 0;
    }
    units_.for_each_tile(unit, worker, [&](const NormTile& tile, std::int64_t workspace) {
      make_tile(tile, workspace);
      units_.for_each_part(tile, [&](const NormPart& part) {
        const auto terms = [&](std::int64_t column) { return terms_of(part, lanes_of(pivots() + part.channel, column, part.channels)); };
        sum_columns(part.channels, part.pixels, terms, [&](std::int64_t column, const ColumnSums& found) {
          for (int k = 0; k < 2; ++k) sums(tile.section, k)[part.channel + column] = found[static_cast<std::size_t>(k)];
        });
      });
    });
    add_sections();
  }
  /// Once those of the channels are there. So many elements that loops over them are long.
  void repeat_coefficients(int count) const {
    for (int k = 0; k < count; ++k) {
      C* const first = coefficients(k);
      for (std::int64_t i = units_.channels; i < period(units_); ++i) first[i] = first[i - units_.channels];
    }
  }
  static std::int64_t period(const NormUnits& units) {
    if (!units.channels_last || units.channels == 0) return units.channels;
    const std::int64_t least = std::min<std::int64_t>(256, units.channels * units.tile_pixels.size);  // no longer than what they serve
    return (least + units.channels - 1) / units.channels * units.channels;
  }

 private:
  /// In order, into the first.
  void add_sections() const {
    for (std::int64_t section = 1; section < units_.sections(); ++section) {
      for (std::int64_t i = 0; i < 2 * units_.channels; ++i) sums(0, 0)[i] += sums(section, 0)[i];
    }
  }
  static std::size_t number_bytes(const NormUnits& units) {
    return aligned(units.channels * (1 + 2 * std::max<std::int64_t>(1, units.sections())), sizeof(double));
  }
  static std::size_t coefficient_bytes(const NormUnits& units) { return aligned(period(units), sizeof(C)); }

  const NormUnits& units_;
  std::byte* memory_;
};

/// output[i] = function(inputs[i]..., coefficients of its channel...) for a part. The output may be an input.
template <class T, class C, class Function, class... Inputs, int... k>
void apply_coefficients(const NormUnits& units, const NormUnitMemory<C>& memory, const NormPart& part, T* output, const Function& function,
                        std::integer_sequence<int, k...>, const Inputs*... inputs) {
  using detail::DenseOperand, detail::RepeatedOperand;
  const std::int64_t count = part.elements();
  if (!units.channels_last) {
    detail::map_run(output + part.offset, count, function, DenseOperand<T>{inputs + part.offset}...,
                    RepeatedOperand<C>{memory.coefficients(k)[part.channel]}...);
    return;
  }
  const std::int64_t period = memory.period(units);
  for (std::int64_t i = 0; i < count; i += period) {
    detail::map_run(output + part.offset + i, std::min(period, count - i), function, DenseOperand<T>{inputs + part.offset + i}...,
                    DenseOperand<C>{memory.coefficients(k)}...);
  }
}

/// Bytes of scratch memory of a norm, or its gradient, without programs.
using NormScratch = std::size_t (*)(const NormGeometry&, DType, Layout);
/// A norm's kernel, or that of its gradient, whose image is input `image`: 0 of a norm, 1 after the output's gradient. `images`: see
/// norm_kernel.
Kernel kernel_of_image(GeometryRule geometry, const NormFunction& run, NormScratch scratch, std::size_t image, bool images);

}  // namespace frit::ops
