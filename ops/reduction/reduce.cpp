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

}  // namespace

ReductionPlan::ReductionPlan(const Shape& shape, const Dims& axes, bool may_split) {
  const Strides strides = dense_strides(shape);
  enum class Last { none, kept, reduced } last = Last::none;
  int next = axes.rank() - 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const bool reduced = next >= 0 && axes[next] == axis;
    if (reduced) --next;
    if (shape[axis] == 1) continue;
    if (reduced) {
      prepend(reduced_, reduced_strides_, shape[axis], strides[axis], last == Last::reduced);
      count_ *= shape[axis];
    } else if (reduced_.empty()) {
      width_ *= shape[axis];
    } else {
      prepend(kept_, kept_strides_, shape[axis], strides[axis], last == Last::kept);
    }
    last = reduced ? Last::reduced : Last::kept;
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
  return {outer * width_ + column, offset_of(outer, kept_, kept_strides_) + column,
          static_cast<int>(std::min<std::int64_t>(tile_width, width_ - column))};
}

std::int64_t ReductionPlan::run_offset(std::int64_t position) const { return offset_of(position, reduced_, reduced_strides_); }

}  // namespace frit::ops
