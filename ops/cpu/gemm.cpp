#include "frit/ops/cpu/gemm.h"

#include <algorithm>
#include <array>

#include "frit/core/processor.h"
#include "frit/ops/cpu/packed_matrix.h"
#include "frit/ops/cpu/transpose.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

/// The block of c that one item of work computes, and the depth that is summed in one accumulator: what is read of a stays in a core's
/// cache for all columns, and a block of b in the nearest one for all rows.
constexpr std::int64_t most_rows = 192, most_columns = 512, most_depth = 256;
/// A line that is read across the rows holds more of them than a tile has: fewer lines stay until the next tile.
constexpr std::int64_t most_depth_across = 128;
/// With so few rows, two tiles of them, a b whose rows lie side by side is not worth packing.
constexpr std::int64_t few_rows = 2 * product_rows;
/// With fewer items than `enough_items` the blocks are made smaller, but not so small that what is packed for one is read too seldom.
constexpr std::int64_t most_items = 16, least_rows = 96, least_columns = 96;
/// Rows that are read across are read more slowly the shorter their pieces are: no smaller blocks than the process's cores need. Not than
/// the threads that there are need, whose number may change while plans stay what they are.
std::int64_t enough_items(bool across) {
  static const std::int64_t of_cores = std::clamp<std::int64_t>(2 * core_count(), 4, most_items);
  return across ? of_cores : most_items;
}
/// Whether lines that lie so many bytes apart fall on few sets of the nearest cache, an eighth of them or fewer.
constexpr bool share_sets(std::int64_t bytes) { return bytes % 512 == 0; }
/// With fewer blocks of rows b is packed for each, while it is at hand, not before all.
constexpr std::int64_t least_readers = 3;
/// Columns of b that are packed at a time, where it does not come packed: a block, or several of rows that lie side by side.
constexpr std::int64_t most_panel_columns = 128;
/// Rows of a that are copied are copied once for all columns, not by each item, where the copies stay in a cache of all cores.
constexpr std::size_t most_shared_bytes = std::size_t{8} << 20;
/// A deep product is cut along its depth too, by the depth alone, and the slices' sums are added in order: an element has the same bits
/// whatever rows and columns are computed with it. Where there are few blocks of c, slices are items of their own.
constexpr std::int64_t most_slices = 32;

/// How the work is cut; in a process a function of the sizes alone.
struct Plan {
  GemmShape shape;
  std::int64_t batch;
  EvenBlocks rows, columns, slices, chunks;  ///< chunks: of a slice
  bool spreads;                              ///< slices are items of their own
  bool by_columns;                           ///< a is read by columns, with elements side by side, else by rows
  bool copies_a;                             ///< where they do not lie so, or so far apart that they fall on few cache sets
  bool b_in_place;                           ///< is not packed, but for columns that do not fill a vector
  std::int64_t panel_columns, copied_stride;
  ScratchParts own;  ///< scratch memory of each thread
  std::size_t a_place, b_place, sums_place;
  std::size_t partial_bytes;  ///< of all slices' sums
  WorkSplit work;

  Plan(const GemmShape& given, std::size_t element_size, bool b_is_packed) : shape(given), batch(element_count(given.batch)) {
    const std::int64_t block = product_vectors * static_cast<std::int64_t>(simd::vector_bytes / element_size);
    slices = EvenBlocks(shape.depth, std::max(most_depth, (shape.depth + most_slices - 1) / most_slices));
    chunks = EvenBlocks(slices.size, shape.a_depth_stride == 1 ? most_depth : most_depth_across);
    cut_block(block);
    spreads = slices.count > 1 && !is_enough(blocks());
    b_in_place = !b_is_packed && shape.rows <= few_rows && shape.b_column_stride == 1;
    by_columns = shape.a_depth_stride != 1 || b_in_place;
    const std::int64_t row_bytes = shape.a_row_stride * static_cast<std::int64_t>(element_size);
    const std::int64_t column_bytes = shape.a_depth_stride * static_cast<std::int64_t>(element_size);
    copies_a = by_columns ? shape.a_depth_stride == 1 || share_sets(column_bytes) : rows_collide(row_bytes);
    copied_stride = packed_stride(by_columns ? rows.size : chunks.size, element_size);
    panel_columns = shape.b_column_stride == 1 ? most_panel_columns : block;
    a_place = own.add(copies_a ? (by_columns ? chunks.size : rows.size) * copied_stride : 0, element_size);
    b_place = own.add(chunks.size * std::min(panel_columns, (columns.size + block - 1) / block * block), element_size);
    sums_place = own.add(sums_of_slices() ? rows.size * columns.size : 0, element_size);
    partial_bytes = spreads ? aligned(static_cast<std::size_t>(slices.count * elements()) * element_size) : 0;
    const std::int64_t item_depth = spreads ? slices.size : shape.depth;
    work = WorkSplit(blocks() * (spreads ? slices.count : 1), rows.size * columns.size * item_depth, own.bytes());
  }

