#pragma once

#include <compare>
#include <limits>

namespace frit::ops {

/// An activation as libraries of GPU kernels know it.
struct Activation {
  enum Kind { rectifier, elu, gelu, gelu_tanh, sigmoid, silu, tanh, mish, hard_sigmoid, hard_swish };
  Kind kind = rectifier;
  /// Of a rectifier: x < low ? low + slope (x - low) : min(x, high).
  double low = 0, high = std::numeric_limits<double>::infinity(), slope = 0;
  double alpha = 1;  ///< of elu

  friend auto operator<=>(const Activation&, const Activation&) = default;
};

/// A function of two numbers as those libraries know it.
enum class BinaryFunction { add, subtract, multiply, divide, minimum, maximum };

}  // namespace frit::ops
