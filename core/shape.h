#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

namespace frit {

/// Up to eight 64-bit numbers, one a dimension: a shape, strides, a kernel size, a list of axes.
class Dims {
 public:
  static constexpr int max_rank = 8;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values);
  /// One number, which stands for {number}: `.kernel_size = 3`, `sum(x, 1)`.
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) Dims(Integer value) : rank_(1) {  // NOLINT: meant to convert
    values_[0] = static_cast<std::int64_t>(value);
  }
  explicit Dims(std::span<const std::int64_t> values);  ///< throws ErrorKind::argument above rank 8
  static Dims filled(int rank, std::int64_t value);

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t& operator[](int axis) { return values_[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](int axis) const { return values_[static_cast<std::size_t>(axis)]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + rank_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + rank_; }
  std::int64_t back() const { return values_[static_cast<std::size_t>(rank_ - 1)]; }
  /// All of them, to be named: `auto [n, c, h, w] = x.shape().as<4>();`. Throws ErrorKind::argument for another rank.
  template <std::size_t rank>
  std::array<std::int64_t, rank> as() const {
    static_assert(rank <= max_rank, "Dims has at most 8 numbers");
    require_rank(static_cast<int>(rank));
    std::array<std::int64_t, rank> numbers;
    std::copy_n(begin(), rank, numbers.begin());
    return numbers;
  }

  void push_back(std::int64_t value);  ///< throws ErrorKind::argument at rank 8
  void insert(int axis, std::int64_t value);
  void erase(int axis);

  friend bool operator==(const Dims& a, const Dims& b) { return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin()); }

 private:
  void require_rank(int expected) const;

  std::array<std::int64_t, max_rank> values_{};
  int rank_ = 0;
};

using Shape = Dims;
using Strides = Dims;

/// "128x4x32x32"; "scalar" for rank 0.
std::ostream& operator<<(std::ostream& out, const Dims& dims);

/// The product. Throws ErrorKind::argument for a negative size or a product beyond 2^63 - 1.
std::int64_t element_count(const Shape& shape);

/// element_count times the element size, checked likewise.
std::int64_t byte_count(const Shape& shape, std::size_t element_size);

/// `axis` in [-rank, rank) as [0, rank). Throws ErrorKind::argument naming `what`.
int normalize_axis(std::int64_t axis, int rank, const char* what);

/// How a tensor's elements lie: the last axis innermost, or the channel axis (1) innermost.
enum class Layout : std::uint8_t { contiguous, channels_last };

/// Strides, in elements, of a dense tensor. channels_last needs rank 3 or more.
Strides dense_strides(const Shape& shape, Layout layout = Layout::contiguous);

/// NumPy's broadcasting of two shapes. Throws ErrorKind::argument naming the axis and both sizes.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace frit
