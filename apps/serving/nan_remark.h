#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "apps/common/model_source.h"
#include "frit/core/tensor.h"

namespace frit::apps {

/// Warns of the first of some tensors that has NaN values.
class NanRemark {
 public:
  explicit NanRemark(std::string what) : what_(std::move(what)) {}

  void note(const Tensor& tensor) {
    if (noted_ || !is_floating(tensor.dtype())) return;
    const std::vector<double> values = tensor.to_vector<double>();
    const auto count = std::count_if(values.begin(), values.end(), [](double value) { return std::isnan(value); });
    noted_ = count > 0;
    if (noted_) print_warning(concat("the ", what_, " has ", count, " NaN values"));
  }

 private:
  std::string what_;
  bool noted_ = false;
};

}  // namespace frit::apps
