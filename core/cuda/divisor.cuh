#pragma once

#include <bit>
#include <cstdint>

namespace frit::cuda {

/// A number that many others are divided by. Those below 2^31 take one multiplication (T. Granlund and P. Montgomery, "Division by
/// invariant integers using multiplication", 1994).
class Divisor {
 public:
  Divisor() = default;
  /// From 1 on.
  explicit Divisor(std::int64_t value) : value_(static_cast<std::uint64_t>(value)) {
    if (value > INT32_MAX) return;
    shift_ = static_cast<std::uint32_t>(std::bit_width(value_ - 1));
    multiplier_ = static_cast<std::uint32_t>((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - value_) / value_ + 1);
  }

  template <class Integer>
  __host__ __device__ Integer value() const {
    return static_cast<Integer>(value_);
  }

  /// n < 2^31, and so is the divisor.
  __device__ std::uint32_t quotient(std::uint32_t n) const { return (__umulhi(n, multiplier_) + n) >> shift_; }
  __device__ std::uint64_t quotient(std::uint64_t n) const { return n / value_; }

  /// Of the quotient's argument.
  template <class Integer>
  __device__ Integer remainder(Integer n, Integer quotient) const {
    return n - quotient * static_cast<Integer>(value_);
  }

 private:
  std::uint64_t value_ = 1;
  std::uint32_t multiplier_ = 1, shift_ = 0;
};

}  // namespace frit::cuda
