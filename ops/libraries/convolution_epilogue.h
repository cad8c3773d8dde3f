#pragma once

#include <algorithm>
#include <compare>
#include <optional>
#include <vector>

#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// What follows a convolution and its bias, element by element, in float32 where halves are stored.
struct ConvolutionEpilogue {
  /// In order; one without an activation adds the residual, an image like the result. At most one does.
  std::vector<std::optional<Activation>> steps = {};

  bool adds_residual() const { return std::count(steps.begin(), steps.end(), std::nullopt) > 0; }

  /// Made of functions that libraries round no more than frit does.
  bool is_exact() const {
    return std::all_of(steps.begin(), steps.end(), [](const auto& step) { return !step || step->kind == Activation::rectifier; });
  }

  friend auto operator<=>(const ConvolutionEpilogue&, const ConvolutionEpilogue&) = default;
};

}  // namespace frit::ops