  std::int64_t blocks() const { return batch * rows.count * columns.count; }
  std::int64_t elements() const { return batch * shape.rows * shape.columns; }
  /// Whether a b that does not come packed has columns side by side and one row to be multiplied with: the two are brought together at
  /// once.
  bool multiplies_row() const { return shape.rows == 1 && shape.a_depth_stride == 1 && shape.b_column_stride != 1; }
  /// The product with copies of a's rows in their place, which all items share.
  GemmShape with_shared_rows(std::size_t element_size) const {
    GemmShape shared = shape;
    shared.a_row_stride = packed_stride(shape.depth, element_size);
    return shared;
  }
  /// Of these copies; 0 if each item copies what it reads, or reads a as it lies.
  std::size_t shared_bytes(std::size_t element_size) const {
    if (!copies_a || by_columns || batch > 1 || columns.count == 1) return 0;
    const std::size_t bytes = static_cast<std::size_t>(shape.rows * packed_stride(shape.depth, element_size)) * element_size;
    return bytes <= most_shared_bytes ? bytes : 0;
  }
  /// Whether a slice's sums, which are themselves sums of several chunks, are added to c only once they are complete.
  bool sums_of_slices() const { return !spreads && slices.count > 1 && chunks.count > 1; }

 private:
  bool is_enough(std::int64_t items) const { return items >= enough_items(shape.a_depth_stride != 1); }

  void cut_block(std::int64_t block) {
    const auto cut = [&](std::int64_t rows_of_block, std::int64_t columns_of_block) {
      rows = EvenBlocks(shape.rows, rows_of_block, product_rows);
      columns = EvenBlocks(shape.columns, columns_of_block, block);
    };
    std::int64_t height = most_rows, width = most_columns;
    cut(height, width);
    // Where slices of larger blocks are items enough, and their sums cost less than what is read for them.
    const bool sums_are_cheap = 2 * shape.rows * shape.columns <= slices.size * (shape.rows + shape.columns);
    if (slices.count > 1 && sums_are_cheap && is_enough(blocks() * slices.count)) return;
    while (!is_enough(blocks()) && columns.size > least_columns && width > least_columns)
      cut(height, width = std::max(width / 2, least_columns));
    if (!is_enough(blocks())) cut(least_rows, width);
  }
};

std::int64_t batch_offset(const Dims& batch, const Strides& strides, std::int64_t index) {
  std::int64_t offset = 0;
  for (int axis = batch.rank() - 1; axis >= 0; --axis) {
    offset += index % batch[axis] * strides[axis];
    index /= batch[axis];
  }
  return offset;
}

template <class T>
struct Operands {
  const T *a, *b, *packed, *bias;
};

/// One block of c as an item of work sees it.
template <class T>
struct ItemBlock {
  std::int64_t rows, column, columns;
  const T* a;          // its first row, at depth 0
  const T* b;          // the matrix
  std::int64_t place;  // in c

  ItemBlock(const Plan& plan, std::int64_t block, const Operands<T>& all) {
    const GemmShape& s = plan.shape;
    const std::int64_t row_block = block % plan.rows.count, column_block = block / plan.rows.count % plan.columns.count;
    const std::int64_t index = block / plan.rows.count / plan.columns.count;
    const std::int64_t row = plan.rows.begin(row_block);
    rows = plan.rows.length_of(row_block);
    column = plan.columns.begin(column_block);
    columns = plan.columns.length_of(column_block);
    a = all.a + batch_offset(s.batch, s.a_batch_strides, index) + row * s.a_row_stride;
    b = all.b + batch_offset(s.batch, s.b_batch_strides, index);
    place = (index * s.rows + row) * s.columns + column;
  }
};

/// Where a block's sums go.
template <class T>
struct Target {
  T* c;
  std::int64_t stride;
};

/// What an item of work does, in its thread's workspace.
template <class T>
class ItemProduct {
 public:
  ItemProduct(const Plan& plan, const ItemBlock<T>& block, const Operands<T>& operands, std::byte* workspace)
      : plan_(plan), shape_(plan.shape), block_(block), operands_(operands), workspace_(workspace) {}

