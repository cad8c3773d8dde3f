#include "frit/ops/reduction/reduce.h"

namespace frit::ops {
namespace {

constexpr std::int64_t task_elements = 16384;  // worth a task of its own
constexpr std::int64_t enough_tasks = 128;     // no further cutting of work above

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t offset_of(std::int64_t index, const Shape& shape, const Strides& strides) {
  std::int64_t offset = 0;
  for (int axis = shape.rank() - 1; axis > 0; --axis) {
    offset += index % shape[axis] * strides[axis];
    index /= shape[axis];
  }
  return shape.empty() ? offset : offset + index * strides[0];
}

void prepend(Shape& shape, Strides& strides, std::int64_t size, std::int64_t stride, bool joins) {
  if (joins) {
    shape[0] *= size;
  } else {
    shape.insert(0, size);
    strides.insert(0, stride);
  }
}

/// The axis that is the so many-th in memory.
int axis_at(int place, int rank, Layout layout) {
  if (layout == Layout::contiguous || place == 0) return place;
  return place == rank - 1 ? 1 : place + 1;
}

}  // namespace

ReductionPlan::ReductionPlan(const Shape& shape, const Dims& axes, bool may_split, Layout layout) {
  const Strides strides = dense_strides(shape, layout);
  std::int64_t results = 1;
  Strides result_strides = Dims::filled(shape.rank(), 0);  // 0: a reduced axis
  int next = axes.rank() - 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const bool reduced = next >= 0 && axes[next] == axis;
    if (reduced) --next;
    if (reduced) continue;
    result_strides[axis] = results;
    results *= std::max<std::int64_t>(1, shape[axis]);
  }
  int last = -1;
  for (int place = shape.rank() - 1; place >= 0; --place) {
    const int axis = axis_at(place, shape.rank(), layout);
    const std::int64_t size = shape[axis], step = result_strides[axis];
    if (size == 1) continue;
    const bool reduced = step == 0, alike = last >= 0 && reduced == (result_strides[last] == 0);
    if (reduced) {
      prepend(reduced_, reduced_strides_, size, strides[axis], alike);
      count_ *= size;
    } else if (last < 0) {
      width_ = size, result_step_ = step;
    } else if (reduced_.empty() && kept_.empty() && step == width_ * result_step_) {
      width_ *= size;
    } else {
      const bool joins = alike && !kept_.empty() && step == result_strides_[0] * kept_[0];
      prepend(kept_, kept_strides_, size, strides[axis], joins);
      if (!joins) result_strides_.insert(0, step);
    }
    last = axis;
  }
  if (!reduced_.empty()) {
    run_length_ = reduced_.back();
    run_stride_ = reduced_strides_.back();
  }
  tiles_ = ceil_divide(width_, tile_width);
  blocks_ = tiles_ * element_count(kept_);

  const std::int64_t block_elements = std::max<std::int64_t>(1, count_ * std::min<std::int64_t>(width_, tile_width));
  block_grain_ = std::max<std::int64_t>(1, task_elements / block_elements);
  if (may_split) {
    segments_ = std::min({enough_tasks, ceil_divide(block_elements, task_elements), std::max<std::int64_t>(count_, 1)});
  }
  segment_length_ = std::max<std::int64_t>(1, ceil_divide(count_, segments_));
  segments_ = std::max<std::int64_t>(1, ceil_divide(count_, segment_length_));
  spreads_ = segments_ > 1 && blocks_ < enough_tasks;
}

std::size_t ReductionPlan::scratch_bytes(std::size_t tile_size) const {
  return spreads_ ? static_cast<std::size_t>(blocks_ * segments_) * tile_size : 0;
}

Block ReductionPlan::block(std::int64_t index) const {
  const std::int64_t outer = tiles_ == 1 ? index : index / tiles_;
  const std::int64_t column = (index - outer * tiles_) * tile_width;
  return {offset_of(outer, kept_, result_strides_) + column * result_step_, result_step_, offset_of(outer, kept_, kept_strides_) + column,
          static_cast<int>(std::min<std::int64_t>(tile_width, width_ - column))};
}

std::int64_t ReductionPlan::run_offset(std::int64_t position) const { return offset_of(position, reduced_, reduced_strides_); }

}  // namespace frit::ops
