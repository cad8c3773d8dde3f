#include "frit/ops/cpu/gemm.h"

#include <utility>

#include "frit/ops/cpu/block_product.h"
#include "frit/ops/cpu/simd.h"
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
  std::int64_t batch;
  EvenBlocks rows, columns, slices;
  std::size_t pack_bytes, partial_bytes = 0;
  WorkSplit work;

  Plan(const GemmShape& given, std::size_t element_size) : shape(given), batch(element_count(given.batch)) {
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

/// Sums in many small parts, as wide vectors do anyway.
template <class T>
T dot(const T* a, const T* b, std::int64_t count) {
  constexpr int vectors = 8, width = simd::lanes<T>;
  simd::Vector<T> sums[vectors] = {};
  std::int64_t i = 0;
  for (; i + vectors * width <= count; i += vectors * width) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sums[v] = simd::multiply_add(simd::load(a + i + v * width), simd::load(b + i + v * width), sums[v]);
  }
  for (int half = vectors / 2; half > 0; half /= 2) {
    for (int v = 0; v < half; ++v) sums[v] += sums[v + half];
  }
  double sum = 0;
  for (int lane = 0; lane < width; ++lane) sum += static_cast<double>(sums[0][lane]);
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return static_cast<T>(sum);
}

/// A row vector times columns that lie contiguous, as the features of a linear layer do.
bool is_dot_products(const GemmShape& s) { return s.rows == 1 && s.a_depth_stride == 1 && s.b_depth_stride == 1; }

template <class T>
void dot_products(const GemmShape& s, const T* a, const T* b, T* c) {
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, s.depth));
  parallel_for(element_count(s.batch) * s.columns, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* row = a + batch_offset(s.batch, s.a_batch_strides, i / s.columns);
      const T* column = b + batch_offset(s.batch, s.b_batch_strides, i / s.columns) + i % s.columns * s.b_column_stride;
      c[i] = dot(row, column, s.depth);
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
  if (is_dot_products(shape)) return 0;
  const Plan plan(shape, element_size);
  return plan.work.scratch() + plan.partial_bytes;
}

template <class T>
void gemm(const GemmShape& shape, const T* a, const T* b, const T* bias, T* c, std::span<std::byte> scratch) {
  const std::int64_t rows = element_count(shape.batch) * shape.rows;
  if (rows * shape.columns == 0) return;
  if (is_dot_products(shape)) {
    dot_products(shape, a, b, c);
  } else {
    const Plan plan(shape, sizeof(T));
    T* partial = plan.partial_bytes == 0 ? nullptr : reinterpret_cast<T*>(scratch.data() + plan.work.scratch());
    plan.work.run(scratch, [&](std::int64_t item, std::byte* workspace) {
      compute_item(plan, item, a, b, partial == nullptr ? c : partial, reinterpret_cast<T*>(workspace));
    });
    if (partial != nullptr) add_slices(plan, partial, c);
  }
  if (bias != nullptr) add_bias(rows, shape.columns, bias, c);
}

template void gemm(const GemmShape&, const float*, const float*, const float*, float*, std::span<std::byte>);
template void gemm(const GemmShape&, const double*, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
