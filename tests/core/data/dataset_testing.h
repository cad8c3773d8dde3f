#pragma once

#include <vector>

#include "core/tensor_testing.h"
#include "frit/core/data/dataset.h"

namespace frit {

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

}  // namespace frit
