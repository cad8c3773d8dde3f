// The host's side of reductions: how lines are found in a tensor and dealt out to threads.

#include <array>
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

/// Of `width`: the size and the strides but for the last `inner` of them.
bool are_multiples(std::int64_t size, const Strides& strides, int width, int inner = 1) {
  bool result = size % width == 0;
  for (int axis = 0; axis < strides.rank() - inner; ++axis) result = result && strides[axis] % width == 0;
  return result;
}

}  // namespace

Lines::Lines(const Shape& shape, const Strides& strides, const Dims& axes) {
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

bool Lines::along_memory() const { return !reduced.empty() && (kept.empty() || reduced_strides.back() < kept_strides.back()); }

bool Lines::in_runs() const {
  if (!along_memory()) return false;
  Shape runs = reduced;
  std::array<Strides, 1> strides = {reduced_strides};
  collapse_axes(runs, strides);
  return strides[0].back() == 1 && are_multiples(runs.back(), strides[0], batch_size) && are_multiples(0, kept_strides, batch_size, 0);
}

bool Lines::in_vectors(int width) const {
  if (width == 1) return true;
  if (along_memory() || kept.empty() || kept_strides.back() != 1) return false;
  return are_multiples(kept.back(), kept_strides, width) && are_multiples(0, reduced_strides, width, 0);
}

LinePlan::LinePlan(const Lines& lines, int width, int held)
    : in_runs_(lines.in_runs()),
      width_(lines.in_vectors(width) ? width : 1),
      results_(lines.results()),
      count_(lines.count()),
      result_step_(lines.kept.empty() ? 0 : lines.result_strides.back()),
      cut_(cut_lines(results_ / width_, count_, lines.along_memory(), in_runs_ ? held : 0)),
      first_bit_(lines.along_memory() ? 0 : std::countr_zero(static_cast<unsigned>(threads / cut_.workers))),
      last_bit_(std::countr_zero(static_cast<unsigned>(lines.along_memory() ? cut_.workers : threads))),
      teams_bit_(std::countr_zero(static_cast<unsigned>(threads / cut_.workers))),
      groups_(ceil_divide(results_ / width_, teams())),
      kept_(lines.kept, {lines.result_strides, lines.kept_strides}),
      reduced_(lines.reduced, {lines.reduced_strides}),
      stride_(reduced_.stride().value_or(0)),
      short_(reduced_.is_short()) {}

LinePlan::Cut LinePlan::cut_lines(std::int64_t teams, std::int64_t count, bool along_lines, int held) {
  Cut cut;
  if (held > 0) {
    while (cut.workers < threads && count > cut.workers * batch_size * held) cut.workers *= 2;
  } else if (along_lines) {
    // Some batches a thread, so that merging the threads' states costs little, but only one up to a warp.
    while (cut.workers < cuda::warp_size && count >= cut.workers * batch_size * 2) cut.workers *= 2;
    while (cut.workers < threads && count >= cut.workers * batch_size * batches_at_once) cut.workers *= 2;
  } else {
    // Whole sectors of memory in a row of threads, and more rows only where there are few lines.
    const auto row = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(teams, 1, cuda::warp_size))));
    while (cut.workers < threads / row && teams * cut.workers < enough_threads && count >= cut.workers * batch_size * 2) {
      cut.workers *= 2;
    }
  }
  if (along_lines) {  // a warp shares a line before lines are cut
    while (cut.workers < cuda::warp_size && teams * cut.workers < enough_threads && count >= cut.workers * batch_size * 2) cut.workers *= 2;
  }
  const std::int64_t step = cut.workers * batch_size;
  const std::int64_t groups = std::max<std::int64_t>(1, ceil_divide(teams, threads / cut.workers));
  // Parts of short lines would cost more, as their states pass through memory, than they bring where most of a device is busy.
  constexpr std::int64_t short_line = cuda::warp_size * batch_size * batches_at_once * 2;
  const bool whole = along_lines && count <= short_line && groups >= enough_blocks / 8;
  const std::int64_t most = whole ? 1 : std::max<std::int64_t>(1, count / (step * 2));
  const std::int64_t wanted = std::clamp<std::int64_t>(enough_blocks / groups, 1, most);
  cut.segment_length = ceil_divide(ceil_divide(count, wanted), step) * step;
  cut.segments = cut.segment_length == 0 ? 1 : ceil_divide(count, cut.segment_length);
  return cut;
}

std::size_t LinePlan::scratch_bytes(const Shape& shape, const Dims& axes, std::size_t state_size) {
  const Lines lines(shape, dense_strides(shape), axes);
  const auto segments_of = [&](int width, bool along_lines, int held) {
    return cut_lines(lines.results() / width, lines.count(), along_lines, held).segments;
  };
  std::int64_t segments = 0;
  for (int held = 0; held <= batches_at_once; ++held) segments = std::max(segments, segments_of(1, true, held));
  for (const int width : {1, 2, 4, 8, 16}) {
    if (lines.results() % width == 0) segments = std::max(segments, segments_of(width, false, 0));
  }
  return segments > 1 ? static_cast<std::size_t>(lines.results() * segments) * state_size : 0;
}

cuda::LaunchShape LinePlan::all_segments() const {
  cuda::LaunchShape shape{dim3(static_cast<unsigned>(std::clamp<std::int64_t>(groups(), 1, most_blocks))), dim3(threads)};
  shape.grid.y = static_cast<unsigned>(segments());
  return shape;
}

std::string LinePlan::schedule() const {
  const char* const way = in_runs_ ? "streamed in runs" : width_ > 1 ? "streamed in columns" : "streamed by elements";
  return concat(way, segments() > 1 ? ", in segments" : "");
}

}  // namespace frit::ops
