#pragma once

#include "frit/core/half.h"
#include "frit/ops/convolution/cpu/tap_runs.h"

namespace frit::ops {

/// Where an element of a row of a weight is, counted from the row's first, and where in a packed block.
struct WeightElement {
  std::int64_t source, packed;
};

/// A weight as products with runs read it: for each group, blocks of product_columns columns, the output's channels, of which the last may
/// have fewer vectors; in each the elements of the runs (depth, columns). Columns that fill up a vector are zeros.
class PackedWeight {
 public:
  PackedWeight(const Direction& d, const ImageStrides& weight, std::size_t element_size);

  /// Of a group.
  std::int64_t columns() const { return columns_; }
  std::int64_t whole_vectors(std::int64_t columns) const { return (columns + lanes_ - 1) / lanes_ * lanes_; }
  std::int64_t elements(const TapRuns& taps) const { return groups_ * columns_ * taps.packed_depth; }
  /// Where a block's element k, filled up, is, among those of a phase; `column` is its first.
  std::int64_t place(const TapRuns& taps, std::int64_t group, std::int64_t column, std::int64_t k) const {
    return (group * columns_ + column) * taps.packed_depth + k * vectors(column) * lanes_;
  }
  int vectors(std::int64_t column) const { return static_cast<int>(std::min<std::int64_t>(product_vectors, (columns_ - column) / lanes_)); }

  template <class T>
  void pack(const TapRuns& taps, const T* weight, T* packed) const;
  /// In whole steps of bfloat16 (see bfloat_product.h).
  void pack(const TapRuns& taps, const BFloat16* weight, BFloat16* packed) const;
  /// The elements of so many channels for all taps, in their order in the weight, and those of a block for the channels from `channel` on:
  /// (taps, channels, columns).
  std::vector<WeightElement> elements_of(const TapRuns& taps, std::int64_t channels) const;
  template <class T>
  void pack_block(std::span<const WeightElement> elements, std::int64_t group, std::int64_t column, std::int64_t channel, const T* weight,
                  T* packed) const;
  /// Where a block begins in a weight whose rows lie one after the other; null where they do not, or after the last block.
  template <class T>
  const T* unpacked_block(std::int64_t group, std::int64_t column, const T* weight) const {
    return row_stride_ >= channel_stride_ && column < rows_ ? weight + group * group_stride_ + column * row_stride_ : nullptr;
  }
  template <class T>
  void pack_bias(const T* bias, T* packed) const;
  /// Such a block, or the sums, in their order, of `slices` of them, `stride` elements apart, to their places in the weight.
  template <class T>
  void unpack_block(std::span<const WeightElement> elements, std::int64_t group, std::int64_t column, std::int64_t channel, const T* packed,
                    std::int64_t slices, std::int64_t stride, T* weight) const;
  /// All blocks of a packed weight.
  template <class T>
  void unpack(const TapRuns& taps, const T* packed, T* weight) const;

 private:
  template <class Body>
  void for_each_block(const TapRuns& taps, const Body& body) const;

  std::int64_t groups_, rows_, channels_, lanes_, columns_;
  std::int64_t group_stride_, row_stride_, channel_stride_;  // in the weight
};

}  // namespace frit::ops
