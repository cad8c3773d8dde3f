#pragma once

#include <vector>

#include "frit/ops/convolution/cpu/image.h"
#include "frit/ops/cpu/run_product.h"

namespace frit::ops {

/// One element of a kernel: where its channels lie in a position's window, and where its weights do in those of a row and channel.
struct Tap {
  std::int64_t offset, weight;
};

/// Runs whose elements are summed together; they begin at element `begin` of all, or `packed_begin` if each run is filled up to whole
/// steps.
struct Chunk {
  std::size_t first_run, runs = 0;
  std::int64_t begin, length = 0;
  std::int64_t packed_begin, packed_length = 0;
};

/// What each position of a phase reads of its window: the channels of its taps, in the order of memory, as few long runs.
struct TapRuns {
  std::vector<Tap> taps;
  std::int64_t depth;             ///< elements in all: channels of all taps
  std::int64_t packed_depth = 0;  ///< with each run filled up
  std::vector<Run> runs = {};
  std::vector<Chunk> chunks = {};  ///< one at least

  /// In chunks of most_depth elements at most, filled up to whole steps, which it is a multiple of; of even length if a step is an element.
  TapRuns(std::vector<Tap> in_order, std::int64_t channels, std::int64_t most_depth, std::int64_t step = 1);
  TapRuns(const Taps& axes, const Window& window, const ImageStrides& weight, std::int64_t most_depth, std::int64_t step = 1);

  std::span<const Run> runs_of(const Chunk& chunk) const { return std::span(runs).subspan(chunk.first_run, chunk.runs); }
};

}  // namespace frit::ops
