#pragma once

#include <vector>

#include "frit/core/data/dataset.h"

namespace frit::testing {

/// The examples with these numbers, one tensor per field.
inline std::vector<Tensor> read(const Dataset& dataset, const std::vector<std::int64_t>& indices, const Epoch& epoch = {}) {
  std::vector<Tensor> batch;
  for (const Dataset::Field& field : dataset.fields()) {
    Shape shape = field.shape;
    shape.insert(0, static_cast<std::int64_t>(indices.size()));
    batch.push_back(Tensor::empty(shape, field.dtype));
  }
  dataset.read(indices, batch, epoch);
  return batch;
}

/// `count` examples whose first field counts up from 0: (count, shape...).
inline Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor::from(values, shape);
}

}  // namespace frit::testing
