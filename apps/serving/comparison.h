#pragma once

#include <optional>
#include <string>

#include "frit/core/tensor.h"

namespace frit::apps {

/// How far two numbers may lie apart: |found - expected| <= absolute + relative * |expected|. NaN equals NaN.
struct Tolerance {
  double relative = 1e-4;
  std::optional<double> absolute = {};  ///< if not given, `of_largest` of the largest expected element, but at least 1e-5
  double of_largest = 0;
};

struct Comparison {
  std::int64_t elements = 0, differing = 0;
  double largest_error = 0;     ///< |found - expected|
  std::string difference = {};  ///< what differs, with the worst element; empty if nothing does
};

Comparison compare(const Tensor& found, const Tensor& expected, const Tolerance& tolerance);

}  // namespace frit::apps
