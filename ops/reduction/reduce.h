#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>

#include "frit/core/error.h"
#include "frit/core/shape.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/cpu/transpose.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {

// The one loop of all CPU reductions. A dense tensor is seen as kept axes and reduced axes in the order of its memory, neighbours of one
// kind merged. A block is a run of at most `tile_width` results of neighbouring elements; a Tile holds their running states, one a column.
// Where the innermost axis is reduced, a block is one result, and its run is dealt out to columns too ("lanes"), which are folded into
// column 0 at the end, so that both cases are the same vector loop down columns.
//
// A Tile has
//   void clear(int width);                      the state of nothing, in columns [0, width)
//   void merge(const Tile& later, int width);   adds the states of elements that come later
//   void fold();                                adds columns [1, tile_lanes) to column 0; column i holds elements i, i + tile_lanes, ...

/// Of a lambda that is called in several places, whose loops would be compiled for each of them.
#define FRIT_NOINLINE __attribute__((noinline))

inline constexpr int tile_width = 256;
inline constexpr int tile_lanes = 64;

/// `count` rows of `width` contiguous elements, `stride` apart, that belong to columns [0, width) of a tile. Row r is the (position + r *
/// step)-th element of each result, or with lanes its column i the (position + r * step + i)-th of the one result.
struct Rows {
  std::int64_t offset;
  std::int64_t stride;
  std::int64_t position;
  std::int64_t step;
  std::int64_t count;
  int width;
};

/// Results, `step` apart from `output` on, whose first elements lie at `offset` and after.
struct Block {
  std::int64_t output;
  std::int64_t step;
  std::int64_t offset;
  int width;

  std::int64_t result(int column) const { return output + column * step; }
  /// Where the results are to be, if anywhere.
  template <class T, class Value>
  void store(T* results, const Value* values) const {
    for (int i = 0; i < width && results != nullptr; ++i) results[result(i)] = static_cast<T>(values[i]);
  }
};

/// The most elements of a short line, and of a block of such lines. So many columns are computed at a time.
inline constexpr std::int64_t short_line = 64, short_line_elements = 2048, columns_together = 32;

/// Short lines, one after another in memory, as columns in the cache: what reads rows computes many lines at a time. Rows are some
/// columns longer, of any values, so that vectors of columns need no end.
template <class T>
struct ShortLines {
  alignas(64) T columns[short_line_elements + short_line * columns_together];
  Rows rows;  ///< of `columns`

  ShortLines(const T* lines, std::int64_t count, int width)
      : rows{0, (width + columns_together - 1) / columns_together * columns_together, 0, 1, count, width} {
    transpose(lines, count, width, count, columns, rows.stride);
  }
  T* row(std::int64_t number) { return columns + number * rows.stride; }
  const T* row(std::int64_t number) const { return columns + number * rows.stride; }
  void store(T* lines) const { transpose(columns, rows.stride, rows.count, rows.width, lines, rows.count); }
};

/// How a reduction is cut into tasks. Depends on sizes alone, so results have the same bits for any number of threads.
class ReductionPlan {
 public:
  /// Of a tensor that lies so, to contiguous results; `axes` are normalized. Long reductions are cut into segments too, unless a whole
  /// result must be in one task. How does not depend on the number of blocks: a result has the same bits whatever other blocks there
  /// are.
  ReductionPlan(const Shape& shape, const Dims& axes, bool may_split = true, Layout layout = Layout::contiguous);

  std::int64_t count() const { return count_; }  ///< elements of each result
  std::int64_t blocks() const { return blocks_; }
  std::int64_t segments() const { return segments_; }
  bool spreads() const { return spreads_; }                  ///< the segments of a block are tasks of their own
  std::int64_t block_grain() const { return block_grain_; }  ///< blocks that one task takes
  bool has_lanes() const { return width_ == 1; }             ///< columns are lanes, not results
  /// Bytes for the states of all segments.
  std::size_t scratch_bytes(std::size_t tile_size) const;

