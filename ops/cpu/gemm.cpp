#include "frit/ops/cpu/gemm.h"

#include <algorithm>

#include "frit/ops/cpu/block_product.h"
#include "frit/ops/cpu/work_split.h"

namespace frit::ops {
namespace {

/// The block of c that one item of work computes, and the depth of b that it packs at a time.
constexpr std::int64_t most_rows = 128, most_columns = 256, most_depth = 128;
/// With few rows a block's time goes into packing b, which is read back from the nearest cache where it is narrow.
constexpr std::int64_t few_rows = 8, few_columns = 48;
/// A deep product is cut along its depth too, by the depth alone, and the slices' sums are added in order: an element has the same bits
/// whatever rows and columns are computed with it. Where there are few blocks of c, slices are items of their own.
constexpr std::int64_t most_slices = 32, least_slice = 256, enough_items = 32;

/// How the work is cut; a function of the sizes alone.
struct Plan {
  GemmShape shape;
  std::int64_t batch;
  EvenBlocks rows, columns, slices;
  bool spreads;                                        ///< slices are items of their own
  std::size_t pack_bytes, slice_bytes, partial_bytes;  ///< of an item, for what it packs and for a slice's sums; of all slices' sums
  WorkSplit work;

  Plan(const GemmShape& given, std::size_t element_size) : shape(given), batch(element_count(given.batch)) {
    rows = EvenBlocks(shape.rows, most_rows);
    columns = EvenBlocks(shape.columns, shape.rows <= few_rows ? few_columns : most_columns, 64 / static_cast<std::int64_t>(element_size));
    slices = EvenBlocks(shape.depth, std::max(least_slice, (shape.depth + most_slices - 1) / most_slices));
    spreads = slices.count > 1 && blocks() < enough_items;
    const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * element_size; };
    pack_bytes = bytes(std::min(most_depth, slices.size) * packed_stride(columns.size, element_size));
    slice_bytes = spreads || slices.count <= 1 ? 0 : bytes(rows.size * columns.size);
    partial_bytes = spreads ? bytes(slices.count * elements()) : 0;
    const std::int64_t item_depth = spreads ? slices.size : shape.depth;
    work = WorkSplit(blocks() * (spreads ? slices.count : 1), rows.size * columns.size * item_depth, pack_bytes + slice_bytes);
  }

  std::int64_t blocks() const { return batch * rows.count * columns.count; }

  std::int64_t elements() const { return batch * shape.rows * shape.columns; }
};

std::int64_t batch_offset(const Dims& batch, const Strides& strides, std::int64_t index) {
  std::int64_t offset = 0;
  for (int axis = batch.rank() - 1; axis >= 0; --axis) {
    offset += index % batch[axis] * strides[axis];
    index /= batch[axis];
  }
  return offset;
}

/// One block of c as an item of work sees it.
template <class T>
struct ItemBlock {
  std::int64_t rows, columns;
  const T *a, *b;      // at depth 0
  std::int64_t place;  // in c