  /// One slice's sums; with the bias where it is the first.
  void compute_slice(std::int64_t slice, Target<T> target, bool accumulate) {
    const std::int64_t begin = plan_.slices.begin(slice), length = plan_.slices.count == 0 ? 0 : plan_.slices.length_of(slice);
    std::int64_t done = 0;
    do {
      const std::int64_t depth = std::min(plan_.chunks.size, length - done);
      read_a(begin + done, depth);
      for (std::int64_t column = 0; column < block_.columns; column += plan_.panel_columns) {
        const std::int64_t columns = std::min(plan_.panel_columns, block_.columns - column);
        const T* const bias = begin + done == 0 && operands_.bias != nullptr ? operands_.bias + block_.column + column : nullptr;
        compute_panel(begin + done, depth, column, columns, {target.c + column, target.stride}, accumulate, bias);
      }
      accumulate = true;
      done += depth;
    } while (done < length);
  }

  /// All slices in order.
  void compute(Target<T> target) {
    compute_slice(0, target, false);
    T* const sums = part(plan_.sums_place);
    for (std::int64_t slice = 1; slice < plan_.slices.count; ++slice) {
      if (!plan_.sums_of_slices()) {
        compute_slice(slice, target, true);
        continue;
      }
      compute_slice(slice, {sums, block_.columns}, false);
      for (std::int64_t row = 0; row < block_.rows; ++row) {
        for (std::int64_t i = 0; i < block_.columns; ++i) target.c[row * target.stride + i] += sums[row * block_.columns + i];
      }
    }
  }

 private:
  T* part(std::size_t place) const { return reinterpret_cast<T*>(workspace_ + place); }

  /// Brings elements [k, k + depth) of the rows to where they are read.
  void read_a(std::int64_t k, std::int64_t depth) {
    a_ = block_.a + k * shape_.a_depth_stride;
    a_stride_ = plan_.by_columns ? shape_.a_depth_stride : shape_.a_row_stride;
    if (plan_.copies_a) {
      T* const copy = part(plan_.a_place);
      const bool lies_across = (plan_.by_columns ? shape_.a_row_stride : shape_.a_depth_stride) != 1;
      const std::int64_t count = plan_.by_columns ? depth : block_.rows, length = plan_.by_columns ? block_.rows : depth;
      if (lies_across && length > 1) {
        transpose(a_, shape_.a_row_stride, block_.rows, depth, copy, plan_.copied_stride);
      } else {
        for (std::int64_t i = 0; i < count; ++i) std::copy_n(a_ + i * a_stride_, length, copy + i * plan_.copied_stride);
      }
      a_ = copy, a_stride_ = plan_.copied_stride;
    }
    if (plan_.by_columns) return;
    for (std::int64_t row = 0; row < block_.rows; ++row) positions_[static_cast<std::size_t>(row)] = a_ + row * a_stride_;
  }

  /// Columns [column, column + columns) of the block: adds the products of rows [k, k + depth) of b.
  void compute_panel(std::int64_t k, std::int64_t depth, std::int64_t column, std::int64_t columns, Target<T> target, bool accumulate,
                     const T* bias) {
    const std::int64_t first = block_.column + column;
    MatrixView<T> b{block_.b, shape_.depth, shape_.columns, shape_.b_depth_stride, shape_.b_column_stride};
    if (operands_.packed == nullptr) b = b.part(k, depth, first, columns);  // else there may be no b
    const bool in_place = plan_.b_in_place && columns % simd::lanes<T> == 0;
    T* const own = part(plan_.b_place);
    if (operands_.packed == nullptr && plan_.multiplies_row()) {
      return multiply_row(b, a_, target.c, accumulate, bias);
    }
    if (operands_.packed == nullptr && !in_place) pack(b, own);
    for (std::int64_t begin = 0; begin < columns; begin += product_columns<T>) {
      const int vectors = block_vectors<T>(columns, begin);
      const std::int64_t width = vectors * simd::lanes<T>;
      Block of_b{vectors, own + begin * depth, width};
      if (operands_.packed != nullptr) {
        of_b.data = packed_block(k, first + begin, width);
        const std::int64_t next = first + begin + width, rest = block_.column + block_.columns - next;
        const std::int64_t next_width = rest > 0 ? block_vectors<T>(rest, 0) * simd::lanes<T> : 0;
        of_b.next = {packed_block(k, next, next_width), static_cast<std::size_t>(depth * next_width)};
      }
      if (in_place) of_b.data = b.data + begin, of_b.stride = b.depth_stride;
      multiply_block(of_b, depth, std::min(width, columns - begin), {target.c + begin, target.stride}, accumulate,
                     bias == nullptr ? nullptr : bias + begin);
    }
  }

  /// A block of rows of b.
  struct Block {
    int vectors;
    const T* data;
    std::int64_t stride;
    std::span<const T> next = {};  ///< the block that is read after it
  };

  const T* packed_block(std::int64_t k, std::int64_t column, std::int64_t width) const {
    return operands_.packed + column * shape_.depth + k * width;
  }

