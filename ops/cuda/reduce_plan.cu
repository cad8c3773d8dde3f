// The host's side of reductions: how lines are found in a tensor and dealt out to threads.

#include <bit>

#include "frit/core/cuda/reduce.cuh"
#include "frit/ops/cuda/reduce_plan.cuh"

namespace frit::ops {
namespace {

constexpr std::int64_t enough_blocks = 1024;  // to fill a device
constexpr std::int64_t enough_threads = enough_blocks * LinePlan::threads;
constexpr std::int64_t most_blocks = 132 * 32;  // others take turns

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Keeps axes in the order of memory, the innermost last; returns the new axis's place.
int insert_by_stride(Shape& shape, Strides& strides, std::int64_t size, std::int64_t stride) {
  int place = 0;
  while (place < shape.rank() && strides[place] > stride) ++place;
  shape.insert(place, size);
  strides.insert(place, stride);
  return place;
}

}  // namespace

LinePlan::Axes::Axes(const Shape& shape, const Strides& strides, const Dims& axes) {
  std::int64_t result_stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      insert_by_stride(reduced, reduced_strides, shape[axis], strides[axis]);
    } else {
      result_strides.insert(insert_by_stride(kept, kept_strides, shape[axis], strides[axis]), result_stride);
      result_stride *= shape[axis];
    }
  }
}

bool LinePlan::Axes::reduced_is_innermost() const {
  return !reduced.empty() && (kept.empty() || reduced_strides.back() < kept_strides.back());
}

LinePlan::LinePlan(const Shape& shape, const Strides& strides, const Dims& axes) : LinePlan(Axes(shape, strides, axes)) {}

LinePlan::LinePlan(const Axes& axes)
    : along_lines_(axes.reduced_is_innermost()),
      results_(element_count(axes.kept)),
      count_(element_count(axes.reduced)),
      cut_(cut_lines(results_, count_, along_lines_)),
      first_bit_(along_lines_ ? 0 : std::countr_zero(static_cast<unsigned>(threads / cut_.workers))),
      last_bit_(std::countr_zero(static_cast<unsigned>(along_lines_ ? cut_.workers : threads))),
      kept_(axes.kept, {axes.result_strides, axes.kept_strides}),
      reduced_(axes.reduced, {axes.reduced_strides}) {}

LinePlan::Cut LinePlan::cut_lines(std::int64_t results, std::int64_t count, bool along_lines) {
  Cut cut;
  if (along_lines) {
    // A batch a thread up to a warp, then some, so that merging the threads' states costs little.
    while (cut.workers < cuda::warp_size && count >= cut.workers * batch_size) cut.workers *= 2;
    while (cut.workers < threads && count >= cut.workers * batch_size * 4) cut.workers *= 2;
  } else {
    // Whole sectors of memory in a row of threads, and more rows only where there are few lines.
    const auto row = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(results, 1, cuda::warp_size))));
    while (cut.workers < threads / row && results * cut.workers < enough_threads && count >= cut.workers * batch_size * 2) {
      cut.workers *= 2;
    }
  }
  const std::int64_t step = cut.workers * batch_size;
  const std::int64_t groups = std::max<std::int64_t>(1, ceil_divide(results, threads / cut.workers));
  const std::int64_t wanted = std::clamp<std::int64_t>(enough_blocks / groups, 1, std::max<std::int64_t>(1, count / (step * 2)));
  cut.segment_length = ceil_divide(ceil_divide(count, wanted), step) * step;
  cut.segments = cut.segment_length == 0 ? 1 : ceil_divide(count, cut.segment_length);
  return cut;
}

std::size_t LinePlan::scratch_bytes(const Shape& shape, const Dims& axes, std::size_t state_size) {
  const Axes split(shape, dense_strides(shape), axes);
  const std::int64_t results = element_count(split.kept), count = element_count(split.reduced);
  std::int64_t states = 0;
  for (const bool along_lines : {true, false}) {
    const Cut cut = cut_lines(results, count, along_lines);
    if (cut.segments > 1) states = std::max(states, results * cut.segments);
  }
  return static_cast<std::size_t>(states) * state_size;
}

cuda::LaunchShape LinePlan::whole_lines() const {
  return {dim3(static_cast<unsigned>(std::clamp<std::int64_t>(groups(), 1, most_blocks))), dim3(threads)};
}

cuda::LaunchShape LinePlan::all_segments() const {
  cuda::LaunchShape shape = whole_lines();
  shape.grid.y = static_cast<unsigned>(segments());
  return shape;
}

}  // namespace frit::ops
