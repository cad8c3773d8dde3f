#pragma once

#include <vector>

#include "frit/ops/convolution/cpu/convolution_cpu.h"
#include "frit/ops/convolution/cpu/packed_weight.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {

/// bfloat16 is summed in float32.
inline std::size_t size_of_sums(std::size_t element_size) { return std::max(element_size, sizeof(float)); }
inline bool in_bfloat(std::size_t element_size) { return element_size == sizeof(BFloat16); }
/// Whether sums are written where they lie in the output as they leave the registers: from bfloat16 only whole vectors are.
inline bool writes_to_output(const Direction& d, const ImageStrides& output, std::size_t element_size) {
  const std::int64_t lanes = simd::vector_bytes / static_cast<std::int64_t>(size_of_sums(element_size));
  return output.channels_last() && (!in_bfloat(element_size) || d.rows % lanes == 0);
}

/// How the work of sums over runs of taps is cut; a function of the sizes and layouts alone.
struct ConvolutionPlan {
  struct Phase {
    ImageAxes phase;
    TapRuns taps;
    std::int64_t weights;                      ///< where its packed weights begin
    bool slides = false;                       ///< neighbouring positions have most of each run in common, of float32
    std::vector<WeightElement> elements = {};  ///< of a block of columns, where weights are not packed
  };

  Direction direction;
  ImageStrides source, output, weight;
  ImageStrides numbers;  ///< of the output's elements, for Finish
  Boxes boxes;
  std::int64_t groups;  ///< that an item computes
  Window window;
  EvenBlocks columns;  ///< the output's channels of a group, which an item computes for each position
  std::vector<Phase> phases;
  PackedWeight packed;
  bool bfloat;
  std::int64_t weights = 0;  ///< elements of the packed weight
  bool through_buffer;       ///< results do not lie in the output as they are computed
  bool spread;               ///< those of neighbouring positions do not lie side by side
  ScratchParts shared, own;  ///< scratch memory: of all threads, and of each
  std::size_t bias_place, windows_place, window_place, buffer_place, positions_place, places_place, weights_place;
  WorkSplit work;

  ConvolutionPlan(const Direction& d, ImageLayouts layouts, ImagePlace weight_place, std::size_t element_size, const Finish& finish);

  /// Of a buffer's rows: the last group's is a whole vector.
  std::int64_t buffer_stride(std::int64_t item_columns) const;
  std::size_t scratch() const { return shared.bytes() + work.scratch(); }
  /// Whether windows are copied before the items, several of which read one.
  bool shares_windows() const { return window.copied && columns.count > 1; }
  /// Whether no weight is read by two items of work.
  bool packs_in_parts() const { return boxes.count() == 1 && !bfloat; }

 private:
  std::int64_t positions_of_item(std::size_t element_size) const;
  std::int64_t groups_of_item() const;
  std::int64_t copied_pixel(std::size_t element_size) const;
  std::int64_t columns_of_item(std::size_t element_size) const;
};

/// What one item of work computes: channels [column, column + columns) of a group's outputs, or all those of some groups, at the positions
/// of a box.
struct ConvolutionItem {
  std::int64_t box_index;
  Box box;
  std::int64_t group, column, columns, channels;

  ConvolutionItem(const ConvolutionPlan& plan, std::int64_t index);

  std::int64_t first_channel(const ConvolutionPlan& plan) const { return group * plan.direction.rows + column; }
};

}  // namespace frit::ops
