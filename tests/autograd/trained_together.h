#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "autograd/small_network.h"
#include "several_processes.h"

/// What tests of training on several processes share.
namespace frit {

inline constexpr std::int64_t batch_size = 12;

inline Tensor drawn(const Shape& shape, DType dtype, std::uint64_t seed) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  fill_normal(tensor, 0, 1, seed, 0);
  return tensor;
}

using Variables = std::map<std::string, Tensor>;

/// Those of all processes together.
inline Variables variables_of(TrainStep& step) {
  step.share_sums();
  step.gather_shards(/*to_all=*/true);
  return step.whole_variables();
}

/// Relative to the largest number of each variable.
inline double largest_difference(const Variables& a, const State& b) {
  double difference = 0;
  for (const auto& [name, tensor] : a) {
    const std::vector<double> left = tensor.to_vector<double>(), right = b.at(name).to_vector<double>();
    if (left.size() != right.size()) return std::numeric_limits<double>::infinity();
    double largest = 1e-300, apart = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      largest = std::max(largest, std::abs(right[i]));
      apart = std::max(apart, std::abs(left[i] - right[i]));
    }
    difference = std::max(difference, apart / largest);
  }
  return difference;
}

inline std::string bits_of(TrainStep& step) {
  std::string text;
  for (const auto& [name, tensor] : variables_of(step)) {
    const Tensor bits = tensor.to(Device::cpu());
    text.append(static_cast<const char*>(bits.raw()), static_cast<std::size_t>(bits.bytes()));
  }
  return text;
}

}  // namespace frit
