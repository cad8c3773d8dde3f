#pragma once

#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/strided.cuh"
#include "frit/core/tensor.h"

namespace frit::ops {

// How CUDA kernels traverse the elements that belong to one result of a reduction: a line. A line is read by a team of threads of one
// block, whose number is a power of 2. Where a reduced axis is innermost in memory, the threads of a team are neighbours, and so are the
// elements that they read. Otherwise neighbouring threads belong to neighbouring lines. Where there are few lines, each is cut into
// segments, a block for each. All this depends on sizes and layout alone, so that results have the same bits at every run.

/// Elements that a thread reads at once.
inline constexpr int batch_size = 8;

/// A thread's part of a line: positions begin + worker, begin + worker + workers, ... below end.
struct Line {
  std::int64_t result;  ///< place among the results, which lie contiguously; -1: there is no line for the thread
  std::int64_t offset;  ///< of position 0
  std::int64_t begin, end;
  int worker, workers;
};

/// A team: the threads of a block whose numbers differ in no bits but those from `first` up to below `last`, both powers of 2.
struct TeamBits {
  int first, last;
};

class LinePlan {
 public:
  static constexpr int threads = cuda::default_threads;

  /// Of a dense tensor of any layout; `axes` are normalized.
  LinePlan(const Shape& shape, const Strides& strides, const Dims& axes);
  LinePlan(const Tensor& tensor, const Dims& axes) : LinePlan(tensor.shape(), tensor.strides(), axes) {}

  /// Bytes for a state of every segment, in any layout of the tensor; 0 if lines are not cut.
  static std::size_t scratch_bytes(const Shape& shape, const Dims& axes, std::size_t state_size);

  std::int64_t results() const { return results_; }
  std::int64_t count() const { return count_; }  ///< elements of a line
  FRIT_HOST_DEVICE std::int64_t segments() const { return cut_.segments; }

  /// A block takes groups of lines blockIdx.x, blockIdx.x + gridDim.x, ..., and segment blockIdx.y of each.
  cuda::LaunchShape whole_lines() const;
  cuda::LaunchShape all_segments() const;

  FRIT_HOST_DEVICE std::int64_t groups() const { return (results_ + lines_per_group() - 1) / lines_per_group(); }
  /// The calling thread's segment of its line in a group.
  __device__ Line line(std::int64_t group, std::int64_t segment) const {
    const int thread = static_cast<int>(threadIdx.x);
    const std::int64_t index = group * lines_per_group() + thread % (1 << first_bit_) + (thread >> last_bit_ << first_bit_);
    Line line{-1, 0, 0, 0, thread % (1 << last_bit_) >> first_bit_, workers()};
    if (index < results_) {
      std::int64_t offsets[2];
      kept_.offsets(index, offsets);
      line.result = offsets[0];
      line.offset = offsets[1];
      line.begin = segment * cut_.segment_length;
      line.end = std::min(count_, line.begin + cut_.segment_length);
    }
    return line;
  }
  /// From position 0 of a line to another.
  __device__ std::int64_t offset(std::int64_t position) const {
    std::int64_t offsets[1];
    reduced_.offsets(position, offsets);
    return offsets[0];
  }
  /// Where the state of a line's segment lies among all states: neighbours are read by neighbouring threads.
  __device__ std::int64_t place_of_state(const Line& line, std::int64_t segment) const {
    return along_lines_ ? line.result * cut_.segments + segment : segment * results_ + line.result;
  }
  __device__ TeamBits team() const { return {1 << first_bit_, 1 << last_bit_}; }

 private:
  struct Cut {
    int workers = 1;  // on a line
    std::int64_t segments = 1, segment_length = 0;
  };
  struct Axes {
    Shape kept, reduced;
    Strides result_strides, kept_strides, reduced_strides;

    Axes(const Shape& shape, const Strides& strides, const Dims& axes);
    bool reduced_is_innermost() const;
  };

  LinePlan(const Axes& axes);
  static Cut cut_lines(std::int64_t results, std::int64_t count, bool along_lines);
  FRIT_HOST_DEVICE int workers() const { return 1 << (last_bit_ - first_bit_); }
  FRIT_HOST_DEVICE int lines_per_group() const { return threads / workers(); }

  bool along_lines_;  // neighbouring threads read along a line
  std::int64_t results_, count_;
  Cut cut_;
  int first_bit_, last_bit_;    // of a team
  cuda::StridedIndex<2> kept_;  // of results, and of position 0 of their lines
  cuda::StridedIndex<1> reduced_;
};

}  // namespace frit::ops
