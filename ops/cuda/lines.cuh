#pragma once

#include <algorithm>
#include <cstdint>

#include "frit/core/convert.h"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/cuda/states.cuh"

namespace frit::ops {

// Lines of elements, each of which a reduction makes one result of, as a thread sees them. NVRTC compiles this header too.

/// A thread's part of a line: in runs, batch_size positions from begin + batch_size * worker on, then those batch_size * workers further on,
/// and so on; otherwise begin + worker, begin + worker + workers, ...; all below end.
struct Line {
  std::int64_t result;  ///< place among the results, which lie contiguously; -1: there is no line for the thread
  std::int64_t offset;  ///< of position 0
  std::int64_t begin, end;
  int worker, workers;
  std::int64_t result_step = 0;  ///< from a line's place to that of the next one in memory

  /// The k-th line after this one in memory, of those that a thread has together.
  __device__ Line neighbour(int k) const {
    Line line = *this;
    line.result += k * result_step;
    line.offset += k;
    return line;
  }
};

/// Elements of a line that a thread reads at once. Element i exists if has(i); element 0 does, and in a run all do.
struct Batch {
  std::int64_t position;  ///< of element 0
  int step;               ///< from one element's position to the next's
  int left;               ///< positions to the end of the line, if that is near

  /// Of a run.
  __device__ explicit Batch(std::int64_t first) : position(first), step(1), left(batch_size) {}
  __device__ Batch(std::int64_t first, const Line& line)
      : position(first), step(line.workers), left(static_cast<int>(std::min<std::int64_t>(line.end - first, batch_size * step))) {}
  __device__ bool has(int i) const { return i * step < left; }
};

/// The elements of one tensor as terms of a type.
template <class T, class Term = T>
struct TensorSource {
  static constexpr int width = cuda::vector_width<T>;
  const T* x;

  template <int n>
  __device__ cuda::VectorWords<T, n> load(std::int64_t offset) const {
    return cuda::VectorWords<T, n>::load(x + offset, cuda::aligned_for_vectors(x));
  }
  template <int n>
  __device__ Term term(const cuda::VectorWords<T, n>& raw, int i) const {
    return convert<Term>(raw[i]);
  }
};

/// What load<n> of a source gives.
template <class Source, int n>
using RawOf = decltype(std::declval<Source>().template load<n>(0));
template <class Source>
using TermOf = decltype(std::declval<Source>().term(std::declval<RawOf<Source, 1>>(), 0));

}  // namespace frit::ops
