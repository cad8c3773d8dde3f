#pragma once

#include <string>

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/strided.cuh"
#include "frit/core/tensor.h"
#include "frit/ops/cuda/lines.cuh"

namespace frit::ops {

// How CUDA kernels traverse the elements that belong to one result of a reduction: a line. A line is read by a team of threads of one
// block, whose number is a power of 2. Where a reduced axis is innermost in memory, the threads of a team are neighbours, and so are the
// elements that they read: each has some neighbouring ones at a time, where lines are made of whole such runs. Otherwise neighbouring
// threads belong to neighbouring lines: each has as many lines as fill 16 bytes, where there are whole such vectors. Where there are few
// lines, each is cut into segments, a block for each. All this depends on sizes and layout alone, so that results have the same bits at
// every run.

/// Batches that it has under way in runs, at most.
inline constexpr int batches_at_once = 4;

/// The lines of a dense tensor of any layout, for a reduction over `axes`, which are normalized.
struct Lines {
  Shape kept, reduced;  // in the order of memory, the innermost axis last
  Strides result_strides, kept_strides, reduced_strides;

  Lines(const Shape& shape, const Strides& strides, const Dims& axes);
  Lines(const Tensor& tensor, const Dims& axes) : Lines(tensor.shape(), tensor.strides(), axes) {}

  std::int64_t results() const { return element_count(kept); }
  std::int64_t count() const { return element_count(reduced); }  ///< elements of a line
  bool along_memory() const;                                     ///< a reduced axis is innermost
  bool in_runs() const;                                          ///< of batch_size neighbouring elements
  bool in_vectors(int width) const;                              ///< `width` lines lie next to each other
};

class LinePlan {
 public:
  static constexpr int threads = cuda::default_threads;

  /// `width` is that of the vectors in which lines are read that lie next to each other, `held` what a thread holds of lines in runs, in
  /// batches: lines that a block can hold, it does.
  LinePlan(const Lines& lines, int width, int held);

  /// Bytes for a state of every segment, in any layout of a tensor; 0 if lines are not cut.
  static std::size_t scratch_bytes(const Shape& shape, const Dims& axes, std::size_t state_size);

  FRIT_HOST_DEVICE std::int64_t results() const { return results_; }
  FRIT_HOST_DEVICE std::int64_t segments() const { return cut_.segments; }
  bool in_runs() const { return in_runs_; }
  /// The threads of a team have all of a line at once, in so many batches each.
  bool holds(int batches) const { return segments() == 1 && count_ <= static_cast<std::int64_t>(workers()) * batches * batch_size; }
  /// Lines that a thread has at a time.
  int width() const { return width_; }
  /// For Kernel::describe: how lines are read that registers do not hold.
  std::string schedule() const;

  /// A block takes groups of lines blockIdx.x, blockIdx.x + gridDim.x, ..., and segment blockIdx.y of each.
  cuda::LaunchShape all_segments() const;

  FRIT_HOST_DEVICE std::int64_t groups() const { return groups_; }
  /// The calling thread's segment of its line, or the first of its lines, in a group.
  __device__ Line line(std::int64_t group, std::int64_t segment) const {
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t team = group * teams() + thread % (1 << first_bit_) + (thread >> last_bit_ << first_bit_);
    Line line = team * width_ < results_ ? line_of(team * width_) : Line{.result = -1};
    line.worker = thread % (1 << last_bit_) >> first_bit_;
    line.workers = workers();
    line.begin = segment * cut_.segment_length;
    line.end = line.result < 0 ? line.begin : std::min(count_, line.begin + cut_.segment_length);
    return line;
  }
  /// A line by its number in the order of memory, all of it.
  __device__ Line line_of(std::int64_t index) const {
    std::int64_t offsets[2];
    kept_.offsets(index, offsets);
    return {offsets[0], offsets[1], 0, count_, 0, 1, result_step_};
  }
  /// From position 0 of a line to positions first, first + step, ...
  template <int count>
  __device__ void offsets(std::int64_t (&result)[count], std::int64_t first, std::int64_t step) const {
    if (stride_ > 0) {
#pragma unroll
      for (int i = 0; i < count; ++i) result[i] = first * stride_ + i * (step * stride_);
    } else if (short_) {
#pragma unroll
      for (int i = 0; i < count; ++i) result[i] = reduced_.short_offset(first + i * step);
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) result[i] = reduced_.offset(first + i * step);
    }
  }
  /// Where the state of a line's segment lies among all states.
  __device__ std::int64_t place_of_state(const Line& line, std::int64_t segment) const { return segment * results_ + line.result; }
  FRIT_HOST_DEVICE TeamBits team() const { return {1 << first_bit_, 1 << last_bit_}; }

 private:
  struct Cut {
    int workers = 1;  // on a line
    std::int64_t segments = 1, segment_length = 0;
  };

  /// `held` is 0 but for runs.
  static Cut cut_lines(std::int64_t teams, std::int64_t count, bool along_lines, int held);
  FRIT_HOST_DEVICE int workers() const { return 1 << (last_bit_ - first_bit_); }
  FRIT_HOST_DEVICE int teams() const { return 1 << teams_bit_; }

  bool in_runs_;
  int width_;
  std::int64_t results_, count_, result_step_;
  Cut cut_;
  int first_bit_, last_bit_;  // of a team
  int teams_bit_;             // of their number
  std::int64_t groups_;
  cuda::StridedIndex<2> kept_;  // of results, and of position 0 of their lines
  cuda::StridedIndex<1> reduced_;
  std::int64_t stride_;  ///< from one position to the next, if it is always the same; else 0
  bool short_;           ///< two axes are reduced
};

}  // namespace frit::ops
