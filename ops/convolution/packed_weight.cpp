#include "frit/ops/convolution/packed_weight.h"

#include <algorithm>

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/transpose.h"

namespace frit::ops {
namespace {

/// Where an element of a row of the weight is, counted from the row's first, and where in a packed block.
struct Element {
  std::int64_t source, packed;
};

/// Calls square(first, elements) for `lanes` elements that lie side by side in a row, and single(element) for others.
template <class Square, class Single>
void for_each_element(const std::vector<Element>& elements, std::size_t lanes, const Square& square, const Single& single) {
  for (std::size_t i = 0; i < elements.size();) {
    const bool dense =
        i + lanes <= elements.size() && elements[i + lanes - 1].source - elements[i].source == static_cast<std::int64_t>(lanes) - 1;
    if (dense) {
      square(std::span(elements).subspan(i, lanes));
      i += lanes;
    } else {
      single(elements[i++]);
    }
  }
}

/// The elements of a row in their order in the weight.
std::vector<Element> elements_of(const TapRuns& taps, std::int64_t channels, std::int64_t channel_stride) {
  std::vector<Element> of_taps, elements;
  for (const Tap& tap : taps.taps) of_taps.push_back({tap.weight, static_cast<std::int64_t>(of_taps.size()) * channels});
  std::sort(of_taps.begin(), of_taps.end(), [](const Element& a, const Element& b) { return a.source < b.source; });
  elements.reserve(static_cast<std::size_t>(taps.depth));
  const auto add = [&](const Element& tap, std::int64_t c) { elements.push_back({tap.source + c * channel_stride, tap.packed + c}); };
  if (channel_stride == 1) {
    for (const Element& tap : of_taps) {
      for (std::int64_t c = 0; c < channels; ++c) add(tap, c);
    }
  } else {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (const Element& tap : of_taps) add(tap, c);
    }
  }
  return elements;
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

/// body(first row in the weight, packed block, columns, rows): in parallel.
template <class Body>
void PackedWeight::for_each_block(const TapRuns& taps, const Body& body) const {
  const std::int64_t block_columns = product_vectors * lanes_, blocks = (columns_ + block_columns - 1) / block_columns;
  parallel_for(groups_ * blocks, 16384 / (taps.depth * block_columns + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t group = i / blocks, column = i % blocks * block_columns, width = vectors(column) * lanes_;
      body(group * group_stride_ + column * row_stride_, place(taps, group, column, 0), width, std::min(width, rows_ - column));
    }
  });
}

template <class T>
void PackedWeight::pack(const TapRuns& taps, const T* weight, T* packed) const {
  constexpr int lanes = simd::lanes<T>;
  const std::vector<Element> elements = elements_of(taps, channels_, channel_stride_);
  for_each_block(taps, [&](std::int64_t first, std::int64_t place, std::int64_t width, std::int64_t rows) {
    T* const to = packed + place;
    std::int64_t row = 0;
    for (; row + lanes <= rows; row += lanes) {
      const T* const from = weight + first + row * row_stride_;
      const auto square = [&](std::span<const Element> some) {
        simd::Vector<T> vectors[lanes];
        for (int i = 0; i < lanes; ++i) vectors[i] = simd::load(from + i * row_stride_ + some[0].source);
        simd::transpose(vectors);
        for (int i = 0; i < lanes; ++i) simd::store(to + some[static_cast<std::size_t>(i)].packed * width + row, vectors[i]);
      };
      for_each_element(elements, lanes, square, [&](const Element& e) {
        for (int i = 0; i < lanes; ++i) to[e.packed * width + row + i] = from[i * row_stride_ + e.source];
      });
    }
    for (; row < width; ++row) {
      const T* const from = weight + first + row * row_stride_;
      for (const Element& e : elements) to[e.packed * width + row] = row < rows ? from[e.source] : T(0);
    }
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
void PackedWeight::unpack_sums(const TapRuns& taps, const T* packed, std::int64_t slices, std::int64_t stride, T* weight) const {
  constexpr int lanes = simd::lanes<T>;
  const std::vector<Element> elements = elements_of(taps, channels_, channel_stride_);
  for_each_block(taps, [&](std::int64_t first, std::int64_t place, std::int64_t width, std::int64_t rows) {
    const T* const from = packed + place;
    const auto sum = [&](std::int64_t element) {
      double total = 0;
      for (std::int64_t slice = 0; slice < slices; ++slice) total += static_cast<double>(from[slice * stride + element]);
      return static_cast<T>(total);
    };
    std::int64_t row = 0;
    for (; row + lanes <= rows; row += lanes) {
      T* const to = weight + first + row * row_stride_;
      const auto square = [&](std::span<const Element> some) {
        simd::Vector<T> vectors[lanes];
        for (int i = 0; i < lanes; ++i) {
          const std::int64_t element = some[static_cast<std::size_t>(i)].packed * width + row;
          if (slices == 1) {
            vectors[i] = simd::load(from + element);
          } else {
            for (int k = 0; k < lanes; ++k) vectors[i][k] = sum(element + k);
          }
        }
        simd::transpose(vectors);
        for (int i = 0; i < lanes; ++i) simd::store(to + i * row_stride_ + some[0].source, vectors[i]);
      };
      for_each_element(elements, lanes, square, [&](const Element& e) {
        for (int i = 0; i < lanes; ++i) to[i * row_stride_ + e.source] = sum(e.packed * width + row + i);
      });
    }
    for (; row < rows; ++row) {
      for (const Element& e : elements) weight[first + row * row_stride_ + e.source] = sum(e.packed * width + row);
    }
  });
}

template void PackedWeight::pack(const TapRuns&, const float*, float*) const;
template void PackedWeight::pack(const TapRuns&, const double*, double*) const;
template void PackedWeight::pack_bias(const float*, float*) const;
template void PackedWeight::pack_bias(const double*, double*) const;
template void PackedWeight::unpack_sums(const TapRuns&, const float*, std::int64_t, std::int64_t, float*) const;
template void PackedWeight::unpack_sums(const TapRuns&, const double*, std::int64_t, std::int64_t, double*) const;

}  // namespace frit::ops