  Block block(std::int64_t index) const;
  /// Each result is of one run of elements, which one task takes, and which is not empty.
  bool has_lines() const { return has_lanes() && count_ > 0 && reduced_.rank() <= 1 && kept_.rank() <= 1 && segments_ == 1; }
  /// And of so few, `most` at most, that many of them are computed together, as columns; see ShortLines.
  bool has_short_lines(std::int64_t most = short_line) const { return has_lines() && count_ <= std::min(most, short_line); }
  /// body(block) for all such results, in parallel: one result, or several that are of a tile's width of elements together.
  template <class Body>
  void for_each_lines(const Body& body) const {
    for_each_lines(std::max<std::int64_t>(tile_width / count_, 1), body);
  }
  /// Likewise of short lines, as many as ShortLines takes.
  template <class Body>
  void for_each_short_lines(const Body& body) const {
    static_assert(short_line * columns_together <= short_line_elements);
    for_each_lines(std::min<std::int64_t>(short_line_elements / count_ / columns_together * columns_together, tile_width), body);
  }
  /// What belongs to a block's one result, given to each of its lanes.
  template <class T>
  void spread(T* values) const {
    if (has_lanes()) std::fill_n(values, std::min<std::int64_t>(count_, tile_lanes), values[0]);
  }

  /// Calls body(rows) for all elements of one segment of a block.
  template <class Body>
  void for_each_rows(const Block& block, std::int64_t segment, const Body& body) const {
    const std::int64_t end = std::min(count_, (segment + 1) * segment_length_);
    for (std::int64_t position = segment * segment_length_; position < end;) {
      const std::int64_t run = std::min(end - position, run_length_ - position % run_length_);
      const std::int64_t offset = block.offset + run_offset(position);
      if (has_lanes()) {
        const std::int64_t rows = run / tile_lanes;
        const std::int64_t rest = run % tile_lanes;
        if (rows > 0) body(Rows{offset, tile_lanes, position, tile_lanes, rows, tile_lanes});
        if (rest > 0) body(Rows{offset + run - rest, tile_lanes, position + run - rest, tile_lanes, 1, static_cast<int>(rest)});
      } else {
        body(Rows{offset, run_stride_, position, 1, run, block.width});
      }
      position += run;
    }
  }

 private:
  template <class Body>
  void for_each_lines(std::int64_t most, const Body& body) const {
    parallel_for(blocks_, (block_grain_ + most - 1) / most * most, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t first = begin; first < end; first += most) {
        Block lines = block(first);
        lines.width = static_cast<int>(std::min(most, end - first));
        if (!kept_.empty()) lines.step = result_strides_[0];
        body(lines);
      }
    });
  }
  std::int64_t run_offset(std::int64_t position) const;

  Shape kept_, reduced_;  // without the kept axis at the end
  Strides kept_strides_, result_strides_, reduced_strides_;
  std::int64_t width_ = 1, result_step_ = 1;  // of the kept axis at the end
  std::int64_t tiles_ = 1;                    // that it is cut into
  std::int64_t count_ = 1, run_length_ = 1, run_stride_ = 1;
  std::int64_t blocks_ = 0, block_grain_ = 1;
  std::int64_t segments_ = 1, segment_length_ = 1;
  bool spreads_ = false;
};

/// How a CPU goes over input 0 of a call, of an operator with attributes A; and over the tensor that a call reduces, or whose gradient it
/// gives.
template <class A = ReductionAttributes>
ReductionPlan reduction_plan(const InferContext& call) {
  return {call.shape(0), reduction_axes<A>(call), true, call.input_layout(0)};
}
template <class A = ReductionAttributes>
ReductionPlan reduction_plan(const KernelContext& call, const Tensor& input) {
  return {input.shape(), reduction_axes<A>(call, input.rank()), true, input.layout()};
}

/// combine(a, b) adds column b to column a: a tree whose loops are known to the compiler.
template <int lanes = tile_lanes, class Combine>
void fold_lanes(const Combine& combine) {
  if constexpr (lanes > 1) {
    for (int i = 0; i < lanes / 2; ++i) combine(i, i + lanes / 2);
    fold_lanes<lanes / 2>(combine);
  }
}

