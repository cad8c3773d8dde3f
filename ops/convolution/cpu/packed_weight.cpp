#include "frit/ops/convolution/cpu/packed_weight.h"

#include <algorithm>

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/bfloat_product.h"
#include "frit/ops/cpu/prefetch.h"
#include "frit/ops/cpu/transpose.h"

namespace frit::ops {
namespace {

using simd::Vector;

/// Calls square(elements) for `lanes` elements that lie side by side in a row, and single(element) for others.
template <class Square, class Single>
void for_each_element(std::span<const WeightElement> elements, std::size_t lanes, const Square& square, const Single& single) {
  for (std::size_t i = 0; i < elements.size();) {
    const bool dense =
        i + lanes <= elements.size() && elements[i + lanes - 1].source - elements[i].source == static_cast<std::int64_t>(lanes) - 1;
    if (dense) {
      square(elements.subspan(i, lanes));
      i += lanes;
    } else {
      single(elements[i++]);
    }
  }
}

}  // namespace

PackedWeight::PackedWeight(const Direction& d, const ImageStrides& weight, std::size_t element_size)
    : groups_(d.geometry.groups),
      rows_(d.rows),
      channels_(d.channels),
      lanes_(simd::vector_bytes / static_cast<std::int64_t>(element_size)),
      columns_((d.rows + lanes_ - 1) / lanes_ * lanes_),
      group_stride_((d.back ? d.channels : d.rows) * weight.sample),
      row_stride_(d.back ? weight.channel : weight.sample),
      channel_stride_(d.back ? weight.sample : weight.channel) {}

std::vector<WeightElement> PackedWeight::elements_of(const TapRuns& taps, std::int64_t channels) const {
  std::vector<WeightElement> of_taps, elements;
  for (const Tap& tap : taps.taps) of_taps.push_back({tap.weight, static_cast<std::int64_t>(of_taps.size()) * channels});
  std::sort(of_taps.begin(), of_taps.end(), [](const WeightElement& a, const WeightElement& b) { return a.source < b.source; });
  elements.reserve(of_taps.size() * static_cast<std::size_t>(channels));
  const auto add = [&](const WeightElement& tap, std::int64_t c) {
    elements.push_back({tap.source + c * channel_stride_, tap.packed + c});
  };
  if (channel_stride_ == 1) {
    for (const WeightElement& tap : of_taps) {
      for (std::int64_t c = 0; c < channels; ++c) add(tap, c);
    }
  } else {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (const WeightElement& tap : of_taps) add(tap, c);
    }
  }
  return elements;
}

template <class T>
void PackedWeight::pack_block(std::span<const WeightElement> elements, std::int64_t group, std::int64_t column, std::int64_t channel,
                              const T* weight, T* packed) const {
  constexpr int lanes = simd::lanes<T>;
  const T* const first = weight + group * group_stride_ + column * row_stride_ + channel * channel_stride_;
  const std::int64_t width = vectors(column) * lanes_, rows = std::min(width, rows_ - column), whole = rows / lanes * lanes;
  const auto pack_single = [&](const WeightElement& e, std::int64_t row) {
    T* const to = packed + e.packed * width;
    if (row_stride_ == 1) {
      for (; row + lanes <= rows; row += lanes) simd::store(to + row, simd::load(first + row + e.source));
    }
    for (; row < rows; ++row) to[row] = first[row * row_stride_ + e.source];
    for (; row < width; ++row) to[row] = T(0);
  };
  constexpr std::int64_t elements_ahead = 256 / sizeof(T);  // 16 rows at a time are more than a processor foresees
  // All vectors of an element together: they share a line.
  const auto square = [&](std::span<const WeightElement> some) {
    for (std::int64_t row = 0; row < whole; row += lanes) {
      simd::Vector<T> vectors[lanes];
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) {
        const T* const from = first + (row + i) * row_stride_ + some[0].source;
        prefetch(from + elements_ahead, 1);
        vectors[i] = simd::load(from);
      }
      simd::transpose(vectors);
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i) simd::store(packed + some[static_cast<std::size_t>(i)].packed * width + row, vectors[i]);
    }
    if (whole == width) return;
    for (const WeightElement& e : some) pack_single(e, whole);
  };
  // Rows that lie far apart: the processor does not guess what is read next.
  constexpr std::size_t rows_ahead = 32;
  for_each_element(elements, lanes, square, [&](const WeightElement& e) {
    const auto i = static_cast<std::size_t>(&e - elements.data());
    if (i + rows_ahead < elements.size()) prefetch(first + elements[i + rows_ahead].source, 1);
    pack_single(e, 0);
  });
}

/// body(group, first column): in parallel.
template <class Body>
void PackedWeight::for_each_block(const TapRuns& taps, const Body& body) const {
  const std::int64_t block_columns = product_vectors * lanes_, blocks = (columns_ + block_columns - 1) / block_columns;
  parallel_for(groups_ * blocks, 16384 / (taps.depth * block_columns + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i / blocks, i % blocks * block_columns);
  });
}

