#pragma once

#include <cstdint>

#include "frit/core/cuda/divisor.cuh"
#include "frit/core/cuda/tile.cuh"
#include "frit/ops/cuda/computed.cuh"
#include "frit/ops/elementwise/functions.h"

// What the kernel of one program of elementwise operators is written in: see compiled_program.cu, which writes it. NVRTC compiles this
// header and all that it includes, without a C++ library; what it has instead lies in ops/libraries/cuda/rtc.

namespace frit::ops::program {

using ops::converted;

inline constexpr int threads = 256, most_rank = 8;

/// How a vector of neighbouring elements, in the order of the outputs' memory, lies in a tensor.
enum class Access : std::uint8_t {
  vector,    ///< at its own place, and aligned
  dense,     ///< at its own place
  repeated,  ///< one element for all
  run,       ///< side by side and aligned, somewhere
  row,       ///< one element for the whole vector
  indexed,   ///< each by strides
  turned,    ///< in a tile, across the vectors
  column,    ///< of matrices: at its own place in a row, and aligned, the same in all rows
};

/// A tensor's memory, and where its elements lie there: axes as few as describe it and the outputs.
struct Operand {
  void* data;
  int rank;
  cuda::Divisor sizes[most_rank];
  std::int64_t strides[most_rank];

  __device__ const std::int64_t (&tile_strides() const)[3] { return reinterpret_cast<const std::int64_t(&)[3]>(strides); }

  /// Element numbers are below 2^31 where an axis is looked at.
  __device__ std::int64_t offset_of(std::int64_t element) const {
    auto rest = static_cast<std::uint32_t>(element);
    std::int64_t offset = 0;
#pragma unroll 1
    for (int axis = rank - 1; axis > 0; --axis) {
      const std::uint32_t quotient = sizes[axis].quotient(rest);
      offset += sizes[axis].remainder(rest, quotient) * strides[axis];
      rest = quotient;
    }
    return offset + rest * strides[0];
  }
};

template <int count>
struct Operands {
  Operand of[count];
};

/// Elements first ... of an operand, converted to T; those from `count` on are 0.
template <class Stored, Access access, class T, int width>
__device__ cuda::Vector<T, width> load(const Operand& operand, std::int64_t first, std::int64_t count) {
  using Elements = cuda::Vector<Stored, width>;
  const auto* const data = static_cast<const Stored*>(operand.data);
  Elements stored{};
  if constexpr (access == Access::run) {
    stored = *reinterpret_cast<const Elements*>(data + operand.offset_of(first));
  } else if (access == Access::vector && first + width <= count) {
    stored = *reinterpret_cast<const Elements*>(data + first);
  } else {
    const std::int64_t only = access == Access::row ? operand.offset_of(first) : 0;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (first + i >= count) break;
      const std::int64_t place = access <= Access::dense ? first + i : access == Access::indexed ? operand.offset_of(first + i) : only;
      stored[i] = data[place];
    }
  }
  return converted<T, width>(stored);
}

template <class Stored, Access access, class T, int width>
__device__ void store(const Operand& operand, std::int64_t first, std::int64_t count, const cuda::Vector<T, width>& elements) {
  auto* const data = static_cast<Stored*>(operand.data) + first;
  const auto stored = converted<Stored, width>(elements);
  if (access == Access::vector && first + width <= count) {
    cuda::store_elements(data, stored, true);
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) {
      if (first + i < count) data[i] = stored[i];
    }
  }
}

// Of matrices, an operand's strides are those of matrices, rows and columns; a vector lies in a row.

/// Matrices in strips, of which a block has one: so many rows of so many vectors.
struct Strips {
  cuda::TileGrid grid;
  int vectors, rows;

  FRIT_HOST_DEVICE int step() const { return threads / vectors; }  ///< rows that the threads of a block have at a time
  FRIT_HOST_DEVICE std::int64_t across(int width) const { return (grid.columns / width + vectors - 1) / vectors; }
  FRIT_HOST_DEVICE std::int64_t down() const { return (grid.rows + rows - 1) / rows; }
  std::int64_t blocks(int width) const { return grid.matrices * down() * across(width); }
};

/// Rows of a vector that a thread has at once: 16 elements.
FRIT_HOST_DEVICE constexpr int rows_at_once(int width) { return 16 / width; }

/// The part of a strip that a thread has: of every `step` rows one.
struct StripPlace {
  std::int64_t matrix, row, column;
  int rows, step;  ///< rows: from its first to the end of the strip

  __device__ StripPlace(const Strips& strips, int width) : step(strips.step()) {
    const auto across = static_cast<unsigned>(strips.across(width)), down = static_cast<unsigned>(strips.down());
    const unsigned rest = blockIdx.x / across, thread_row = threadIdx.x / static_cast<unsigned>(strips.vectors);
    const std::int64_t first = static_cast<std::int64_t>(rest % down) * strips.rows;
    const std::int64_t end = first + strips.rows < strips.grid.rows ? first + strips.rows : strips.grid.rows;
    matrix = rest / down;
    row = first + thread_row;
    column =
        (static_cast<std::int64_t>(blockIdx.x % across) * strips.vectors + threadIdx.x % static_cast<unsigned>(strips.vectors)) * width;
    rows = static_cast<int>(thread_row) < step && column < strips.grid.columns ? static_cast<int>(end - row) : 0;
  }