  ItemBlock(const Plan& plan, std::int64_t block, const T* all_a, const T* all_b) {
    const GemmShape& s = plan.shape;
    const std::int64_t row_block = block % plan.rows.count, column_block = block / plan.rows.count % plan.columns.count;
    const std::int64_t index = block / plan.rows.count / plan.columns.count;
    const std::int64_t row = plan.rows.begin(row_block), column = plan.columns.begin(column_block);
    rows = plan.rows.length_of(row_block);
    columns = plan.columns.length_of(column_block);
    a = all_a + batch_offset(s.batch, s.a_batch_strides, index) + row * s.a_row_stride;
    b = all_b + batch_offset(s.batch, s.b_batch_strides, index) + column * s.b_column_stride;
    place = (index * s.rows + row) * s.columns + column;
  }
};

/// One slice's sums of a block.
template <class T>
void compute_slice(const Plan& plan, const ItemBlock<T>& block, std::int64_t slice, T* c, std::int64_t c_stride, T* packed) {
  const GemmShape& s = plan.shape;
  const std::int64_t begin = plan.slices.begin(slice), end = std::min(s.depth, begin + plan.slices.size);
  std::int64_t k = begin;
  do {
    const std::int64_t depth = std::min(most_depth, end - k);
    const T* const a = block.a + k * s.a_depth_stride;
    const MatrixView<T> b{block.b + k * s.b_depth_stride, depth, block.columns, s.b_depth_stride, s.b_column_stride};
    if (block.rows == 1 && b.row_stride == 1) {
      multiply_row(b, a, s.a_depth_stride, c, k != begin);
    } else {
      pack(packed, b);
      multiply<T>({.rows = block.rows,
                   .columns = block.columns,
                   .depth = depth,
                   .a = a,
                   .a_row_stride = s.a_row_stride,
                   .a_depth_stride = s.a_depth_stride,
                   .b = packed,
                   .c = c,
                   .c_stride = c_stride,
                   .accumulate = k != begin});
    }
    k += depth;
  } while (k < end);
}

/// A whole block of c, its slices in order.
template <class T>
void compute_block(const Plan& plan, const ItemBlock<T>& block, T* c, std::byte* workspace) {
  const std::int64_t stride = plan.shape.columns;
  T* const packed = reinterpret_cast<T*>(workspace);
  T* const sums = reinterpret_cast<T*>(workspace + plan.pack_bytes);
  compute_slice(plan, block, 0, c, stride, packed);
  for (std::int64_t slice = 1; slice < plan.slices.count; ++slice) {
    compute_slice(plan, block, slice, sums, block.columns, packed);
    for (std::int64_t row = 0; row < block.rows; ++row) {
      for (std::int64_t i = 0; i < block.columns; ++i) c[row * stride + i] += sums[row * block.columns + i];
    }
  }
}

/// c = the sums of all slices, added in their order.
template <class T>
void add_slices(const Plan& plan, const T* partial, T* c) {
  parallel_for(plan.elements(), 16384, [&](std::int64_t begin, std::int64_t end) {
    std::copy(partial + begin, partial + end, c + begin);
    for (std::int64_t slice = 1; slice < plan.slices.count; ++slice) {
      const T* const sums = partial + slice * plan.elements();
      for (std::int64_t i = begin; i < end; ++i) c[i] += sums[i];
    }
  });
}

template <class T>
void add_bias(std::int64_t rows, std::int64_t columns, const T* bias, T* c) {
  parallel_for(rows, std::max<std::int64_t>(1, 16384 / columns), [&](std::int64_t begin, std::int64_t end) {
    for (T* row = c + begin * columns; row != c + end * columns; row += columns) {
      for (std::int64_t i = 0; i < columns; ++i) row[i] += bias[i];
    }
  });
}

}  // namespace

std::size_t gemm_scratch(const GemmShape& shape, std::size_t element_size) {
  const Plan plan(shape, element_size);
  return plan.work.scratch() + plan.partial_bytes;
}

template <class T>
void gemm(const GemmShape& shape, const T* a, const T* b, const T* bias, T* c, std::span<std::byte> scratch) {
  const std::int64_t rows = element_count(shape.batch) * shape.rows;
  if (rows * shape.columns == 0) return;
  const Plan plan(shape, sizeof(T));
  T* const partial = reinterpret_cast<T*>(scratch.data() + plan.work.scratch());
  plan.work.run(scratch, [&](std::int64_t item, std::byte* workspace) {
    const ItemBlock<T> block(plan, item % plan.blocks(), a, b);
    const std::int64_t slice = item / plan.blocks();
    if (plan.spreads) {
      compute_slice(plan, block, slice, partial + slice * plan.elements() + block.place, shape.columns, reinterpret_cast<T*>(workspace));
    } else {
      compute_block(plan, block, c + block.place, workspace);
    }
  });
  if (plan.spreads) add_slices(plan, partial, c);
  if (bias != nullptr) add_bias(rows, shape.columns, bias, c);
}

template void gemm(const GemmShape&, const float*, const float*, const float*, float*, std::span<std::byte>);
template void gemm(const GemmShape&, const double*, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
