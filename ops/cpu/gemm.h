#pragma once

#include <cstddef>
#include <span>

#include "frit/core/shape.h"

namespace frit::ops {

/// c (batch, rows, columns) = a (batch, rows, depth) b (batch, depth, columns) + bias (columns), with c contiguous. Strides are in
/// elements; a batch stride of 0 repeats a matrix.
struct GemmShape {
  std::int64_t rows, columns, depth;
  std::int64_t a_row_stride, a_depth_stride;
  std::int64_t b_depth_stride, b_column_stride;
  Dims batch = {};
  Strides a_batch_strides = {}, b_batch_strides = {};
};

/// How gemm takes a b that comes packed, as products read it: only one that is the same for a whole batch can.
struct PackedOperand {
  std::int64_t elements = 0;  ///< 0: it cannot
  bool needed = false;        ///< else it packs part by part what comes unpacked: few blocks of rows read each part
};
PackedOperand packed_operand(const GemmShape& shape, std::size_t element_size);
template <class T>
void pack_b(const GemmShape& shape, const T* b, T* packed);

/// Bytes of scratch that gemm needs for elements of the given size.
std::size_t gemm_scratch(const GemmShape& shape, std::size_t element_size);

/// Runs on all threads. An element has the same bits for any number of them, and whatever the sizes but `depth`. `packed` may be null, with
/// the same bits; else `b` is not read. `bias` may be null. For float and double.
template <class T>
void gemm(const GemmShape& shape, const T* a, const T* b, const T* packed, const T* bias, T* c, std::span<std::byte> scratch);

}  // namespace frit::ops
