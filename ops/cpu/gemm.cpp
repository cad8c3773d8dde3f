#include "frit/ops/cpu/gemm.h"

#include <utility>

#include "frit/ops/cpu/block_product.h"
#include "frit/ops/cpu/work_split.h"

namespace frit::ops {
namespace {

/// The block of c that one item of work computes, and the depth of b that it packs at a time.
constexpr std::int64_t most_rows = 128, most_columns = 256, most_depth = 128;
/// A deep product with few blocks of c is cut along its depth too; the partial sums are added afterwards.
constexpr std::int64_t enough_items = 32, least_slice = 256;

/// How the work is cut; a function of the sizes alone.
struct Plan {
  GemmShape shape;
  bool transposed = false;
  std::int64_t batch;
  EvenBlocks rows, columns, slices;
  std::size_t pack_bytes, partial_bytes = 0;
  WorkSplit work;

  Plan(const GemmShape& given, std::size_t element_size) : shape(given), batch(element_count(given.batch)) {
    if (shape.rows == 1 && shape.b_depth_stride == 1) transpose();
    rows = EvenBlocks(shape.rows, most_rows);
    columns = EvenBlocks(shape.columns, most_columns, 64 / static_cast<std::int64_t>(element_size));
    const std::int64_t blocks = batch * rows.count * columns.count;
    const std::int64_t most_slices = std::clamp<std::int64_t>(enough_items / std::max<std::int64_t>(1, blocks), 1, enough_items);
    const std::int64_t slice = std::max(least_slice, (shape.depth + most_slices - 1) / most_slices);
    slices = EvenBlocks(shape.depth, slice);
    pack_bytes = static_cast<std::size_t>(std::min(most_depth, slices.size) * packed_stride(columns.size, element_size)) * element_size;
    if (slices.count > 1) partial_bytes = static_cast<std::size_t>(slices.count * elements()) * element_size;
    work = WorkSplit(blocks * std::max<std::int64_t>(1, slices.count), rows.size * columns.size * slices.size, pack_bytes);
  }

  /// A row vector times a matrix with contiguous columns, computed as the transposed matrix times a column, reads the matrix where it lies.
  void transpose() {
    transposed = true;
    std::swap(shape.rows, shape.columns);
    std::swap(shape.a_row_stride, shape.b_column_stride);
    std::swap(shape.a_depth_stride, shape.b_depth_stride);
    std::swap(shape.a_batch_strides, shape.b_batch_strides);
  }

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

/// One block of c, or of one slice's partial sums.
template <class T>
void compute_item(const Plan& plan, std::int64_t item, const T* a, const T* b, T* c, T* packed) {
  const GemmShape& s = plan.shape;
  const std::int64_t row_block = item % plan.rows.count;
  const std::int64_t column_block = item / plan.rows.count % plan.columns.count;
  const std::int64_t index = item / plan.rows.count / plan.columns.count % plan.batch;
  const std::int64_t slice = item / plan.rows.count / plan.columns.count / plan.batch;
  const std::int64_t row = plan.rows.begin(row_block), column = plan.columns.begin(column_block);
  const std::int64_t columns = plan.columns.length_of(column_block);
  a += batch_offset(s.batch, s.a_batch_strides, index) + row * s.a_row_stride;
  b += batch_offset(s.batch, s.b_batch_strides, index) + column * s.b_column_stride;
  c += slice * plan.elements() + (index * s.rows + row) * s.columns + column;

  const std::int64_t begin = plan.slices.begin(slice), end = std::min(s.depth, begin + plan.slices.size);
  std::int64_t k = begin;
  do {
    const std::int64_t depth = std::min(most_depth, end - k);
    pack(packed, {b + k * s.b_depth_stride, depth, columns, s.b_depth_stride, s.b_column_stride});
    multiply<T>({.rows = plan.rows.length_of(row_block),
                 .columns = columns,
                 .depth = depth,
                 .a = a + k * s.a_depth_stride,
                 .a_row_stride = s.a_row_stride,
                 .a_depth_stride = s.a_depth_stride,
                 .b = packed,
                 .c = c,
                 .c_stride = s.columns,
                 .accumulate = k != begin});
    k += depth;
  } while (k < end);
}

/// c = the partial sums of all slices, added in their order; with one slice they are in c already.
template <class T>
void add_slices(const Plan& plan, const T* partial, T* c) {
  parallel_for(plan.elements(), 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (std::int64_t slice = 0; slice < plan.slices.count; ++slice) sum += static_cast<double>(partial[slice * plan.elements() + i]);
      c[i] = static_cast<T>(sum);
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
  const Plan plan(shape, sizeof(T));
  if (plan.elements() == 0) return;
  T* partial = plan.partial_bytes == 0 ? nullptr : reinterpret_cast<T*>(scratch.data() + plan.work.scratch());
  if (plan.transposed) std::swap(a, b);
  plan.work.run(scratch, [&](std::int64_t item, std::byte* workspace) {
    compute_item(plan, item, a, b, partial == nullptr ? c : partial, reinterpret_cast<T*>(workspace));
  });
  if (partial != nullptr) add_slices(plan, partial, c);
  if (bias != nullptr) add_bias(plan.batch * shape.rows, shape.columns, bias, c);
}

template void gemm(const GemmShape&, const float*, const float*, const float*, float*, std::span<std::byte>);
template void gemm(const GemmShape&, const double*, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
