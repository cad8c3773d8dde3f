#pragma once

// What the generic operator suites share: comparing tensors, running an operator with what it updates, and views of the same values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "frit/core/random.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/run.h"

namespace frit {

using ops::Operator;
using ops::Sample;
using ops::types_of;

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor left = a.contiguous(), right = b.contiguous();
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (left.bytes() == 0 || std::memcmp(left.raw(), right.raw(), static_cast<std::size_t>(left.bytes())) == 0);
}

/// Bit-equal but for the payload of NaNs.
inline testing::AssertionResult same(const Tensor& a, const Tensor& b) {
  if (same_bits(a, b)) return testing::AssertionSuccess();
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return testing::AssertionFailure() << a << " is not " << b;
  const std::vector<double> left = a.to_vector<double>(), right = b.to_vector<double>();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    return testing::AssertionFailure() << "element " << i << ": " << left[i] << " is not " << right[i];
  }
  return testing::AssertionSuccess();
}

inline double largest_finite(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.to_vector<double>()) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  return largest;
}

/// Within `tolerance` of `largest`, NaN and infinite values in the same places.
inline testing::AssertionResult near(const Tensor& a, const Tensor& b, double tolerance, double largest) {
  if (!(a.shape() == b.shape())) return testing::AssertionFailure() << a.shape() << " is not " << b.shape();
  const std::vector<double> left = a.to_vector<double>(), right = b.to_vector<double>();
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    if (!(std::abs(left[i] - right[i]) <= tolerance * largest)) {
      return testing::AssertionFailure() << "element " << i << ": " << left[i] << " is not near " << right[i] << " (largest " << largest
                                         << ')';
    }
  }
  return testing::AssertionSuccess();
}

inline std::vector<Tensor> clones(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.clone());
  return result;
}

inline bool mutates(const Operator& op, std::size_t input) {
  return std::find(op.mutates.begin(), op.mutates.end(), static_cast<int>(input)) != op.mutates.end();
}

/// The results, and after them what became of the inputs that are updated in place.
inline std::vector<Tensor> run_with_updates(const Operator& op, std::vector<Tensor> inputs, const ops::Attributes& attributes) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (mutates(op, i)) inputs[i] = inputs[i].clone();
  }
  std::vector<Tensor> results = ops::run(op, inputs, attributes);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (mutates(op, i)) results.push_back(inputs[i]);
  }
  return results;
}

/// Copies of an index, each with its last element replaced by what names nothing, as far as the dtype can hold that.
inline std::vector<Tensor> naming_nothing(const Tensor& indices, std::int64_t least, std::int64_t count) {
  std::vector<Tensor> result;
  for (const std::int64_t index : {least - 1, count, std::int64_t{-7}, std::int64_t{100'000}, std::int64_t{INT32_MIN},
                                   std::int64_t{INT32_MAX}, INT64_MIN, INT64_MAX}) {
    dispatch_arithmetic(indices.dtype(), [&]<class T>() {
      const T stored = static_cast<T>(index);
      const bool inside = index >= least && index < count;
      if (inside || static_cast<std::int64_t>(stored) != index || indices.elements() == 0) return;
      result.push_back(indices.clone());
      result.back().template span<T>().back() = stored;
    });
  }
  return result;
}

/// The names of the operators for which `holds`.
template <class Predicate>
std::vector<std::string> operators(const Predicate& holds) {
  std::vector<std::string> names;
  for (const Operator* op : ops::registry().all()) {
    if (holds(*op)) names.push_back(op->name);
  }
  return names;
}

/// The same values in other memory: axes stored in another order, every second element of a longer axis, an offset of one element.
inline Tensor strided_copy(const Tensor& tensor, std::uint64_t seed) {
  if (tensor.rank() == 0) return tensor;
  const std::vector<std::int64_t> order = permutation(tensor.rank(), seed, 1);
  const std::uint32_t choice = philox(seed, 2, 0)[0];
  Shape stored;
  Dims inverse = Dims::filled(tensor.rank(), 0);
  for (int i = 0; i < tensor.rank(); ++i) {
    const int axis = static_cast<int>(order[static_cast<std::size_t>(i)]);
    stored.push_back(tensor.shape()[axis]);
    inverse[axis] = i;
  }
  const int stretched = static_cast<int>(choice % static_cast<std::uint32_t>(tensor.rank()));
  const std::int64_t step = 1 + (choice >> 8) % 2, offset = (choice >> 16) % 2;
  const std::int64_t size = stored[stretched];
  stored[stretched] = size * step + offset;
  const Tensor memory = Tensor::full(stored, 99, tensor.dtype(), tensor.device());
  const Tensor view = memory.slice(stretched, offset, offset + size * step, step).permute(inverse);
  copy(view, tensor);
  return view;
}

/// Dense, but one element past what its dtype's vectors are aligned to.
inline Tensor misaligned_copy(const Tensor& tensor) {
  const Tensor memory = Tensor::full({tensor.elements() + 1}, 99, tensor.dtype(), tensor.device());
  const Tensor view = memory.slice(0, 1, tensor.elements() + 1).reshape(tensor.shape());
  copy(view, tensor);
  return view;
}

/// One axis repeats its first element with stride 0.
inline Tensor repeated_axis(const Tensor& tensor, std::uint64_t seed) {
  if (tensor.elements() == 0 || tensor.rank() == 0) return tensor;
  const int axis = static_cast<int>(philox(seed, 3, 0)[0] % static_cast<std::uint32_t>(tensor.rank()));
  return tensor.slice(axis, 0, 1).expand(tensor.shape());
}

inline Tensor view_of(const Tensor& tensor, std::uint64_t seed) {
  switch (philox(seed, 4, 0)[0] % 4) {
    case 0: return repeated_axis(tensor, seed);
    case 1: return misaligned_copy(tensor);
    default: return strided_copy(tensor, seed);
  }
}

}  // namespace frit