/// add(tile, rows) for all elements of a block, then finish(tile, block): each segment has a tile of its own, if they are tasks in
/// `scratch`, and they are merged in order. With lanes, the result is in column 0.
template <class Tile, class Add, class Finish>
void reduce(const ReductionPlan& plan, std::span<std::byte> scratch, const Add& add, const Finish& finish) {
  const auto fill = [&](Tile& tile, const Block& block, std::int64_t segment) FRIT_NOINLINE {
    tile.clear(plan.has_lanes() ? tile_lanes : block.width);
    plan.for_each_rows(block, segment, [&](const Rows& rows) FRIT_NOINLINE { add(tile, rows); });
    if (plan.has_lanes()) tile.fold();
  };
  const auto merge = [&](Tile& tile, const Tile& later, const Block& block) FRIT_NOINLINE { tile.merge(later, block.width); };
  const auto end = [&](const Tile& tile, const Block& block) FRIT_NOINLINE { finish(tile, block); };
  const std::int64_t segments = plan.segments();
  if (!plan.spreads()) {
    parallel_for(plan.blocks(), plan.block_grain(), [&](std::int64_t begin, std::int64_t last) {
      Tile tiles[2];  // the result's, and a later segment's
      for (std::int64_t b = begin; b < last; ++b) {
        const Block block = plan.block(b);
        for (std::int64_t segment = 0; segment < segments; ++segment) {
          Tile& tile = tiles[segment == 0 ? 0 : 1];
          fill(tile, block, segment);
          if (segment > 0) merge(tiles[0], tile, block);
        }
        end(tiles[0], block);
      }
    });
    return;
  }
  FRIT_CHECK(scratch.size() >= plan.scratch_bytes(sizeof(Tile)));
  Tile* const tiles = reinterpret_cast<Tile*>(scratch.data());
  parallel_for(plan.blocks() * segments, 1, [&](std::int64_t begin, std::int64_t last) {
    for (std::int64_t i = begin; i < last; ++i) fill(tiles[i], plan.block(i / segments), i % segments);
  });
  parallel_for(plan.blocks(), 1, [&](std::int64_t b, std::int64_t) {
    const Block block = plan.block(b);
    Tile& tile = tiles[b * segments];
    for (std::int64_t segment = 1; segment < segments; ++segment) merge(tile, tiles[b * segments + segment], block);
    end(tile, block);
  });
}

/// reduce() of the elements of x: tile.add(rows, x) adds rows of them. Short lines are computed as columns, many at a time.
template <class Tile, class T, class Finish>
void reduce_elements(const ReductionPlan& plan, std::span<std::byte> scratch, const T* x, const Finish& finish) {
  if constexpr (sizeof(T) >= 4) {
    if (plan.has_short_lines()) {
      return plan.for_each_short_lines([&](const Block& lines) {
        const ShortLines<T> columns(x + lines.offset, plan.count(), lines.width);
        Tile tile;
        tile.clear(lines.width);
        tile.add(columns.rows, columns.columns);
        finish(tile, lines);
      });
    }
  }
  reduce<Tile>(
      plan, scratch, [x](Tile& tile, const Rows& rows) { tile.add(rows, x); }, finish);
}

/// What a reduction's gradient needs: values(result) gives two numbers of the result that an element went into, and every element of
/// `output` becomes element(place, those two).
template <class T, class Values, class Element>
void visit(const ReductionPlan& plan, T* output, const Values& values, const Element& element) {
  const auto write = [&](std::int64_t offset, std::int64_t width, const T* first, const T* second) {
    FRIT_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < width; ++i) output[offset + i] = element(offset + i, first[i], second[i]);
  };
  if (plan.has_lines()) {
    return plan.for_each_lines([&](const Block& lines) {
      T first[tile_width], second[tile_width];
      const std::int64_t own = std::min<std::int64_t>(plan.count(), tile_width), all = lines.width * plan.count();
      for (int line = 0; line < lines.width; ++line) {
        const auto [one, other] = values(lines.result(line));
        std::fill_n(first + line * own, own, one);
        std::fill_n(second + line * own, own, other);
      }
      for (std::int64_t i = 0; i < all; i += tile_width)
        write(lines.offset + i, std::min<std::int64_t>(tile_width, all - i), first, second);
    });
  }
  parallel_for(plan.blocks() * plan.segments(), plan.block_grain(), [&](std::int64_t begin, std::int64_t end) {
    T first[tile_width], second[tile_width];
    for (std::int64_t i = begin; i < end; ++i) {
      const Block block = plan.block(i / plan.segments());
      for (int column = 0; column < block.width; ++column) std::tie(first[column], second[column]) = values(block.result(column));
      plan.spread(first);
      plan.spread(second);
      plan.for_each_rows(block, i % plan.segments(), [&](const Rows& rows) FRIT_NOINLINE {
        for (std::int64_t row = 0; row < rows.count; ++row) write(rows.offset + row * rows.stride, rows.width, first, second);
      });
    }
  });
}

}  // namespace frit::ops