  void multiply_block(const Block& b, std::int64_t depth, std::int64_t columns, Target<T> target, bool accumulate, const T* bias) {
    const std::int64_t last = columns % simd::lanes<T>;
    if (plan_.by_columns) {
      return add_outer_products(OuterProducts<T>{.positions = depth,
                                                 .rows = block_.rows,
                                                 .vectors = b.vectors,
                                                 .a = a_,
                                                 .a_stride = a_stride_,
                                                 .b = b.data,
                                                 .b_stride = b.stride,
                                                 .c = target.c,
                                                 .c_stride = target.stride,
                                                 .last_columns = last,
                                                 .accumulate = accumulate,
                                                 .bias = bias});
    }
    const Run run{0, depth};
    multiply<T>({.runs = {&run, 1},
                 .a = {positions_.data(), static_cast<std::size_t>(block_.rows)},
                 .b = b.data,
                 .vectors = b.vectors,
                 .c = target.c,
                 .c_stride = target.stride,
                 .last_columns = last,
                 .accumulate = accumulate,
                 .bias = bias,
                 .next = b.next});
  }

  const Plan& plan_;
  const GemmShape& shape_;
  const ItemBlock<T>& block_;
  const Operands<T>& operands_;
  std::byte* workspace_;
  const T* a_;
  std::int64_t a_stride_;
  std::array<const T*, most_rows> positions_;
};

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

}  // namespace

std::size_t gemm_scratch(const GemmShape& shape, std::size_t element_size) {
  const auto bytes = [&](const Plan& plan) {
    const std::size_t shared = plan.shared_bytes(element_size);
    return shared > 0 ? shared + gemm_scratch(plan.with_shared_rows(element_size), element_size) : plan.partial_bytes + plan.work.scratch();
  };
  return std::max(bytes({shape, element_size, false}), bytes({shape, element_size, true}));
}

PackedOperand packed_operand(const GemmShape& shape, std::size_t element_size) {
  const Plan plan(shape, element_size, true);
  const bool one = std::all_of(shape.b_batch_strides.begin(), shape.b_batch_strides.end(), [](std::int64_t stride) { return stride == 0; });
  if (!one || plan.elements() == 0) return {};
  const auto lanes = static_cast<std::int64_t>(simd::vector_bytes / element_size);
  return {(shape.columns + lanes - 1) / lanes * lanes * shape.depth, plan.batch * plan.rows.count >= least_readers};
}

template <class T>
void pack_b(const GemmShape& shape, const T* b, T* packed) {
  const MatrixView<T> matrix{b, shape.depth, shape.columns, shape.b_depth_stride, shape.b_column_stride};
  const EvenBlocks blocks(shape.columns, most_panel_columns, product_columns<T>);
  parallel_for(blocks.count, 16384 / (shape.depth * blocks.size + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = blocks.begin(begin), last = std::min(blocks.begin(end), shape.columns);
    pack(matrix.part(0, shape.depth, first, last - first), packed + first * shape.depth);
  });
}

template <class T>
void gemm(const GemmShape& shape, const T* a, const T* b, const T* packed, const T* bias, T* c, std::span<std::byte> scratch) {
  const Plan plan(shape, sizeof(T), packed != nullptr);
  if (plan.elements() == 0) return;
  if (const std::size_t bytes = plan.shared_bytes(sizeof(T)); bytes > 0) {
    const GemmShape shared = plan.with_shared_rows(sizeof(T));
    T* const rows = reinterpret_cast<T*>(scratch.data());
    parallel_for(shape.rows, 16384 / (shape.depth + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        std::copy_n(a + row * shape.a_row_stride, shape.depth, rows + row * shared.a_row_stride);
      }
    });
    return gemm(shared, rows, b, packed, bias, c, scratch.subspan(bytes));
  }
  T* const partial = reinterpret_cast<T*>(scratch.data());
  const Operands<T> operands{a, b, packed, bias};
  plan.work.run(scratch.subspan(plan.partial_bytes), [&](std::int64_t index, std::byte* workspace) {
    const ItemBlock<T> block(plan, index % plan.blocks(), operands);
    const std::int64_t slice = index / plan.blocks();
    ItemProduct<T> item(plan, block, operands, workspace);
    if (plan.spreads) {
      item.compute_slice(slice, {partial + slice * plan.elements() + block.place, shape.columns}, false);
    } else {
      item.compute({c + block.place, shape.columns});
    }
  });
  if (plan.spreads) add_slices(plan, partial, c);
}

template void pack_b(const GemmShape&, const float*, float*);
template void pack_b(const GemmShape&, const double*, double*);
template void gemm(const GemmShape&, const float*, const float*, const float*, const float*, float*, std::span<std::byte>);
template void gemm(const GemmShape&, const double*, const double*, const double*, const double*, double*, std::span<std::byte>);

}  // namespace frit::ops