  __device__ std::int64_t offset(const std::int64_t (&strides)[3], int r = 0, int c = 0) const {
    return matrix * strides[0] + (row + r) * strides[1] + (column + c) * strides[2];
  }
};

/// A thread's vectors of an operand: in some columns, of every `step` rows one.
template <class Stored>
struct RowIterator {
  Stored* data;
  std::int64_t stride, of_columns;

  template <class At>
  __device__ RowIterator(const Operand& operand, const At& at, int row, int column, int step)
      : data(static_cast<Stored*>(operand.data) + at.offset(operand.tile_strides(), row, column)),
        stride(operand.strides[1] * step),
        of_columns(operand.strides[2]) {}

  __device__ void advance(int times = 1) { data += times * stride; }
};

/// Converted to T.
template <Access access, class T, int width, class Stored>
__device__ cuda::Vector<T, width> load_of_row(const RowIterator<Stored>& it) {
  if constexpr (access == Access::vector || access == Access::column) {
    const auto stored = *reinterpret_cast<const cuda::Vector<Stored, width>*>(it.data);  // in one access
    return converted<T, width>(stored);
  } else {
    cuda::Vector<T, width> elements;
#pragma unroll
    for (int i = 0; i < width; ++i) elements[i] = access == Access::row && i > 0 ? elements[0] : convert<T>(it.data[i * it.of_columns]);
    return elements;
  }
}

/// Where the elements are neighbours; in one access if there are several.
template <class Stored, class T, int width>
__device__ void store_row(const RowIterator<Stored>& it, const cuda::Vector<T, width>& elements) {
  cuda::store_elements(it.data, converted<Stored, width>(elements), true);
}

/// Of several rows, as one vector; those from row `rows` on are 0.
template <Access access, class T, int width, class Stored>
__device__ cuda::Vector<T, 16> load_of_rows(RowIterator<Stored> it, int rows, int step) {
  cuda::Vector<T, 16> elements{};
#pragma unroll
  for (int k = 0; k < rows_at_once(width); ++k) {
    if (access != Access::column && k * step >= rows) break;
    const auto of_row = load_of_row<access, T, width>(it);
#pragma unroll
    for (int i = 0; i < width; ++i) elements[k * width + i] = of_row[i];
    if (access != Access::column) it.advance();
  }
  return elements;
}
template <int width, class Stored, class T>
__device__ void store_rows(RowIterator<Stored> it, int rows, int step, const cuda::Vector<T, 16>& elements) {
#pragma unroll
  for (int k = 0; k < rows_at_once(width); ++k) {
    if (k * step >= rows) break;
    cuda::Vector<T, width> of_row;
#pragma unroll
    for (int i = 0; i < width; ++i) of_row[i] = elements[k * width + i];
    store_row(it, of_row);
    it.advance();
  }
}

/// A functor's state.
struct State {
  std::uint64_t words[2];
};

template <class T, class Functor, class Out, class A>
__device__ T call(std::type_identity<Out(A)>, const Functor& functor, T a, T, T) {
  return static_cast<T>(functor(static_cast<A>(a)));
}
template <class T, class Functor, class Out, class A, class B>
__device__ T call(std::type_identity<Out(A, B)>, const Functor& functor, T a, T b, T) {
  return static_cast<T>(functor(static_cast<A>(a), static_cast<B>(b)));
}
template <class T, class Functor, class Out, class A, class B, class C>
__device__ T call(std::type_identity<Out(A, B, C)>, const Functor& functor, T a, T b, T c) {
  return static_cast<T>(functor(static_cast<A>(a), static_cast<B>(b), static_cast<C>(c)));
}

/// One elementwise operator on vectors; it does not look at operands that it does not have.
template <class T, int width, template <class> class Signature, template <class> class Functor, class A, bool integers>
__device__ cuda::Vector<T, width> apply(std::type_identity<Elementwise<Signature, Functor, A, integers>>, const void* state,
                                        const cuda::Vector<T, width>& a, const cuda::Vector<T, width>& b, const cuda::Vector<T, width>& c) {
  const auto functor = *static_cast<const Functor<T>*>(state);
  cuda::Vector<T, width> result;
#pragma unroll
  for (int i = 0; i < width; ++i) result[i] = call(std::type_identity<Signature<T>>{}, functor, a[i], b[i], c[i]);
  return result;
}

/// a / b for a b that is the same everywhere, as PyTorch divides by a number: times its reciprocal, unless that is extreme. A division of
/// each element takes as long as ten products.
template <class T, int width>
__device__ cuda::Vector<T, width> divide_by_number(const cuda::Vector<T, width>& a, const cuda::Vector<T, width>& b) {
  cuda::Vector<T, width> result;
  const T magnitude = std::abs(b[0]), reciprocal = 1 / b[0];
  if (magnitude > static_cast<T>(1e-30) && magnitude < static_cast<T>(1e30)) {
#pragma unroll
    for (int i = 0; i < width; ++i) result[i] = a[i] * reciprocal;
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) result[i] = a[i] / b[0];
  }
  return result;
}

/// The operator whose functor has that number (see FunctorData).
template <int number, class T, int width>
__device__ cuda::Vector<T, width> apply(const State& state, const cuda::Vector<T, width>& a, const cuda::Vector<T, width>& b,
                                        const cuda::Vector<T, width>& c) {
  return apply(std::type_identity<std::tuple_element_t<number, ElementwiseFunctions>>{}, state.words, a, b, c);
}

}  // namespace frit::ops::program