template <class T>
void PackedWeight::pack(const TapRuns& taps, const T* weight, T* packed) const {
  const std::vector<WeightElement> elements = elements_of(taps, channels_);
  for_each_block(taps, [&](std::int64_t group, std::int64_t column) {
    pack_block<T>(elements, group, column, 0, weight, packed + place(taps, group, column, 0));
  });
}

void PackedWeight::pack(const TapRuns& taps, const BFloat16* weight, BFloat16* packed) const {
  const std::vector<WeightElement> elements = elements_of(taps, channels_);
  for_each_block(taps, [&](std::int64_t group, std::int64_t column) {
    const std::int64_t width = vectors(column) * lanes_, rows = std::min(width, rows_ - column);
    const BFloat16* const first = weight + group * group_stride_ + column * row_stride_;
    std::vector<float> block(static_cast<std::size_t>(taps.depth * width));
    for (const WeightElement& e : elements) {
      for (std::int64_t row = 0; row < rows; ++row) {
        block[static_cast<std::size_t>(e.packed * width + row)] = static_cast<float>(first[row * row_stride_ + e.source]);
      }
    }
    pack_bfloat_steps(taps.runs, block.data(), vectors(column), packed + place(taps, group, column, 0));
  });
}

template <class T>
void PackedWeight::pack_bias(const T* bias, T* packed) const {
  for (std::int64_t group = 0; group < groups_; ++group, packed += columns_) {
    std::copy_n(bias + group * rows_, rows_, packed);
    std::fill_n(packed + rows_, columns_ - rows_, T(0));
  }
}

template <class T>
void PackedWeight::unpack_block(std::span<const WeightElement> elements, std::int64_t group, std::int64_t column, std::int64_t channel,
                                const T* packed, std::int64_t slices, std::int64_t stride, T* weight) const {
  constexpr int lanes = simd::lanes<T>;
  T* const first = weight + group * group_stride_ + column * row_stride_ + channel * channel_stride_;
  const std::int64_t width = vectors(column) * lanes_, rows = std::min(width, rows_ - column), whole = rows / lanes * lanes;
  const auto sums = [&](const WeightElement& e, std::int64_t row) {
    const T* const from = packed + e.packed * width + row;
    Vector<T> result = simd::load(from);
    if (slices == 1) return result;
    double totals[lanes] = {};
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      for (int i = 0; i < lanes; ++i) totals[i] += static_cast<double>(from[slice * stride + i]);
    }
    for (int i = 0; i < lanes; ++i) result[i] = static_cast<T>(totals[i]);
    return result;
  };
  const auto unpack_single = [&](const WeightElement& e, std::int64_t row) {
    for (; row < rows; row += lanes) {
      const Vector<T> values = sums(e, row);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(lanes, rows - row); ++i) first[(row + i) * row_stride_ + e.source] = values[i];
    }
  };
  const auto square = [&](std::span<const WeightElement> some) {
    for (std::int64_t row = 0; row < whole; row += lanes) {
      Vector<T> vectors[lanes];
      for (int i = 0; i < lanes; ++i) vectors[i] = sums(some[static_cast<std::size_t>(i)], row);
      simd::transpose(vectors);
      for (int i = 0; i < lanes; ++i) simd::store(first + (row + i) * row_stride_ + some[0].source, vectors[i]);
    }
    for (const WeightElement& e : some) unpack_single(e, whole);
  };
  for_each_element(elements, lanes, square, [&](const WeightElement& e) { unpack_single(e, 0); });
}

template <class T>
void PackedWeight::unpack(const TapRuns& taps, const T* packed, T* weight) const {
  const std::vector<WeightElement> elements = elements_of(taps, channels_);
  for_each_block(taps, [&](std::int64_t group, std::int64_t column) {
    unpack_block<T>(elements, group, column, 0, packed + place(taps, group, column, 0), 1, 0, weight);
  });
}

template void PackedWeight::pack(const TapRuns&, const float*, float*) const;
template void PackedWeight::pack(const TapRuns&, const double*, double*) const;
template void PackedWeight::pack_block(std::span<const WeightElement>, std::int64_t, std::int64_t, std::int64_t, const float*,
                                       float*) const;
template void PackedWeight::pack_block(std::span<const WeightElement>, std::int64_t, std::int64_t, std::int64_t, const double*,
                                       double*) const;
template void PackedWeight::pack_bias(const float*, float*) const;
template void PackedWeight::pack_bias(const double*, double*) const;
template void PackedWeight::unpack_block(std::span<const WeightElement>, std::int64_t, std::int64_t, std::int64_t, const float*,
                                         std::int64_t, std::int64_t, float*) const;
template void PackedWeight::unpack_block(std::span<const WeightElement>, std::int64_t, std::int64_t, std::int64_t, const double*,
                                         std::int64_t, std::int64_t, double*) const;
template void PackedWeight::unpack(const TapRuns&, const float*, float*) const;

}  // namespace frit::ops
